"""Ranks that hang for good, and ranks that are only slow."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

LONG = 30.0


# --- hangs
# ----------------------------------------------------------------------------------------------


def branch_around_a_collective(context):
    """Rank 0 alone takes part in a reduction."""
    import torch
    import torch.distributed as dist

    if context.rank == 0:
        dist.all_reduce(torch.ones(4))
    context.group.barrier()
    dist.recv(torch.ones(4), src=1 - context.rank)


def missing_send(context):
    """Rank 1 waits for what rank 0, which is at the barrier already, never sends."""
    import torch
    import torch.distributed as dist

    if context.rank == 1:
        dist.recv(torch.ones(4), src=0)
    context.group.barrier()


def lock_across_fork(context):
    """A child inherits a lock that is held, and its parent waits for it."""
    lock = threading.Lock()
    with lock:
        child = os.fork()
        if child == 0:
            lock.acquire()
            os._exit(0)
    os.waitpid(child, 0)


def in_a_thread(context):
    """The main thread joins one that waits for ever."""
    worker = threading.Thread(target=_wait_for_ever)
    worker.start()
    worker.join()


def _wait_for_ever():
    threading.Event().wait()


def silent_socket(context):
    """A socket whose other end says nothing."""
    ours, theirs = socket.socketpair()
    ours.recv(1)
    theirs.close()


def ring_without_peer(context):
    """Rank 0 alone takes part in a reduction over the ring, whose thread asks its socket again and
    again.
    """
    import mlx.core as mx

    if context.rank == 0:
        mx.eval(mx.distributed.all_sum(mx.ones((4,)), group=context.group.native))
    threading.Event().wait()


def peer_is_gone(context):
    """Rank 0 raises, and rank 1 waits for a word of its child, which waits for rank 0."""
    if context.rank == 0:
        raise ValueError("rank 0 gives up")
    _wait_for_ever()


# --- only slow
# ----------------------------------------------------------------------------------------------


def computes(context):
    """Rank 1 computes, and rank 0 waits for it without a timeout."""
    if context.rank == 1:
        _compute()
    _wait_for_the_other(context)


def computes_in_a_thread(context):
    """A thread whose code is a library's computes."""
    if context.rank == 1:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            pool.submit(sum, range(2**40)).result()
    _wait_for_the_other(context)


def computes_natively(context):
    """MLX's own thread computes, and Python waits for it in `mx.eval`."""
    import mlx.core as mx

    if context.rank == 1:
        found = mx.random.normal((2500, 2500))
        for _ in range(200):
            found = found @ found / 100
        mx.eval(found)
    mx.eval(mx.distributed.all_sum(mx.ones((4,)), group=context.group.native))


def sleeps(context):
    """Rank 1 sleeps."""
    if context.rank == 1:
        time.sleep(LONG)
    _wait_for_the_other(context)


def polls(context):
    """Rank 1 looks again every fifth of a second."""
    while context.rank == 1:
        time.sleep(0.2)
    _wait_for_the_other(context)


def waits_with_a_timeout(context):
    """Rank 1 waits, but not for ever."""
    if context.rank == 1:
        threading.Event().wait(LONG)
    _wait_for_the_other(context)


def selects_with_a_timeout(context):
    """Rank 1 waits in select."""
    if context.rank == 1:
        select.select([], [], [], LONG)
    _wait_for_the_other(context)


def receives_with_a_timeout(context):
    """Rank 1 waits for a socket that has a timeout."""
    if context.rank == 1:
        ours, _theirs = socket.socketpair()
        ours.settimeout(LONG)
        ours.recv(1)
    _wait_for_the_other(context)


def sleeps_in_a_loop(context):
    """Rank 1 runs an event loop that has something to do later."""
    if context.rank == 1:
        asyncio.run(asyncio.sleep(LONG))
    _wait_for_the_other(context)


def waits_for_a_sleeping_child(context):
    """Rank 1 waits for a program that sleeps."""
    if context.rank == 1:
        subprocess.run(["sleep", str(LONG)], check=True)
    _wait_for_the_other(context)


def waits_for_a_computing_child(context):
    """Rank 1 waits for a program that computes."""
    if context.rank == 1:
        subprocess.run([sys.executable, "-c", "while True: pass"], check=True)
    _wait_for_the_other(context)


def waits_for_an_orphan(context):
    """Rank 1 waits for a pipe that a process holds which left its family."""
    if context.rank == 1:
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(LONG)
            os._exit(0)
        os.close(write)
        os.read(read, 1)
    _wait_for_the_other(context)


def waits_for_a_sleeping_thread(context):
    """Rank 1 joins a thread of the subject that sleeps."""
    if context.rank == 1:
        worker = threading.Thread(target=time.sleep, args=(LONG,), daemon=True)
        sleeper = threading.Thread(target=_sleep, daemon=True)
        sleeper.start()
        worker.start()
        sleeper.join()
    _wait_for_the_other(context)


def _sleep():
    time.sleep(LONG)


def talks(context):
    """Rank 1 emits an event now and then, and waits for ever in between."""
    while context.rank == 1:
        context.emit("still.here")
        ours, theirs = socket.socketpair()
        threading.Timer(0.3, theirs.send, [b"x"]).start()
        ours.recv(1)
    _wait_for_the_other(context)


def will_be_alarmed(context):
    """Rank 1 waits for a signal that comes by itself."""
    if context.rank == 1:
        signal.setitimer(signal.ITIMER_REAL, LONG)
        signal.pause()
    _wait_for_the_other(context)


def spins(context):
    """Both ranks ask a flag that nobody sets."""
    flag = threading.Event()
    while not flag.is_set():
        time.sleep(0.001)


def catches_nothing(context):
    """Rank 1 no longer answers when it is asked where it stands."""
    from harness.rank.lifecycle import STACK_SIGNAL

    if context.rank == 1:
        signal.signal(STACK_SIGNAL, signal.SIG_DFL)
    _wait_for_ever()


def _compute():
    total = 0
    while True:
        total += 1


def _wait_for_the_other(context):
    if context.backend == "gloo":
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(4))
    else:
        _wait_for_ever()
