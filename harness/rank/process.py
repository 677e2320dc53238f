"""One process as the kernel knows it, and what a process asks of the kernel for itself.

Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from os import _exit
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PROC = Path("/proc")
# A flag of /proc/PID/stat: the kernel has begun to end this process.
PF_EXITING = 0x4
# Made once, before the fork: a `CDLL` is a class of its own, which costs a forked rank 30 pages.
_LIBRARY = ctypes.CDLL(None)


@dataclass(frozen=True)
class Process:
    """Process as the kernel lists it.

    `state` is the letter of ps: R, S, D, T (stopped), Z (zombie).
    """

    pid: int
    parent: int
    session: int
    name: str
    state: str


def die_with_parent(parent: int) -> None:
    """SIGKILL this process when its parent ends.

    For single-threaded parents: the signal follows the forking thread.
    """
    # The parent may have ended before the request, of which the kernel then says nothing.
    if prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        _exit(127)


def keep_private(*, private: bool) -> None:
    """Keep other processes of this user from looking into this one and taking its descriptors.

    Linux only, and root still may. With `private=False` they may again.
    """
    prctl(PR_SET_DUMPABLE, 0 if private else 1)


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process. False where the system has no such call (macOS)."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(_LIBRARY.prctl(option, value, 0, 0, 0) == 0)


def lives_on(pid: int) -> bool:
    """Return True if the kernel has not begun to end a process; False where that is not known.

    The kernel closes what a process had open after it marked the process as ending (PF_EXITING). So
    whoever finds a pipe closed and its process without the mark knows that the process itself
    closed it, however busy the machine is.
    """
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return False
    fields = text.rpartition(b")")[2].split()
    return fields[0] not in (b"Z", b"X") and not int(fields[6]) & PF_EXITING


def inspect(pid: int) -> Process | None:
    """Return a process as the kernel lists it, or None when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name may hold spaces and parentheses: the last one closes it.
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    state, parent, _group, session = rest.split()[:4]
    return Process(
        pid=pid,
        parent=int(parent),
        session=int(session),
        name=name.decode("utf-8", "backslashreplace"),
        state=state.decode("ascii"),
    )
