"""Subjects whose process ends in a way of its own."""

import atexit
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path


def exit_zero(context):
    """Leave with code 0 before the work is done."""
    sys.exit(0)


def exit_at_once(context):
    """Leave with code 0, past every handler."""
    os._exit(0)


def exit_with_text(context):
    """Leave with a text, as scripts do."""
    sys.exit("no weights")


def killed(context):
    """End as the kernel's OOM killer ends a process."""
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(context):
    """Read from address 0."""
    ctypes.string_at(0)


def abort(context):
    """End as a failed C++ assertion does."""
    os.abort()


def out_of_address_space(context):
    """Ask for more memory than a limit allows."""
    resource.setrlimit(
        resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[0], resource.RLIM_INFINITY)
    )
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), size + (64 << 20)))
    held = bytearray(1 << 30)
    context.emit("held", size=len(held))


def out_of_memory(context, group):
    """Rank 1 enters a control group with a memory limit and takes more."""
    if context.rank == 1:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 20)))


def no_exit(context):
    """Replace what ends a process."""
    os._exit = print
    sys.exit = print


def reaped_late(context):
    """End well while the process that waits for this one is stopped, for a second after this one is
    a zombie.
    """
    if context.rank == 1:
        script = (
            f"kill -STOP {os.getppid()}; echo; "
            f"until grep -q '^State:.Z' /proc/{os.getpid()}/status; do :; done; "
            f"sleep 1; kill -CONT {os.getppid()}"
        )
        helper = subprocess.Popen(
            ["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
        )
        helper.stdout.read(1)
    context.emit("there")


def closes_at_exit(context):
    """Close the channel when everything is said, and take a second to leave."""

    def leave():
        os.closerange(200, 4096)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            pass

    if context.rank == 1:
        atexit.register(leave)
    context.emit("there")


def closes_and_returns(context):
    """Close the channel, and end well without a word more."""
    context.emit("there")
    if context.rank == 1:
        os.closerange(200, 4096)
