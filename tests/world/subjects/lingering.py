"""Ranks that go on after a long wait, by themselves or by somebody outside, and ranks that never
do.
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import fcntl
import logging.handlers
import mmap
import multiprocessing
import os
import queue
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

LONG = 18.0
LIBRARY = ctypes.CDLL(None)


def slow(context, *, way, peer=""):
    """Rank 1 is slow in one way; rank 0 waits for it."""
    if context.rank == 1:
        SLOW[way](peer)
    threading.Event().wait()


def native(source):
    """A thread in C, and `pthread_join`."""
    folder = tempfile.mkdtemp()
    with Path(f"{folder}/wait.c").open("w") as file:
        file.write(
            "#include <poll.h>\n#include <pthread.h>\n#include <time.h>\n#include <unistd.h>\n"
        )
        file.write("#include <sys/select.h>\n")
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


def native_short_sleeps(_peer):
    native("for (int i = 0; i < 180; i++) usleep(100000);")


def native_steps_of_sleep(_peer):
    native("struct timespec t = { 0, 700000000 }; for (int i = 0; i < 26; i++) nanosleep(&t, 0);")


def native_polls_of_nothing(_peer):
    native("for (int i = 0; i < 180; i++) poll(0, 0, 100);")


def native_selects_of_nothing(_peer):
    native(
        "for (int i = 0; i < 180; i++) { struct timeval t = { 0, 100000 }; select(0, 0, 0, 0,"
        " &t); }"
    )


def native_long_poll(_peer):
    native("poll(0, 0, 18000);")


def later(_peer):
    """A loop of asyncio that has something to do far ahead."""

    async def work():
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(LONG, done.set)
        await done.wait()

    asyncio.run(work())


def naps(_peer):
    """A loop of asyncio that sleeps again and again."""

    async def work():
        for _ in range(180):
            await asyncio.sleep(0.1)

    asyncio.run(work())


def naps_in_a_thread(_peer):
    worker = threading.Thread(target=naps, args=("",))
    worker.start()
    worker.join()


def pool_of_processes(_peer):
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.map(time.sleep, [LONG])


def grandchild(_peer):
    """A process below a child, which has left its session, writes to the pipe at last."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        time.sleep({LONG})\n"
        "        os.write(1, b'.')\n"
        "    os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.read(1)


def spawned_timer(_peer):
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", f"sleep {LONG:.0f}; :"], os.environ), 0)


def leaderless_child(_peer):
    """A child whose first thread has ended, so that it looks like a zombie, and whose other one
    sleeps.
    """
    source = (
        "#include <pthread.h>\n#include <unistd.h>\n"
        f"static void *work(void *given) {{ sleep({LONG:.0f}); _exit(0); return given; }}\n"
        "int main(void) { pthread_t it; pthread_create(&it, 0, work, 0); pthread_exit(0); }\n"
    )
    folder = tempfile.mkdtemp()
    Path(f"{folder}/child.c").write_text(source)
    subprocess.run(["cc", "-o", f"{folder}/child", f"{folder}/child.c", "-lpthread"], check=True)
    subprocess.run([f"{folder}/child"], check=True)


def stopped_child(_peer):
    """A child is stopped, and another resumes it later."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.kill(child.pid, signal.SIGSTOP)
    subprocess.Popen(
        [sys.executable, "-c", f"import os, time; time.sleep({LONG}); os.kill({child.pid}, 18)"]
    )
    child.wait()


def stopped_by_itself(_peer):
    """A child that nobody of the world resumes: somebody outside may."""
    child = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 19)"])
    child.wait()


def timed_semaphore(_peer):
    found = LIBRARY.semget(0, 1, 0o1600)
    LIBRARY.semtimedop(found, struct.pack("Hhh", 0, -1, 0), 1, struct.pack("qq", int(LONG), 0))
    LIBRARY.semctl(found, 0, 0)


def timed_message(_peer):
    name = b"/" + os.urandom(4).hex().encode()
    letters = LIBRARY.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None)
    LIBRARY.mq_unlink(name)
    until = struct.pack("qq", int(time.time() + LONG), 0)
    LIBRARY.mq_timedreceive(letters, bytes(8192), 8192, None, until)


def timed_signal(_peer):
    signal.sigtimedwait([signal.SIGUSR2], LONG)


def timed_futex(_peer):
    word = ctypes.c_uint32(0)
    LIBRARY.syscall(202, ctypes.byref(word), 0, 0, struct.pack("qq", int(LONG), 0), None, 0)


def timed_rings(entry):
    """A ring of io_uring with a timeout in it, and what waits for that by a system call of its
    own.
    """
    parameters = ctypes.create_string_buffer(120)
    ring = LIBRARY.syscall(425, 8, parameters)
    values = struct.unpack("=30I", parameters.raw)
    tail, array = values[11], values[16]
    requests = mmap.mmap(ring, array + 32, offset=0)
    entries = mmap.mmap(ring, 8 * 64, offset=0x10000000)
    span = ctypes.create_string_buffer(struct.pack("qq", int(LONG), 0))
    entries[:64] = struct.pack("=BBHiQQIIQ24x", 11, 0, 0, -1, 0, ctypes.addressof(span), 1, 0, 7)
    requests[array : array + 4] = struct.pack("=I", 0)
    requests[tail : tail + 4] = struct.pack("=I", 1)
    assert LIBRARY.syscall(426, ring, 1, 0, 0, None, 0) == 1
    entry(ring)


def ring_timeout(_peer):
    timed_rings(lambda ring: LIBRARY.syscall(426, ring, 0, 1, 1, None, 0))


def ring_in_epoll(_peer):
    def wait(ring):
        asked = select.epoll()
        asked.register(ring, select.EPOLLIN)
        asked.poll()

    timed_rings(wait)


def ring_in_poll(_peer):
    def wait(ring):
        asked = select.poll()
        asked.register(ring, select.POLLIN)
        asked.poll()

    timed_rings(wait)


def events_of_the_processor(_peer):
    """A counter of the kernel that runs over after some seconds of the processor's clock."""
    described = struct.pack("=IIQQQQQIIQ", 1, 112, 0, int(LONG * 1e9), 0, 0, 0, 1, 0, 0) + bytes(48)
    found = LIBRARY.syscall(298, described, -1, 0, -1, 0)
    assert found >= 0
    kept = mmap.mmap(found, 2 * mmap.PAGESIZE)
    asked = select.poll()
    asked.register(found, select.POLLIN)
    asked.poll()
    kept.close()


def datagram_answer(peer):
    """Asks a server outside by UDP, without a connection."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.sendto(b"?", ("127.0.0.1", int(peer)))
        asked.recvfrom(1)


def connected_datagram(peer):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("127.0.0.1", int(peer)))
        asked.send(b"?")
        asked.recv(1)


def unix_datagram(peer):
    """Asks a server outside by a datagram of its own abstract name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asked:
        asked.bind("")
        asked.sendto(b"?", peer)
        asked.recvfrom(1)


def abstract_server(peer):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(f"\0{peer}")
        asked.recv(1)


def many_paths(peer):
    """A connection by MPTCP, whose socket is in no table."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as asked:
        asked.connect(("127.0.0.1", int(peer)))
        asked.recv(1)


def sleeps_for_a_day(_peer):
    """Longer than the world lives, and nobody else could end it."""
    time.sleep(86400)


def sleeps_by_the_older_call(_peer):
    """The same by nanosleep, which libc does not use any more."""
    moment = struct.pack("qq", 86400, 0)
    LIBRARY.syscall(35 if os.uname().machine == "x86_64" else 101, moment, None)


def changed_routes(_peer):
    """Hears of changes of the network by netlink."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as asked:
        asked.bind((0, 1))
        # Tests beside this one change networks too, and after the first change this rank would wait
        # for nothing: a real hang.
        while True:
            asked.recv(1)


def slow_connection(_peer):
    """Connects to a server of its own that takes nobody any more: the kernel gives up after some
    tries.
    """
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    kept = []
    for _ in range(4):
        asked = socket.socket()
        asked.setsockopt(socket.IPPROTO_TCP, 7, 4)  # TCP_SYNCNT
        asked.settimeout(0.3)
        kept.append(asked)
        try:
            asked.connect(listening.getsockname())
        except TimeoutError:
            break
    last = socket.socket()
    last.setsockopt(socket.IPPROTO_TCP, 7, 3)
    last.connect(listening.getsockname())


def open_file_lock(peer):
    """A lock of the open file, which belongs to no process."""
    with Path(peer).open("r+") as file:
        fcntl.fcntl(file, 38, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))


def outside_ends(peer):
    """Waits for the end of a process outside."""
    asked = select.poll()
    asked.register(os.pidfd_open(int(peer)), select.POLLIN)
    asked.poll()


def hundred_threads(_peer):
    """A thread that asks again and again, and more others than stacks are shown of."""

    def look():
        done = threading.Event()
        for _ in range(60):
            done.wait(0.3)

    worker = threading.Thread(target=look)
    worker.start()
    for _ in range(110):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    worker.join()


SLOW = {
    one.__name__: one
    for one in (
        native_short_sleeps, native_steps_of_sleep, native_polls_of_nothing, native_selects_of_nothing,
        native_long_poll, later, naps, naps_in_a_thread, pool_of_processes, grandchild, spawned_timer,
        leaderless_child, stopped_child, stopped_by_itself, timed_semaphore, timed_message,
        timed_signal, timed_futex, ring_timeout, ring_in_epoll, ring_in_poll, events_of_the_processor,
        datagram_answer, connected_datagram, unix_datagram, abstract_server, many_paths, changed_routes,
        slow_connection, open_file_lock, outside_ends, hundred_threads, sleeps_for_a_day, sleeps_by_the_older_call,
    )
}  # fmt: skip


# --- slow, in a group of gloo
# ----------------------------------------------------------------------------------------


def timed_group(_context):
    """A collective of a group with a timeout, in which one rank alone takes part."""
    import torch
    import torch.distributed as dist

    group = dist.new_group(timeout=timedelta(seconds=LONG))
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4), group=group)
    threading.Event().wait()


def timed_barrier(_context):
    import torch.distributed as dist

    if dist.get_rank() == 0:
        dist.monitored_barrier(timeout=timedelta(seconds=LONG))
    threading.Event().wait()


def timed_store(_context):
    import torch.distributed as dist

    if dist.get_rank() == 0:
        dist.TCPStore("127.0.0.1", 0, 1, True).wait(["never"], timedelta(seconds=LONG))
    threading.Event().wait()


def tried_again(context):
    """A neighbour that asks for its word again and again, and gives up in the end."""
    if context.rank == 0:
        ours, _theirs = socket.socketpair()
        ours.settimeout(2.0)
        for _ in range(9):
            with contextlib.suppress(TimeoutError):
                ours.recv(1)
    threading.Event().wait()


# --- hung
# ----------------------------------------------------------------------------------------------


def other_collectives(_context):
    """One rank reduces, and the other one receives."""
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4))
    dist.recv(torch.ones(4), src=0)


def two_of_four(context):
    """Two ranks wait for each other, and the other two have come to their end."""
    import torch
    import torch.distributed as dist

    if context.rank < 2:
        dist.recv(torch.ones(4), src=1 - context.rank)


def asynchronous_work(_context):
    """The main thread waits for a reduction that a thread of the library makes."""
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4), async_op=True).wait()
    threading.Event().wait()


def hung(context, *, way):
    """Both ranks hang in one way, without a group."""
    HUNG[way](context)


def crosswise():
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


def beside_a_log(_context):
    logging.handlers.QueueListener(queue.SimpleQueue(), logging.NullHandler()).start()
    crosswise()


def beside_idle_pools(_context):
    threads = concurrent.futures.ThreadPoolExecutor(2)
    threads.submit(int).result()
    processes = multiprocessing.get_context("fork").Pool(1)
    processes.apply(int)
    crosswise()


def tasks_crosswise(_context):
    """Two tasks of a loop take two locks, each in its own order."""

    async def work():
        one, other = asyncio.Lock(), asyncio.Lock()
        both = asyncio.Barrier(2)

        async def take(first, second):
            async with first:
                await both.wait()
                async with second:
                    pass

        await asyncio.gather(take(one, other), take(other, one))

    asyncio.run(work())


def unread_child(_context):
    """A child whose words nobody reads, and its parent waits for its end."""
    code = "import os; os.write(1, bytes(1 << 20))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        os.waitpid(child.pid, 0)


def own_datagrams(_context):
    """A pair of sockets for datagrams, both of which the rank has."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.recv(1)
    theirs.close()


def unused_sockets(_context):
    """Sockets that were never joined to anything, beside a deadlock."""
    with socket.socket(), socket.socket(socket.AF_INET6), socket.socket(type=socket.SOCK_DGRAM):
        crosswise()


HUNG = {
    one.__name__: one
    for one in (
        beside_a_log, beside_idle_pools, tasks_crosswise, unread_child, own_datagrams, unused_sockets,
    )
}  # fmt: skip
