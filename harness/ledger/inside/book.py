"""Write a rank's ledger: the file mapped into memory, a record for each call as it begins and ends.

What is mapped belongs to the kernel, so a rank that is killed in the middle of a call leaves it.
Safe with threads: each takes a number and a record of its own. `harness.ledger.file` is the format;
what the libraries' calls are is in `hook_torch.py` and `hook_mlx.py`, which stand between a subject
and its library from before it is imported. Where `recorder.c` could be compiled, it writes the
calls that were met before; else Python writes all of them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from threading import get_ident
from time import monotonic_ns
from types import CodeType, FrameType, ModuleType
from typing import Any, Literal, Protocol

from harness.ledger.call import STATES
from harness.ledger.file import (
    DIGESTS,
    HEADER,
    LARGEST,
    LARGEST_BARE,
    MAGIC,
    NUMBER,
    NUMBER_AT,
    PART,
    PART_FLOAT,
    PART_WHOLE,
    RECORD,
    SLOTS,
    TEXT_LIMIT,
    TEXTS_LIMIT,
    TEXTS_MOST,
    WHOLE,
    Texts,
    visible,
)

ROOT = str(Path(__file__).parents[3])  # of our own code, which is not found by sys.path
OPEN, _, FAILED, STARTED = range(len(STATES))
SHORT = struct.Struct("<H")
COUNTER = struct.Struct("<I")
# Where the fields of the header and of a record lie that change after they were first written.
WHY_AT = 14
USED_AT = 32
LOST_AT = 40
CHILDREN_AT = 44
END_AT = 8
STATE_AT = 50
UNDIGESTED_WHY_AT = HEADER.size - 8
IN_C_AT = HEADER.size - 6
UNDIGESTED_AT = HEADER.size - 4
RECORDS_AT = HEADER.size + TEXTS_LIMIT
PARTS_AT = RECORDS_AT + SLOTS * RECORD.size
# Texts of places and shapes leave so much room for those without which a call cannot be written.
RESERVED = 16 * 1024
RESERVED_TEXTS = 500
LIBRARIES = ("torch", "mlx.core")
# Whose frames stand between a library and its caller: the interpreter's own (not what is installed
# below them), and what marks functions as deprecated.
STANDARD = os.path.realpath(Path(os.__file__).parent) + os.sep
INSTALLED = (STANDARD + "site-packages", STANDARD + "dist-packages")
WRAPPERS = os.sep + "typing_extensions.py"
# Where torch.compile puts what it made of a subject's code, unless it is told.
COMPILED = os.sep + "torchinductor_"


DigestLevel = Literal["", "given", "eager"]
"""Which payloads are digested: none, those that need no evaluation, or all."""
Taking = tuple[int, int, float | int, float]
"""Of an array: its digest, what its sketch is, the total and the size of that."""


class ObservedRank(Protocol):
    """Rank whose calls a ledger records; `harness.rank.spec.RankSpec` is one."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def world(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def digests(self) -> DigestLevel: ...


class Book:
    """Ledger of this rank.

    Attributes:
        size: world size.
        rank: this rank.
        is_struck: whether faults may strike its calls.
        recorder: what writes calls that were met before, in C; None where that was not made.
        counters: what gives calls their index, by what they are counted by: see `counter`.
        digests: see `DigestLevel`.
    """

    def __init__(
        self,
        path: Path,
        of: ObservedRank,
        *,
        is_struck: bool = False,
        recorder: ModuleType | None = None,
    ) -> None:
        """Make the file; `recorder` is the module that writes calls that were met before.

        Raises:
            OSError: no space, or no right to write there.
        """
        self.rank = of.rank
        self.size = of.size
        self.is_struck = is_struck
        self.digests = of.digests
        size = LARGEST if self.digests else LARGEST_BARE
        self._is_child = False
        self._sites = Sites(of.folder, self.text)
        descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            # All of it now: a full disk would otherwise kill the rank at a call (SIGBUS).
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)
            else:
                os.write(descriptor, bytes(size))
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        who = (MAGIC, RECORD.size, of.rank, of.size, 0, os.getpid(), SLOTS)
        places = (HEADER.size, TEXTS_LIMIT, 0, RECORDS_AT)
        behind = (PARTS_AT, DIGESTS if self.digests else 0, 0, 0, 0)
        HEADER.pack_into(self._map, 0, *who, *places, 0, 0, of.world.encode("ascii"), *behind)
        # Held while the table of texts or a counter in the header changes. Records need no lock:
        # each call has one of its own.
        self._lock = threading.Lock()
        self._texts = Texts()
        self._known: dict[str, int] = {"": 0}
        self._threads: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._part_numbers = itertools.count(1)
        self.counters: dict[tuple[int, ...], Iterator[int]] = {}
        self._full = self.text("the table of its texts is full")
        records = (self._map, self._numbers, self._sites.passed, RECORDS_AT, SLOTS, RECORD.size)
        self.recorder = recorder_of(recorder, records)
        # A child shares the map: without this its calls would be taken for the rank's.
        os.register_at_fork(after_in_child=self._forked)

    def begin(  # noqa: PLR0917 - by place: it is called before every call of a rank
        self,
        frame: FrameType | None,
        operation: int,
        group: int,
        index: int,
        peer: int,
        tag: int,
        elements: int,
        shape: int,
        dtype: int,
        reduction: int,
        state: int,
    ) -> int | None:
        """Write that a call begins. Texts are given by their numbers: see `text`.

        Args:
            frame: in which it is made, or one that this called.
            operation: as `harness.ledger.file` names it.
            group: as `CallGroup.text` names it.
            index: what its `counter` gave.
            peer: root or other end, as a rank of the world; -1 for none.
            tag: of a point-to-point call.
            elements: what the group has to state alike.
            shape: of its first tensor.
            dtype: of its first tensor.
            reduction: such as `sum`.
            state: OPEN where its end will be told, STARTED where it comes back at once.

        Returns:
            What `end` takes; None where it was not written, which the ledger says.
        """
        if self._is_child:
            self._count_a_child()
            return None
        sites = self._sites
        known = sites.passed.get
        site = 0
        # The innermost frame that is neither the library's nor our own; there is none where native
        # code made the call.
        while frame is not None:
            code = frame.f_code
            is_passed = known(id(code))
            if is_passed is None:
                is_passed = sites.look(code)
            if not is_passed:
                place = (id(code), frame.f_lasti)
                number = sites.numbers.get(place)
                site = sites.name(place, frame) if number is None else number
                break
            frame = frame.f_back
        ident = get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            thread = self._threads.setdefault(ident, min(len(self._threads), 0xFFFF))
        number = next(self._numbers)
        at = RECORDS_AT + (number - 1) % SLOTS * RECORD.size
        if number > SLOTS:
            # The place has an older record, which is no longer whole once this one begins.
            NUMBER.pack_into(self._map, at + NUMBER_AT, 0)
        texts = operation, group, site, dtype, shape, reduction
        now = monotonic_ns()
        # The number is written last: a record without it was not written.
        RECORD.pack_into(
            self._map, at, now, 0, elements, index, peer, tag, *texts, thread, state, number
        )
        return at

    def end(self, at: int | None, *, failed: bool = False) -> None:
        """Write that a call has ended: an open call with an end is one that ended."""
        if at is not None:
            if failed:
                self._map[at + STATE_AT] = FAILED
            NUMBER.pack_into(self._map, at + END_AT, monotonic_ns())

    def in_c(self) -> None:
        """Say that the recorder writes calls that were met before."""
        SHORT.pack_into(self._map, IN_C_AT, 1)

    def counter(self, key: tuple[int, ...]) -> Iterator[int]:
        """Return what gives calls their index, from 1.

        Args:
            key: what they are counted by: the group, and for point-to-point calls peer, tag and
                direction.
        """
        return self.counters.get(key) or self.counters.setdefault(key, itertools.count(1))

    def number(self, at: int) -> int:
        """Return the number of the call that `begin` wrote there."""
        return int(NUMBER.unpack_from(self._map, at + NUMBER_AT)[0])

    def digest(self, call: int, side: int, many: int, whom: int, taken: Taking) -> None:
        """Write the digest of an array.

        Args:
            call: number of the call.
            side: 0 of those that it sends, 1 of those that it receives.
            many: how many arrays it has on this side.
            whom: rank of the world to which it goes or from which it comes.
            taken: what is known of the array.
        """
        if self._is_child:
            return
        digest, kind, total, size = taken
        number = next(self._part_numbers)
        at = PARTS_AT + (number - 1) % DIGESTS * PART.size
        if number > DIGESTS:
            NUMBER.pack_into(self._map, at + PART.size - NUMBER.size, 0)
        form = PART_WHOLE if kind == WHOLE else PART_FLOAT
        # The number is written last here too.
        form.pack_into(self._map, at, digest, total, size, call, whom, many, side, kind, number)

    def undigested(self, why: str) -> None:
        """Count a call whose payload was not digested; the first reason stays."""
        if self._is_child:
            return
        self._give_reason(UNDIGESTED_WHY_AT, why)
        with self._lock:
            self._count_up(UNDIGESTED_AT)

    def site(self) -> str:
        """Return which line of whose code makes a call now; empty where it is native code."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - see above
        while frame is not None and self._sites.look(frame.f_code):
            frame = frame.f_back
        return "" if frame is None else self._sites.described(frame)

    def made(self, group: int) -> int:
        """Return how many calls have begun in a group."""
        return sum(
            next(copy.copy(count)) - 1
            for key, count in list(self.counters.items())
            if key[0] == group
        )

    def refuse(self, why: str) -> None:
        """Write why calls are made that are not in it; the first reason stays."""
        if self._is_child:
            self._count_a_child()
            return
        self._give_reason(WHY_AT, why)

    def _give_reason(self, at: int, why: str) -> None:
        """Write a reason into the header, where none is yet."""
        try:
            # An error's text may be long: one that is not shorter than the limit is taken for cut.
            number = self.text(visible(why)[: TEXT_LIMIT - 1].decode("ascii"))
        except ValueError:
            number = self._full
        with self._lock:
            if not SHORT.unpack_from(self._map, at)[0]:
                SHORT.pack_into(self._map, at, number)

    def _count_up(self, at: int) -> None:
        """Add one to a counter of the header; the lock is held."""
        COUNTER.pack_into(self._map, at, COUNTER.unpack_from(self._map, at)[0] + 1)

    def text(self, text: str, *, needed: bool = True) -> int:
        """Return the number of a text.

        One that is not `needed` is left out where there is little room: 0.

        Raises:
            ValueError: there is no room for one that a record needs.
        """
        if not text:
            return 0
        with self._lock:
            if (number := self._known.get(text)) is not None:
                return number
            known = len(self._texts.data)
            if needed:
                # Cut off, it would be another operation, group, type or reduction.
                is_left_out = len(visible(text)) >= TEXT_LIMIT
            else:
                is_left_out = (
                    known > TEXTS_LIMIT - RESERVED or len(self._known) > TEXTS_MOST - RESERVED_TEXTS
                )
            number = 0 if is_left_out else self._texts.number(text)
            if number:
                data = self._texts.data[known:]
                self._map[HEADER.size + known : HEADER.size + known + len(data)] = bytes(data)
                # Behind the text itself: a rank that is killed in between leaves a whole table.
                COUNTER.pack_into(self._map, USED_AT, known + len(data))
                self._known[text] = number
            elif needed:
                raise ValueError(f"the ledger has no room for {text[:60]!r}")
            else:
                self._count_up(LOST_AT)
        return number

    def _forked(self) -> None:
        self._is_child = True
        if self.recorder is not None:
            self.recorder.stop()

    def _count_a_child(self) -> None:
        """Count a call of a process that the rank forked, which has the same map."""
        NUMBER.pack_into(self._map, CHILDREN_AT, NUMBER.unpack_from(self._map, CHILDREN_AT)[0] + 1)


class Sites:
    """Lines of code that made calls, looked up where they are not known yet.

    Attributes:
        passed: identity of a code object to whether it is the library's or our own. By identity,
            because the hash of code is that of all it holds.
        numbers: place to the number of its text.
    """

    def __init__(self, folder: str, text: Callable[..., int]) -> None:
        self._folder = folder
        self._text = text
        ours = Path(__file__).parents[2]
        # In a checkout _integrity is a link to another folder.
        self._ours = [os.path.realpath(place) + os.sep for place in (ours, ours / "_integrity")]
        self.passed: dict[int, bool] = {}
        self._kept: list[CodeType] = []  # so that no other code gets the identity of one
        self.numbers: dict[tuple[int, int], int] = {}

    def name(self, place: tuple[int, int], frame: FrameType) -> int:
        """Return the number of a place that was not met before."""
        number = self.numbers[place] = self._text(self.described(frame), needed=False)
        return number

    def described(self, frame: FrameType) -> str:
        """Return where a frame stands, as a ledger has it."""
        code = frame.f_code
        file = short_name(code.co_filename, folder=self._folder)
        return f"{file}:{frame.f_lineno} in {code.co_name}"

    def look(self, code: CodeType) -> bool:
        """Return what `passed` holds of code, which may not have been met before."""
        known = self.passed.get(id(code))
        if known is None:
            self._kept.append(code)
            known = self.passed[id(code)] = self._is_passed(code)
        return known

    def _is_passed(self, code: CodeType) -> bool:
        file = os.path.realpath(code.co_filename)
        if file.startswith(STANDARD) and not file.startswith(INSTALLED):
            return True
        inductor = os.path.realpath(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or COMPILED) + os.sep
        if code.co_filename.startswith("<") or COMPILED in file or inductor in file:
            return True  # generated
        # Asked each time: a library may have been imported meanwhile.
        modules = [getattr(sys.modules.get(name), "__file__", None) for name in LIBRARIES]
        libraries = [str(Path(os.path.realpath(path)).parent) + os.sep for path in modules if path]
        return file.startswith((*self._ours, *libraries)) or file.endswith(WRAPPERS)


def short_name(name: str, *, folder: str) -> str:
    """Return a file's name relative to the arm's folder, or to the import path it came from."""
    file = os.path.realpath(name)
    if file.startswith(root := os.path.realpath(folder) + os.sep):
        return file[len(root) :]
    entries = [os.path.realpath(path) for path in (ROOT, *sys.path) if path]
    for entry in sorted(entries, key=len, reverse=True):
        if file.startswith(entry + os.sep):
            return file[len(entry) + 1 :]
    return Path(file).name


class Quick(Protocol):
    """Writes calls of one operation of torch that were met before."""

    def write(
        self, frame: Any, arguments: tuple[Any, ...], state: int, /
    ) -> tuple[int, Any] | None:
        """Return the record's place and what was kept with it; None: Python has to look at it."""

    # By place: it is called for every new call, and C takes no names.
    def remember(
        self, frame: Any, arguments: Any, state: int, at: int, counter: Any, known: Any, /
    ) -> None:
        """Keep the record that lies there, under all that it followed from."""


class LedgerRecorder:
    """Recorder in C of one ledger."""

    def __init__(self, module: Any, records: tuple[Any, ...]) -> None:
        """Take the module, and where the records of the ledger lie: see `recorder_of`."""
        self._module = module
        self._recorder = module.Recorder(*records)
        self.end = self._recorder.end
        self.look = self._recorder.look
        self.stop = self._recorder.stop

    def operation(self, *about: Any) -> Quick:
        """Return an operation: unboxer of groups, torch's function for it, the sum, the places."""
        operation: Quick = self._module.Operation(self._recorder, *about)
        return operation


def module_of(path: str) -> ModuleType | None:
    """Load the compiled recorder, before anybody listens to what a subject loads.

    Args:
        path: empty where nothing was compiled.

    Returns:
        None where it was compiled for another interpreter, or cannot be loaded.
    """
    if not path.endswith(EXTENSION_SUFFIXES[0]):
        return None
    try:
        spec = importlib.util.spec_from_file_location("recorder", path)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    # Whatever a compiler made of it, the ledger is written without.
    except Exception:  # noqa: BLE001
        return None
    return module


def recorder_of(module: ModuleType | None, records: tuple[Any, ...]) -> LedgerRecorder | None:
    """Make the recorder of a ledger.

    Args:
        module: what `module_of` gave.
        records: the file as it is mapped, what gives calls their numbers, which code is passed,
            where the records lie, how many there are, and the bytes of one.

    Returns:
        None where there is no module, or it was made for records of another form.
    """
    with contextlib.suppress(ValueError):
        return None if module is None else LedgerRecorder(module, records)
    return None
