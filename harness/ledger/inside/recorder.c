/* The quick way of the ledger's hook: a call that was met before is written without asking anything again.

   What a call's record holds is worked out in Python (hook_torch.py), for every call that is new. A copy of the record
   is kept here under all that it followed from: the operation, the line of the caller, the group, the other end, the
   tag, the shape and type of the tensor, the state and the thread. Where all of these are as they were, so is the record
   but for its time, index and number. Whatever else a call is, `write` gives None, and Python works it out.

   After a large message the caches are cold, and what a call costs is how many Python objects it touches. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifndef __linux__
#error "the clock is the one that Python's time.monotonic_ns has on Linux"
#endif

#define ENTRIES 512 /* calls that are known; each has one place, and takes it from another */
#define CODES 2048  /* places for code that is passed; with half of them taken Python sees every call again */

#pragma pack(push, 1)
typedef struct { /* as harness.ledger.file.RECORD; its size is held against that */
    uint64_t begin, end, elements;
    uint32_t index;
    int32_t peer, tag;
    uint16_t operation, group, site, dtype, shape, reduction, thread;
    uint8_t state, unused;
    uint64_t number;
} Record;
#pragma pack(pop)

typedef struct {
    const void *operation, *code, *ranks, *dtype; /* told apart by address: Python keeps them while the ledger lasts */
    int lasti;
    long other, tag, state;
    unsigned long thread;
    PyObject *shape;           /* owned, as what follows */
    PyObject *counter, *known; /* gives the index; what Python has to know of the call */
    Record record;
} Entry;

typedef struct {
    PyObject_HEAD
    Py_buffer map;
    PyObject *numbers, *passed, *members; /* of the calls; code that is passed; of torch's groups */
    uint64_t records_at, slots;
    int is_off, codes;
    const void *code[CODES];
    Entry entries[ENTRIES];
} Recorder;

typedef struct { /* an operation: where in its arguments is what, -1 for what it has not */
    PyObject_HEAD
    Recorder *recorder;
    PyObject *unbox, *adder, *sum; /* of an operation that reduces: torch's own function for it, and what adds */
    int own, group, root, tag;
} Operation;

static PyObject *shape_name, *dtype_name, *op_name;

static const void **place_of(Recorder *self, const void *code) {
    size_t at = ((uintptr_t)code >> 4) * 0x9E3779B1u % CODES;
    while (self->code[at] != NULL && self->code[at] != code)
        at = (at + 1) % CODES;
    return &self->code[at];
}

/* Whether code is the library's or our own, as Python found. */
static int is_passed(Recorder *self, const void *code, int learns) {
    const void **place = place_of(self, code);
    if (*place != NULL || !learns)
        return *place != NULL;
    PyObject *identity = PyLong_FromVoidPtr((void *)code);
    PyObject *found = identity == NULL ? NULL : PyDict_GetItemWithError(self->passed, identity);
    Py_XDECREF(identity);
    if (found != Py_True)
        return 0;
    if (self->codes++ < CODES / 2)
        *place = code;
    else /* who passes it could not be told from its caller */
        self->is_off = 1;
    return 1;
}

/* The innermost frame that is neither the library's nor our own: its code, and where it stands. */
static void caller_of(Recorder *self, PyFrameObject *frame, int learns, Entry *key) {
    Py_INCREF(frame);
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        Py_DECREF(code); /* its frame holds it */
        if (!is_passed(self, code, learns)) {
            key->code = code;
            key->lasti = PyFrame_GetLasti(frame);
            Py_DECREF(frame);
            return;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
}

/* The ranks of a call's group, as torch keeps them; borrowed. Of one group there is nothing to find out. */
static PyObject *ranks_of(Operation *self, PyObject *boxed) {
    PyObject *members = self->recorder->members, *found = NULL, *key;
    Py_ssize_t at = 0;
    if (members == NULL)
        return NULL;
    if (PyDict_GET_SIZE(members) == 1) {
        PyDict_Next(members, &at, &key, &found);
        return found;
    }
    PyObject *group = PyObject_CallOneArg(self->unbox, boxed);
    if (group != NULL)
        found = PyDict_GetItemWithError(members, group);
    Py_XDECREF(group);
    return found;
}

/* Whether torch's own function asks for a sum. */
static int adds(Operation *self, PyFrameObject *frame) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_DECREF(code);
    if ((PyObject *)code != self->adder)
        return 0;
    PyObject *locals = PyFrame_GetLocals(frame);
    PyObject *found = locals == NULL ? NULL : PyObject_GetItem(locals, op_name);
    Py_XDECREF(locals);
    Py_XDECREF(found); /* its frame holds it */
    return found != NULL && found == self->sum;
}

/* Fills in what a call's record follows from; its shape is the caller's to give back. False for what Python has to see. */
static int read_call(Operation *self, PyObject *const *given, int learns, Entry *key) {
    PyFrameObject *frame = (PyFrameObject *)given[0];
    PyObject *arguments = given[1];
    memset(key, 0, sizeof *key);
    if (self->recorder->is_off || !PyFrame_Check(frame) || !PyTuple_Check(arguments))
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    if (self->own >= count || self->group >= count || self->root >= count || self->tag >= count)
        return 0;
    if (self->adder != NULL && !adds(self, frame))
        return 0;
    key->operation = self;
    key->thread = PyThread_get_thread_ident();
    key->state = PyLong_AsLong(given[2]);
    key->other = self->root < 0 ? 0 : PyLong_AsLong(PyTuple_GET_ITEM(arguments, self->root));
    key->tag = self->tag < 0 ? 0 : PyLong_AsLong(PyTuple_GET_ITEM(arguments, self->tag));
    key->ranks = ranks_of(self, PyTuple_GET_ITEM(arguments, self->group));
    if (key->ranks == NULL || PyErr_Occurred())
        return 0;
    caller_of(self->recorder, frame, learns, key);
    if (self->recorder->is_off)
        return 0;
    if (self->own < 0)
        return 1;
    PyObject *tensor = PyTuple_GET_ITEM(arguments, self->own);
    if (PyList_Check(tensor)) {
        if (PyList_GET_SIZE(tensor) != 1)
            return 0;
        tensor = PyList_GET_ITEM(tensor, 0);
    }
    PyObject *dtype = PyObject_GetAttr(tensor, dtype_name); /* a list of lists has none */
    key->dtype = dtype;
    Py_XDECREF(dtype); /* torch holds it */
    key->shape = dtype == NULL ? NULL : PyObject_GetAttr(tensor, shape_name);
    return key->shape != NULL;
}

static Entry *entry_of(Recorder *self, const Entry *key) {
    uint64_t mixed = (uintptr_t)key->operation ^ (uintptr_t)key->code >> 4 ^ (uint64_t)key->lasti << 7;
    mixed ^= (uint64_t)key->other << 13 ^ (uint64_t)key->tag << 17 ^ (uintptr_t)key->ranks >> 3 ^ key->thread >> 12;
    if (key->shape != NULL)
        mixed ^= (uint64_t)PyObject_Hash(key->shape);
    return &self->entries[(mixed * 0x9E3779B97F4A7C15u >> 40) % ENTRIES];
}

static int is_same(const Entry *one, const Entry *other) {
    size_t plain = offsetof(Entry, shape);
    if (memcmp(one, other, plain) != 0 || (one->shape == NULL) != (other->shape == NULL))
        return 0;
    return one->shape == NULL || PyObject_RichCompareBool(one->shape, other->shape, Py_EQ) == 1;
}

static uint64_t next_of(PyObject *numbers) {
    PyObject *number = PyIter_Next(numbers);
    uint64_t found = number == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    return found;
}

static void put_number(char *record, uint64_t number) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(record + offsetof(Record, number), &number, sizeof number); /* it is not aligned */
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* write(frame, arguments, state): the place of the record, and what was kept; None for what Python has to see. */
static PyObject *operation_write(Operation *self, PyObject *const *given, Py_ssize_t many) {
    Recorder *book = self->recorder;
    Entry key, *entry;
    if (many != 3)
        return PyErr_Format(PyExc_TypeError, "write takes 3 arguments");
    int is_known = read_call(self, given, 0, &key) && is_same(entry = entry_of(book, &key), &key);
    Py_CLEAR(key.shape);
    PyErr_Clear();
    if (!is_known)
        Py_RETURN_NONE;
    Record record = entry->record;
    record.index = (uint32_t)next_of(entry->counter);
    record.number = next_of(book->numbers);
    if (record.index == 0 || record.number == 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_RuntimeError, "the numbers of calls have ended");
    uint64_t at = book->records_at + (record.number - 1) % book->slots * sizeof record;
    char *place = (char *)book->map.buf + at;
    if (record.number > book->slots)
        put_number(place, 0);
    record.begin = now();
    memcpy(place, &record, offsetof(Record, number));
    /* The number is written last: a record without it was not written. */
    put_number(place, record.number);
    PyObject *where = PyLong_FromUnsignedLongLong(at);
    PyObject *found = where == NULL ? NULL : PyTuple_Pack(2, where, entry->known);
    Py_XDECREF(where);
    return found;
}

/* remember(frame, arguments, state, at, counter, known): keep the record that Python wrote there of this call. */
static PyObject *operation_remember(Operation *self, PyObject *const *given, Py_ssize_t many) {
    Recorder *book = self->recorder;
    Entry key;
    if (many != 6)
        return PyErr_Format(PyExc_TypeError, "remember takes 6 arguments");
    uint64_t at = PyLong_AsUnsignedLongLong(given[3]);
    if (PyErr_Occurred() || at > (uint64_t)book->map.len - sizeof(Record))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no record lies there");
    if (!read_call(self, given, 1, &key)) {
        Py_CLEAR(key.shape);
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    memcpy(&key.record, (char *)book->map.buf + at, sizeof key.record);
    key.record.end = 0;
    key.counter = Py_NewRef(given[4]);
    key.known = Py_NewRef(given[5]);
    Entry *entry = entry_of(book, &key), old = *entry;
    memcpy(entry, &key, sizeof key);
    Py_XDECREF(old.shape);
    Py_XDECREF(old.counter);
    Py_XDECREF(old.known);
    Py_RETURN_NONE;
}

/* end(at): the call has ended whose record lies there. */
static PyObject *recorder_end(Recorder *self, PyObject *given) {
    uint64_t at = PyLong_AsUnsignedLongLong(given), time = now();
    if (PyErr_Occurred() || at > (uint64_t)self->map.len - sizeof(Record))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no record lies there");
    memcpy((char *)self->map.buf + at + offsetof(Record, end), &time, sizeof time);
    Py_RETURN_NONE;
}

/* stop(): from now on Python sees every call. */
static PyObject *recorder_stop(Recorder *self, PyObject *Py_UNUSED(none)) {
    self->is_off = 1;
    Py_RETURN_NONE;
}

static PyObject *recorder_look(Recorder *self, PyObject *members) {
    Py_XSETREF(self->members, Py_NewRef(members));
    Py_RETURN_NONE;
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    PyObject *map, *numbers, *passed;
    unsigned long long records_at, slots, size;
    if (!PyArg_ParseTuple(given, "OOO!KKK", &map, &numbers, &PyDict_Type, &passed, &records_at, &slots, &size))
        return NULL;
    if (size != sizeof(Record))
        return PyErr_Format(PyExc_ValueError, "a record has %llu bytes, and %zu here", size, sizeof(Record));
    Recorder *self = (Recorder *)type->tp_alloc(type, 0);
    if (self == NULL || PyObject_GetBuffer(map, &self->map, PyBUF_WRITABLE) < 0)
        return NULL;
    if (slots == 0 || records_at + slots * size > (uint64_t)self->map.len)
        return PyErr_Format(PyExc_ValueError, "the records do not lie in the file");
    self->numbers = Py_NewRef(numbers);
    self->passed = Py_NewRef(passed);
    self->records_at = records_at;
    self->slots = slots;
    return (PyObject *)self;
}

static PyTypeObject recorder_type;

static PyObject *operation_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named)) {
    PyObject *recorder, *unbox, *adder, *sum;
    int own, group, root, tag;
    if (!PyArg_ParseTuple(given, "O!OOOiiii", &recorder_type, &recorder, &unbox, &adder, &sum, &own, &group, &root, &tag))
        return NULL;
    Operation *self = (Operation *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->recorder = (Recorder *)Py_NewRef(recorder);
    self->unbox = Py_NewRef(unbox);
    self->adder = adder == Py_None ? NULL : Py_NewRef(adder);
    self->sum = Py_NewRef(sum);
    self->own = own, self->group = group, self->root = root, self->tag = tag;
    return (PyObject *)self;
}

static PyMethodDef recorder_methods[] = {
    {"end", (PyCFunction)recorder_end, METH_O, NULL},
    {"stop", (PyCFunction)recorder_stop, METH_NOARGS, NULL},
    {"look", (PyCFunction)recorder_look, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef operation_methods[] = {
    {"write", (PyCFunction)(void (*)(void))operation_write, METH_FASTCALL, NULL},
    {"remember", (PyCFunction)(void (*)(void))operation_remember, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
/* Both live as long as the rank: they are never given back. */
static PyTypeObject recorder_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "recorder.Recorder",
    .tp_basicsize = sizeof(Recorder),
    .tp_new = recorder_new,
    .tp_methods = recorder_methods,
};
static PyTypeObject operation_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "recorder.Operation",
    .tp_basicsize = sizeof(Operation),
    .tp_new = operation_new,
    .tp_methods = operation_methods,
};
static int fill(PyObject *module) {
    shape_name = PyUnicode_InternFromString("shape");
    dtype_name = PyUnicode_InternFromString("dtype");
    op_name = PyUnicode_InternFromString("op");
    return PyModule_AddType(module, &recorder_type) < 0 ? -1 : PyModule_AddType(module, &operation_type);
}

/* In two steps: a module of one step would stand in sys.modules, where a subject may have one of that name. */
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "recorder", .m_slots = slots};

PyMODINIT_FUNC PyInit_recorder(void) { return PyModuleDef_Init(&module); }
