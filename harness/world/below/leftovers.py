"""Leftovers of ranks: every process below this one, found and ended, and every file, removed.

Ranks may be hostile, or merely very busy. Processes are found that are stopped or have left their
session. Of files, nothing is followed, nothing recurses, and two folders are open at a time: a
folder inside a folder is moved up to the top before it is looked into, so neither a path nor a
stack grows with the depth of what is there. Remove files only when nobody is left who could put
something else in the place of what was looked at.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path

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
    """Return a descriptor from which something can be read once a child of this process has ended,
    stopped or gone on.
    """
    wakeup, alarm = os.pipe()
    # A full pipe must not block the signal handler, nor an empty one the reader.
    for descriptor in (wakeup, alarm):
        os.set_blocking(descriptor, False)
    # A handler that does nothing: a signal that is ignored writes nothing into the pipe.
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
        # One by one, never -1: another thread waits for its own children.
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


FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLACE_LIMIT = 200


def remove(path: Path) -> list[str]:
    """Remove what lies at a path, a folder with everything in it; nothing there is not an error.

    Returns:
        What would not go and why, in words; empty as a rule.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            if left := empty(path):
                return left
            path.rmdir()
        else:
            path.unlink()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [_why(path.name, error)]
    return []


def empty(folder: Path) -> list[str]:
    """Remove everything in a folder, but not the folder.

    Returns:
        What would not go and why, in words; empty as a rule.

    Raises:
        OSError: it is not there, or it is not a folder (a link to one is none).
    """
    top = _open(str(folder))
    try:
        return _Top(top).clear()
    finally:
        os.close(top)


class _Top:
    """Folder that is being emptied."""

    def __init__(self, descriptor: int) -> None:
        self._top = descriptor
        self._prefix = f".{secrets.token_hex(8)}-"
        self._moved = 0
        # What was moved up, by its name here: where it lay, for the words.
        self._places: dict[str, str] = {}
        self._stuck: dict[str, str] = {}

    def clear(self) -> list[str]:
        """Round after round, until nothing but what will not go is left."""
        while entries := [entry for entry in _entries(self._top) if entry[0] not in self._stuck]:
            for name, is_folder in entries:
                place = self._places.pop(name, name)
                if why := (
                    self._clear(name, place)
                    if is_folder
                    else _tried(os.unlink, name, self._top, place)
                ):
                    self._stuck[name] = why
        return list(self._stuck.values())

    def _clear(self, name: str, place: str) -> str:
        """Remove a folder of the top.

        A folder in it that is not empty is moved up and waits for its turn.
        """
        why = ""
        try:
            inner = _open(name, self._top)
        except OSError as error:
            return _why(place, error)
        try:
            for child, is_folder in _entries(inner):
                below = _joined(place, child)
                if not is_folder:
                    why = _tried(os.unlink, child, inner, below) or why
                elif _tried(os.rmdir, child, inner, below):
                    why = self._move_up(child, inner, below) or why
        finally:
            os.close(inner)
        return why or _tried(os.rmdir, name, self._top, place)

    def _move_up(self, child: str, inner: int, place: str) -> str:
        self._moved += 1
        name = f"{self._prefix}{self._moved}"
        try:
            # Its entry for the folder above changes too, which takes the right to write into it.
            os.chmod(child, 0o700, dir_fd=inner)
            os.rename(child, name, src_dir_fd=inner, dst_dir_fd=self._top)
        except OSError as error:
            return _why(place, error)
        self._places[name] = place
        return ""


def _entries(folder: int) -> list[tuple[str, bool]]:
    """Names in a folder, and whether each is a folder and not a link to one."""
    with os.scandir(folder) as listing:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]


def _open(name: str, above: int | None = None) -> int:
    """Open a folder, never through a link, and make sure that what is in it may be removed."""
    try:
        descriptor = os.open(name, FLAGS, dir_fd=above)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=above)
        descriptor = os.open(name, FLAGS, dir_fd=above)
    # Of somebody else: what cannot be removed in it says so itself.
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o700)
    return descriptor


def _tried(do: Callable[..., None], name: str, folder: int, place: str) -> str:
    """Why something could not be done to a name, or empty."""
    try:
        do(name, dir_fd=folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _why(place, error)
    return ""


def _joined(place: str, child: str) -> str:
    """Return the place of a child, in at most some hundred characters, however deep it lies."""
    whole = f"{place}/{child}"
    half = PLACE_LIMIT // 2
    return whole if len(whole) <= PLACE_LIMIT else f"{whole[:half]}...{whole[-half:]}"


def _why(place: str, error: OSError) -> str:
    """In plain characters: a name may hold anything."""
    return f"{ascii(place)[1:-1]}: {error.strerror}"
