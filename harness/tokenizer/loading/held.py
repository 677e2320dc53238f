"""The lock of a snapshot: one process fetches, the others wait, and say for whom if it never ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.forms.strict_json import strict_json
from harness.tokenizer.loading.failure import CacheFailed, LockTimeout

# What file systems without locks answer (Lustre without -o flock, some NFS and FUSE).
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


@contextlib.contextmanager
def held(path: Path, *, what: str, seconds: float) -> Iterator[bool]:
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
    # A marker file instead of flock would outlive a killed holder and make everybody wait for a dead process.
    lock = FileLock(path, timeout=seconds, poll_interval=0.02, fallback_to_soft=False)
    begun = time.monotonic()
    works = True
    try:
        lock.acquire()
    except Timeout:
        pid, words = _holder(holder)
        raise LockTimeout(
            f"{what} is being fetched by {words}; waited {time.monotonic() - begun:.1f} s for the lock {path}", pid=pid
        ) from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise CacheFailed(
                f"cannot lock {path}: {error.strerror}. Pass cache= a folder that can be written"
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
    """Leave word who holds the lock; without it the message only says less, so no error is worth stopping for."""
    signed = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    draft = holder.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(signed), encoding="utf-8")
        draft.replace(holder)


def _holder(holder: Path) -> tuple[int | None, str]:
    try:
        signed = strict_json(holder.read_bytes())
        pid, host, since = int(signed["pid"]), str(signed["host"]), float(signed["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, "a process that did not leave its pid"
    words = f"process {pid} on {host} for {max(0.0, time.time() - since):.0f} s"
    if host == socket.gethostname():
        words += _state(pid)
    return pid, words


def _state(pid: int) -> str:
    import psutil

    try:
        status = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return " (it has ended: a process that it forked still holds the lock)"
    except psutil.Error:
        return ""
    if status == psutil.STATUS_STOPPED:
        return f" (it is stopped: continue it with kill -CONT {pid}, or end it)"
    return f" (it is {status})"
