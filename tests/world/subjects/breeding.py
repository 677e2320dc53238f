"""Subjects that leave processes behind."""

import os
import signal
import subprocess
import sys
import threading

WAIT = (
    "import sys, threading; sys.stdout.write('up'); sys.stdout.flush(); sys.stdout.close();"
    " threading.Event().wait()"
)


def _child():
    """Start a python that waits for ever, and return once it runs."""
    child = subprocess.Popen([sys.executable, "-S", "-c", WAIT], stdout=subprocess.PIPE)
    child.stdout.read(2)
    return child


def plain(context):
    """Leave a child."""
    if context.rank == 1:
        context.emit("child", pid=_child().pid)


def stopped(context):
    """Leave a child that is stopped."""
    if context.rank == 1:
        child = _child()
        child.send_signal(signal.SIGSTOP)
        context.emit("child", pid=child.pid)


def daemon(context):
    """Leave a grandchild with a session of its own, holding every descriptor of the rank."""
    if context.rank == 1:
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(write, b"%d" % os.getpid())
                threading.Event().wait()
            os._exit(0)
        context.emit("child", pid=int(os.read(read, 20)))


def writing_child(context):
    """Leave a child that writes to the event channel and the log for ever."""
    if context.rank == 1:
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            os.write(write, b"%d" % os.getpid())
            while True:
                os.write(1, b"noise\n" * 1000)
        context.emit("child", pid=int(os.read(read, 20)))


def returning_child(context):
    """Fork, and let the child come back into the rank's life while the rank dies."""
    if context.rank == 1:
        if os.fork() == 0:
            return
        os.wait()
        os.kill(os.getpid(), signal.SIGKILL)


def raising_child(context):
    """Fork, and let the child raise; the rank itself is well."""
    if context.rank == 1 and os.fork() == 0:
        raise RuntimeError("in the child")
    if context.rank == 1:
        os.wait()
