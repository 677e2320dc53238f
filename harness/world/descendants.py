"""Every process below this one, found and ended: stopped ones, and those that left their session, too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from os import _exit
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process as the kernel lists it. `state` is the letter of ps: R, S, D, T (stopped), Z (zombie)."""

    pid: int
    parent: int
    session: int
    name: str
    state: str


def adopt_orphans() -> bool:
    """Make this process the parent of whatever its descendants leave behind. False where the system cannot (macOS)."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL this process when its parent ends. For single-threaded parents: the signal follows the forking thread."""
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        _exit(127)


def keep_private(*, private: bool) -> None:
    """Whether other processes of this user may look into this one and take its descriptors (Linux; root still may)."""
    _prctl(PR_SET_DUMPABLE, 0 if private else 1)


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def processes() -> list[Process]:
    """Every process of the machine that this user may see."""
    if not PROC.joinpath("self", "stat").exists():
        return _processes_by_psutil()
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [found for pid in pids if (found := inspect(pid)) is not None]


def inspect(pid: int) -> Process | None:
    """One process, or None when it is gone."""
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


def _processes_by_psutil() -> list[Process]:
    import psutil

    letters = {psutil.STATUS_STOPPED: "T", psutil.STATUS_ZOMBIE: "Z"}
    found = []
    for process in psutil.process_iter(["pid", "ppid", "name", "status"]):
        info = process.info
        try:
            session = os.getsid(info["pid"])
        except OSError:
            session = 0
        state = letters.get(info["status"], "S")
        found.append(Process(info["pid"], info["ppid"] or 0, session, info["name"] or "", state))
    return found


def descendants(*, spare: Collection[int] = ()) -> list[Process]:
    """Processes below this one, parents before children, without zombies and without the trees below `spare`."""
    children: defaultdict[int, list[Process]] = defaultdict(list)
    for process in processes():
        children[process.parent].append(process)
    found: list[Process] = []
    queue = [os.getpid()]
    while queue:
        for child in children[queue.pop()]:
            if child.pid in spare:
                continue
            queue.append(child.pid)
            if child.state not in "ZX":
                found.append(child)
    return found


def strangers(*, known: Collection[int]) -> list[Process]:
    """Children of this process that it never started: orphans it adopted, zombies among them.

    A fork server has a session of its own, and a process can leave its session but never enter another: so a child
    in our own session is ours, started by whatever thread, and is not to be touched.

    Args:
        known: pids of children that were started in a session of their own.
    """
    me, session = os.getpid(), os.getsid(0)
    return [
        child
        for child in processes()
        if child.parent == me and child.session not in (session, 0) and child.pid not in known
    ]


def extinguish_strangers(*, known: Collection[int], within: float = 5.0) -> None:
    """SIGKILL the orphans this process adopted and everything below them, and reap them; spare its own children."""
    end = time.monotonic() + within
    pause = 0.001
    while (found := strangers(known=known)) and time.monotonic() < end:
        targets = {process.pid for process in found}
        for process in descendants():
            if process.parent in targets:  # parents come before children
                targets.add(process.pid)
        _kill(targets)
        for process in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def extinguish(*, spare: Collection[int] = (), within: float = 5.0) -> list[Process]:
    """SIGKILL every descendant of this process until none is left, and reap what becomes ours.

    For a process whose children are all its own to end: a fork server, a keeper, a warden.

    Args:
        spare: children that live on, with everything below them; with these, nothing is reaped.
        within: seconds after which to give up (a process the kernel itself holds cannot be ended).

    Returns:
        What would not go; empty as a rule.
    """
    end = time.monotonic() + within
    pause = 0.001
    while True:
        left = descendants(spare=spare)
        _kill({process.pid for process in left})
        if not spare:
            _reap()
        if not left or time.monotonic() > end:
            return left
        # Children of a killed process are adopted asynchronously; look again, at first at once.
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        # A set-uid child is not ours to end; one that is gone needs no end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
