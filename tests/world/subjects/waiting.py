"""Ranks that only wait: by thirty ways of going on later, and by as many of never going on.

In each of the slow ones rank 1 goes on by itself after some seconds, and nothing that moves shows
it before.
"""

import asyncio
import concurrent.futures
import ctypes
import fcntl
import os
import queue
import sched
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LONG = 18.0


def slow(context, *, way, peer=""):
    """Rank 1 is slow in one way; rank 0 waits for it."""
    if context.rank == 1:
        (accepts if way in ("accepts", "tells") else SLOW[way])(peer)
        if way == "tells":
            context.emit("told")
    threading.Event().wait()


def hung(context, *, way):
    """Both ranks hang in one way."""
    HUNG[way](context)


# --- slow
# ----------------------------------------------------------------------------------------------


def timer(_peer):
    done = threading.Event()
    threading.Timer(LONG, done.set).start()
    done.wait()


def executor(_peer):
    async def work():
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, LONG)

    asyncio.run(work())


def pool(_peer):
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        list(workers.map(time.sleep, [LONG, LONG]))


def futures(_peer):
    with concurrent.futures.ThreadPoolExecutor(1) as workers:
        concurrent.futures.wait([workers.submit(time.sleep, LONG)], timeout=LONG)


def scheduler(_peer):
    planned = sched.scheduler()
    planned.enter(LONG, 0, lambda: None)
    planned.run()


def scheduler_in_a_thread(_peer):
    planned = sched.scheduler()
    planned.enter(LONG, 0, lambda: None)
    worker = threading.Thread(target=planned.run)
    worker.start()
    worker.join()


def file_lock(peer):
    with Path(peer).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def record_lock(peer):
    with Path(peer).open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


def native(source):
    """A thread in C, and `pthread_join`."""
    folder = tempfile.mkdtemp()
    with Path(f"{folder}/wait.c").open("w") as file:
        file.write(
            "#include <pthread.h>\n#include <time.h>\n#include <unistd.h>\n#include"
            " <sys/timerfd.h>\n"
        )
        file.write(f"static void *work(void *given) {{ {source} return given; }}\n")
        file.write(
            "void wait_for_it(void) { pthread_t it; pthread_create(&it, 0, work, 0);"
            " pthread_join(it, 0); }\n"
        )
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", f"{folder}/wait.so", f"{folder}/wait.c", "-lpthread"],
        check=True,
    )
    ctypes.CDLL(f"{folder}/wait.so").wait_for_it()


def native_sleep(_peer):
    native(f"struct timespec t = {{ {LONG:.0f}, 0 }}; nanosleep(&t, 0);")


def native_sleep_until(_peer):
    until = f"struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); t.tv_sec += {LONG:.0f};"
    native(f"{until} clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);")


def native_timer(_peer):
    until = (
        f"struct itimerspec t = {{ {{0, 0}}, {{ {LONG:.0f}, 0 }} }}; int fd ="
        " timerfd_create(CLOCK_MONOTONIC, 0);"
    )
    native(f"char got[8]; {until} timerfd_settime(fd, 0, &t, 0); if (read(fd, got, 8)) {{}}")


def timer_descriptor():
    library = ctypes.CDLL(None)
    descriptor = library.timerfd_create(1, 0)
    library.timerfd_settime(descriptor, 0, struct.pack("qqqq", 0, 0, int(LONG), 0), None)
    return descriptor


def timerfd(_peer):
    os.read(timer_descriptor(), 8)


def timerfd_in_epoll(_peer):
    asked = select.epoll()
    asked.register(timer_descriptor(), select.EPOLLIN)
    asked.poll()


def timerfd_in_epoll_in_epoll(_peer):
    inner = select.epoll()
    inner.register(timer_descriptor(), select.EPOLLIN)
    outer = select.epoll()
    outer.register(inner.fileno(), select.EPOLLIN)
    outer.poll()


def restarted_sleep(_peer):
    """A sleep in C that was stopped and went on is the system call `restart_syscall`."""
    stopped = [sys.executable, "-c", RESTARTS.format(pid=os.getpid())]
    subprocess.Popen(stopped).wait()
    time.sleep(LONG)


RESTARTS = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    time.sleep(0.4)
    os.kill({pid}, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill({pid}, signal.SIGCONT)
"""


def restarted_poll(_peer):
    subprocess.Popen([sys.executable, "-c", RESTARTS.format(pid=os.getpid())]).wait()
    ctypes.CDLL(None).poll(None, 0, int(LONG * 1000))


def server_outside(peer):
    with socket.create_connection(("127.0.0.1", int(peer))) as asked:
        asked.recv(1)


def unix_server_outside(peer):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(peer)
        asked.recv(1)


def pipe_outside(peer):
    os.read(os.open(peer, os.O_RDWR), 1)


def alarm(_peer):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(int(LONG))
    signal.pause()


def interval_timer(_peer):
    done = threading.Event()
    signal.signal(signal.SIGVTALRM, lambda *_: done.set())
    signal.signal(signal.SIGALRM, lambda *_: done.set())
    signal.setitimer(signal.ITIMER_REAL, LONG)
    done.wait()


def posix_timer(_peer):
    library = ctypes.CDLL(None)
    found = ctypes.c_void_p()
    signal.signal(signal.SIGUSR2, lambda *_: None)
    event = struct.pack("qii", 0, signal.SIGUSR2, 0) + bytes(48)
    library.timer_create(1, event, ctypes.byref(found))
    library.timer_settime(found, 0, struct.pack("qqqq", 0, 0, int(LONG), 0), None)
    signal.pause()


def signal_descriptor(_peer):
    library = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.alarm(int(LONG))
    mask = struct.pack("Q", 1 << (signal.SIGALRM - 1)) + bytes(120)
    os.read(library.signalfd(-1, mask, 0), 128)


def awaited_signal(_peer):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.alarm(int(LONG))
    signal.sigwait([signal.SIGALRM])


def receive_timeout(_peer):
    ours, _theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(LONG), 0))
    ours.recv(1)


def send_timeout(_peer):
    ours, _theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(LONG), 0))
    while True:
        ours.send(bytes(65536))


def event_loop(_peer):
    asyncio.run(asyncio.sleep(LONG))


def event_loop_in_a_thread(_peer):
    worker = threading.Thread(target=event_loop, args=("",))
    worker.start()
    worker.join()


def selects(_peer):
    select.select([os.pipe()[0]], [], [], LONG)


def condition(_peer):
    asked = threading.Condition()
    with asked:
        asked.wait(LONG)


def queue_timeout(_peer):
    queue.Queue().get(timeout=LONG)


def socket_timeout(_peer):
    ours, _theirs = socket.socketpair()
    ours.settimeout(LONG)
    ours.recv(1)


def child_sleeps(_peer):
    subprocess.run(["sleep", str(LONG)], check=True)


def pipe_of_a_child(_peer):
    with subprocess.Popen(["sleep", str(LONG)], stdout=subprocess.PIPE) as child:
        child.stdout.read()


def child_sleeps_in_a_thread(_peer):
    code = (
        f"import threading, time; t = threading.Thread(target=time.sleep, args=({LONG},));"
        " t.start(); t.join()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def child_polls_in_a_thread(_peer):
    work = "def work():\n    for _ in range(90): time.sleep(0.2)\n"
    code = f"import threading, time\n{work}t = threading.Thread(target=work); t.start(); t.join()"
    subprocess.run([sys.executable, "-c", code], check=True)


def polls_in_a_thread(_peer):
    def look():
        for _ in range(90):
            time.sleep(0.2)

    worker = threading.Thread(target=look)
    worker.start()
    worker.join()


def library_polls_in_a_thread(_peer):
    """A thread whose code is all a library's."""
    planned = sched.scheduler()
    for number in range(90):
        planned.enter(0.2 * number, 0, int)
    worker = threading.Thread(target=planned.run)
    worker.start()
    worker.join()


def unknown_call(_peer):
    """`futex_waitv` with a moment at which it ends."""
    library = ctypes.CDLL(None)
    word = ctypes.c_uint32(0)
    waiter = struct.pack("QQII", 0, ctypes.addressof(word), 2, 0)
    seconds = time.clock_gettime(time.CLOCK_MONOTONIC) + LONG
    library.syscall(449, waiter, 1, 0, struct.pack("qq", int(seconds), 0), 1)


def watches_files(_peer):
    library = ctypes.CDLL(None)
    found = library.inotify_init()
    library.inotify_add_watch(found, tempfile.mkdtemp().encode(), 0xFFF)
    os.read(found, 4096)


def accepts(peer):
    """Whoever connects may be anybody, and the kernel shows no peer of it: this is no slow way that
    is seen.
    """
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(peer)
        served.listen()
        Path(f"{peer}.pid").write_text(str(os.getpid()))
        served.accept()


SLOW = {
    one.__name__: one
    for one in (
        timer, executor, pool, futures, scheduler, scheduler_in_a_thread, file_lock, record_lock, native_sleep,
        native_sleep_until, native_timer, timerfd, timerfd_in_epoll, timerfd_in_epoll_in_epoll, restarted_sleep,
        restarted_poll, server_outside, unix_server_outside, pipe_outside, alarm, interval_timer, posix_timer,
        signal_descriptor, awaited_signal, receive_timeout, send_timeout, event_loop, event_loop_in_a_thread, selects,
        condition, queue_timeout, socket_timeout, child_sleeps, pipe_of_a_child, child_sleeps_in_a_thread,
        child_polls_in_a_thread, polls_in_a_thread, library_polls_in_a_thread, unknown_call, watches_files,
    )
}  # fmt: skip


# --- hung
# ----------------------------------------------------------------------------------------------


def locks_crosswise(_context):
    """Two threads take two locks, each in its own order."""
    one, other = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def take(first, second):
        with first:
            both.wait()
            with second:
                pass

    worker = threading.Thread(target=take, args=(other, one))
    worker.start()
    take(one, other)


def empty_queue(_context):
    queue.Queue().get()


def silent_pipe(_context):
    read, _write = os.pipe()
    os.read(read, 1)


def full_pipe(_context):
    _read, write = os.pipe()
    while True:
        os.write(write, bytes(65536))


def unset_event(_context):
    threading.Event().wait()


def joined(_context):
    worker = threading.Thread(target=threading.Event().wait)
    worker.start()
    worker.join()


def future(_context):
    with concurrent.futures.ThreadPoolExecutor(1) as workers:
        workers.submit(workers.submit, int).result()
        inner = workers.submit(lambda: workers.submit(int).result())
        inner.result()


def loop_without_end(_context):
    async def work():
        await asyncio.get_running_loop().create_future()

    asyncio.run(work())


def own_lock(_context):
    lock = threading.Lock()
    with lock:
        lock.acquire()


def child_waits(_context):
    """A child waits for a word of its parent, which waits for its end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        os.waitpid(child.pid, 0)


def locked_file(_context):
    """A child waits for a lock of a file that its parent holds, who waits for the child."""
    with tempfile.NamedTemporaryFile() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        child = os.fork()
        if child == 0:
            with Path(file.name).open() as again:
                fcntl.flock(again, fcntl.LOCK_EX)
        os.waitpid(child, 0)


def own_connection(_context):
    """A connection over loopback, both of whose ends are the rank's."""
    listening = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listening.getsockname())
    theirs, _ = listening.accept()
    ours.recv(1)
    theirs.close()


def unaccepted(_context):
    """A connection to itself that nobody accepts."""
    listening = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(listening.getsockname()).recv(1)


def beside_a_heartbeat(context):
    """A deadlock, and a thread that beats twice a second."""
    stop = threading.Event()
    threading.Thread(target=heartbeat, args=(stop,), daemon=True).start()
    locks_crosswise(context)
    stop.set()


def heartbeat(stop):
    while not stop.wait(0.5):
        pass


def beside_a_slow_heartbeat(context):
    """A deadlock, and a thread that beats every five seconds."""
    threading.Thread(target=slow_heartbeat, args=(threading.Event(),), daemon=True).start()
    locks_crosswise(context)


def slow_heartbeat(stop):
    while not stop.wait(5.0):
        pass


def main_polls(_context):
    """The main thread asks whether a thread is done that never will be."""
    worker = threading.Thread(target=threading.Event().wait)
    worker.start()
    join_politely(worker)


def join_politely(worker):
    while worker.is_alive():
        worker.join(0.3)


HUNG = {
    one.__name__: one
    for one in (
        locks_crosswise, empty_queue, silent_pipe, full_pipe, unset_event, joined, future, loop_without_end, own_lock,
        child_waits, locked_file, own_connection, unaccepted, beside_a_heartbeat, beside_a_slow_heartbeat, main_polls,
    )
}  # fmt: skip


# --- loops
# ----------------------------------------------------------------------------------------------


def loops(context, *, way):
    """Both ranks loop."""
    LOOPS[way]()


def flag():
    done = threading.Event()
    while not done.is_set():
        pass


def flag_and_lock():
    lock = threading.Lock()
    count = 0
    done = False
    while not done:
        with lock:
            count += 1
            done = count < 0


def sleeps_in_between():
    while True:
        time.sleep(0.001)


def sleeps():
    time.sleep(LONG)


def phases():
    first_phase()
    second_phase()


def products():
    """Matrix products, which come to their end while they are watched."""
    import numpy as np

    array = np.ones((300, 300))
    end = time.monotonic() + 4.5
    while time.monotonic() < end:
        array = array @ array / 300.0


def first_phase():
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pass


def second_phase():
    while True:
        pass


LOOPS = {
    one.__name__: one for one in (flag, flag_and_lock, sleeps_in_between, sleeps, phases, products)
}
