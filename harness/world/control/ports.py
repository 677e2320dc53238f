"""Ports leased between harnesses on one machine, from outside the range the system hands out by
itself.

A lease is a file lock per port in a folder of the user's: it goes with the process that holds it,
however that ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

FIRST = 20_000
LAST = 29_999
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoPort(OSError):
    """No port could be leased: an error of the harness, never the subject's."""


class PortLease(contextlib.AbstractContextManager["PortLease"]):
    """Leases ports of loopback; give them back with `release` or by leaving the `with` block."""

    def __init__(self, *, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"rankproof-ports-{os.getuid()}"
        self._locks: dict[int, FileLock] = {}

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self, count: int) -> list[int]:
        """Lease `count` ports that nobody listens on and no other harness holds.

        Raises:
            NoPort: the range has not as many left, or the folder of the leases is not ours.
        """
        _own(self._folder)
        taken: list[int] = []
        ports = _candidates()
        # A random start keeps two harnesses that begin together from walking the same ports in
        # step.
        start = secrets.randbelow(len(ports))
        for port in (*ports[start:], *ports[:start]):
            if len(taken) == count:
                break
            if port in self._locks:
                continue
            lock = FileLock(self._folder / f"{port}.lock", blocking=False)
            with contextlib.suppress(Timeout):
                lock.acquire()
                if _is_free(port):
                    self._locks[port] = lock
                    taken.append(port)
                else:
                    lock.release()
        if len(taken) < count:
            raise NoPort(
                f"{count} free ports are needed between {FIRST} and {LAST}, found {len(taken)}"
            )
        return taken

    def release(self) -> None:
        """Give back every port."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()


def _own(folder: Path) -> None:
    """Make the folder. In a shared temporary folder somebody else may have put something in its
    place.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NoPort(
            f"{folder} must be a folder, for the leases of ports, and is something else: remove it"
        )
    if status.st_uid != os.getuid():
        raise NoPort(
            f"{folder} belongs to user {status.st_uid}: remove it, or set TMPDIR to a folder of"
            " your own"
        )


def _candidates() -> range:
    """Our range, cut where it would meet the system's ephemeral range."""
    try:
        low, high = (int(word) for word in RANGE_FILE.read_text().split())
    except (OSError, ValueError):
        return range(FIRST, LAST + 1)
    if high < FIRST or low > LAST:
        return range(FIRST, LAST + 1)
    return range(10_000, min(low, FIRST)) if low > 10_000 else range(high + 1, 65_536)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
