"""Subjects that do not end by themselves."""

import os
import signal
import threading
import time


def stop_itself(context, rank=1):
    """One rank stops itself with SIGSTOP; the others wait for it."""
    if context.rank == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    context.group.barrier()


def stop_apart(context):
    """Rank 1 stops itself, and the other waits for nobody."""
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    waiting_for_nobody()


def missing_partner(context):
    """Rank 0 waits in a collective that rank 1 never joins."""
    if context.rank == 0:
        context.group.barrier()
    waiting_for_nobody()


def waiting_for_nobody():
    """Named, so that a stack shows it."""
    threading.Event().wait()


def deaf(context):
    """Ignore every polite signal and hang."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    waiting_for_nobody()


def endless_thread(context):
    """Return, and leave a thread that never ends."""
    threading.Thread(target=waiting_for_nobody, name="endless").start()


def busy(context):
    """Never let go of the interpreter."""
    while True:
        time.monotonic()


def one_raises(context, message="broken"):
    """Rank 1 raises, the others wait for it."""
    if context.rank == 1:
        raise RuntimeError(message)
    waiting_for_nobody()
