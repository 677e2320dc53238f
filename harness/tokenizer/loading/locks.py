"""Locks of a snapshot: one process fetches while others wait, and what is in use is not taken away.

A snapshot that is pruned, or replaced because it is damaged, first loses its name in one step.
Whoever builds from it looks afterwards whether the name still leads to the folder it began with:
then nothing was taken away meanwhile, on any file system. The shared lock beside it is only so that
pruning passes over what is in use, and saves the second try.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.forms.strict_json import strict_json
from harness.tokenizer.problem import CacheFailed, LockTimeout

# What file systems without locks answer (Lustre without -o flock, some NFS and FUSE).
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


@contextlib.contextmanager
def hold_lock(path: Path, *, what: str, seconds: float) -> Iterator[bool]:
    """Hold the lock at `path`; yields False where the file system has no locks.

    Args:
        path: the lock file; its folder exists.
        what: what is being fetched, for the message.
        seconds: how long to wait for another holder.

    Raises:
        LockTimeout: another process held it all the time; names its pid.
        CacheFailed: the lock file cannot be made.
    """
    holder = path.with_suffix(".holder")
    # A marker file instead of flock would outlive a killed holder and make everybody wait for a
    # dead process.
    lock = FileLock(path, timeout=seconds, poll_interval=0.02, fallback_to_soft=False)
    begun = time.monotonic()
    works = True
    try:
        lock.acquire()
    except Timeout:
        pid, words = _holder(holder)
        raise LockTimeout(
            f"{what} is being fetched by {words}; waited {time.monotonic() - begun:.1f} s for the"
            f" lock {path}",
            pid=pid,
        ) from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise CacheFailed(
                f"cannot lock {path}: {error.strerror}. Pass a writable folder as cache="
            ) from error
        works = False
    try:
        if works:
            _sign(holder)
        yield works
    finally:
        if works:
            with contextlib.suppress(OSError):
                holder.unlink()
            lock.release()


def _sign(holder: Path) -> None:
    """Leave word who holds the lock.

    Without it the message only says less, so no error is worth stopping for.
    """
    signed = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    draft = holder.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(signed), encoding="utf-8")
        draft.replace(holder)


def _holder(holder: Path) -> tuple[int | None, str]:
    try:
        signed = strict_json(holder.read_bytes())
        pid = int(signed["pid"])
        host = str(signed["host"])
        since = float(signed["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, "a process that did not record its pid"
    words = f"process {pid} on {host} for {max(0.0, time.time() - since):.0f} s"
    if host == socket.gethostname():
        words += _holder_state(pid)
    return pid, words


def _holder_state(pid: int) -> str:
    import psutil

    try:
        status = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return " (it has exited, but a process that it forked still holds the lock)"
    except psutil.Error:
        return ""
    if status == psutil.STATUS_STOPPED:
        return f" (it is stopped; continue it with kill -CONT {pid}, or end it)"
    return f" (it is {status})"


class Lease:
    """Holds a snapshot for as long as this object lives.

    Args:
        folder: of the snapshot's files.

    Raises:
        OSError: the folder is gone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # filelock has exclusive locks only; this one is shared, on the folder itself, so that a
        # read-only cache works.
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def holds(self) -> bool:
        """Tell whether the snapshot still is where it was, so that none of it was taken away."""
        begun = os.fstat(self._descriptor)
        try:
            now = self._folder.stat()
        except OSError:
            return False
        return (begun.st_dev, begun.st_ino) == (now.st_dev, now.st_ino)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Have a snapshot to oneself, to take it away; yields False where somebody is using it.

    Where the file system has no such locks it yields True: whoever builds from it finds out, and
    loads again.

    Raises:
        OSError: the folder is gone.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield free
    finally:
        os.close(descriptor)
