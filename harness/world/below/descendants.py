"""Every process below this one, found and ended: stopped ones, and those that left their session,
too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection

from harness.rank.process import PROC, Process, inspect, prctl

PR_SET_CHILD_SUBREAPER = 36
# Seconds after which to give up: a process the kernel itself holds cannot be ended.
WITHIN = 5.0


def adopt_orphans(adopt: bool = True) -> bool:
    """Make this process the parent of whatever its descendants leave behind, or no longer.

    False where the system cannot (macOS).
    """
    return prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def child_alarm() -> int:
    """A descriptor from which something can be read once a child of this process has ended, stopped
    or gone on.
    """
    wakeup, alarm = os.pipe()
    for descriptor in (wakeup, alarm):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    return wakeup


def processes() -> list[Process]:
    """Every process of the machine that this user may see."""
    if not PROC.joinpath("self", "stat").exists():
        return _processes_by_psutil()
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := inspect(pid)) is not None]


def _processes_by_psutil() -> list[Process]:
    import psutil

    letters = {psutil.STATUS_STOPPED: "T", psutil.STATUS_ZOMBIE: "Z"}
    listed = []
    for process in psutil.process_iter(["pid", "ppid", "name", "status"]):
        info = process.info
        try:
            session = os.getsid(info["pid"])
        except OSError:
            session = 0
        state = letters.get(info["status"], "S")
        listed.append(Process(info["pid"], info["ppid"] or 0, session, info["name"] or "", state))
    return listed


def descendants(*, spare: Collection[int] = ()) -> list[Process]:
    """Processes below this one, parents before children, without zombies and without the trees
    below `spare`.
    """
    children: defaultdict[int, list[Process]] = defaultdict(list)
    for process in processes():
        children[process.parent].append(process)
    below: list[Process] = []
    queue = [os.getpid()]
    while queue:
        for child in children[queue.pop()]:
            if child.pid in spare:
                continue
            queue.append(child.pid)
            if child.state not in "ZX":
                below.append(child)
    return below


def strangers(*, known: Callable[[], Collection[int]]) -> list[Process]:
    """Children of this process that it never started: orphans it adopted, zombies among them.

    A fork server has a session of its own, and a process can leave its session but never enter
    another: so a child in our own session is ours, started by whatever thread, and is not to be
    touched.

    Args:
        known: pids of children that were started in a session of their own.
    """
    me = os.getpid()
    session = os.getsid(0)
    children = [
        process
        for process in processes()
        if process.parent == me and process.session not in (session, 0)
    ]
    ours = known()  # asked last: it knows by now whoever was just started and found above
    return [child for child in children if child.pid not in ours]


def extinguish_strangers(*, known: Callable[[], Collection[int]]) -> None:
    """SIGKILL the orphans this process adopted and everything below them, and reap them.

    Spare its own children.
    """
    end = time.monotonic() + WITHIN
    pause = 0.001
    while (orphans := strangers(known=known)) and time.monotonic() < end:
        targets = {process.pid for process in orphans}
        for process in descendants():
            if process.parent in targets:  # parents come before children
                targets.add(process.pid)
        _kill(targets)
        for process in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def extinguish(*, spare: Collection[int] = ()) -> list[Process]:
    """SIGKILL every descendant of this process until none is left, and reap what becomes ours.

    For a process whose children are all its own to end: a fork server, a keeper, a warden.

    Args:
        spare: children that live on, with everything below them; with these, nothing is reaped.

    Returns:
        What would not go; empty as a rule.
    """
    end = time.monotonic() + WITHIN
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
