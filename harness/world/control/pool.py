"""Pool of a run: fork servers and ports, which its worlds take and give back.

Servers are started when first needed, and end with the run. A server has one world at a time,
because its worlds have the server's room: worlds side by side have servers of their own, one per
lane and environment. A lane runs its worlds one after the other with one server.

Ports are leased between the harnesses on one machine, from outside the range the system hands out
by itself. A lease is a file lock per port in a folder of the user's: it goes with the process that
holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, Self

from filelock import FileLock, Timeout

from harness.forms.digest import sha256
from harness.forms.process import started_apart
from harness.world.below.leftovers import adopt_orphans, extinguish_strangers
from harness.world.below.preload import EVERYTHING, Preload
from harness.world.control.rank_environment import server_environment
from harness.world.control.server_handle import ServerFailed, ServerHandle, ServerKey

# Pools that are open in this process, which adopts orphans as long as there is one.
_OPEN: set[int] = set()
# Held from the look at `_OPEN` until it is acted on: another thread may open or close a pool.
_CHANGING = threading.Lock()


class Pool(Protocol):
    """Where worlds have servers from, one world at a time: fork servers of this machine, or of
    several.
    """

    def take(
        self,
        *,
        warm: bool,
        env: Mapping[str, str],
        python: Path | None = None,
        shared_home: bool = False,
        preload: Preload = EVERYTHING,
    ) -> Any:
        """See `ServerPool.take`."""

    def give(self, server: Any) -> None:
        """See `ServerPool.give`."""

    def discard(self, server: Any) -> None:
        """See `ServerPool.discard`."""


class ServerPool:
    """Servers, taken for one world at a time; safe to use from several threads.

    Closing it leaves no process behind.

    Attributes:
        left: what servers' worlds left that could not be removed, in words.
    """

    def __init__(self, *, cancel: int | None = None) -> None:
        self._idle: dict[ServerKey, list[ServerHandle]] = {}
        self._living: set[ServerHandle] = set()
        self._started: list[ServerHandle] = []
        # Held while a server is made or ended: none is started that a pool that closes misses.
        self._lock = threading.Lock()
        self._cancel = cancel
        self._closed = False
        self.left: list[str] = []

    def __enter__(self) -> Self:
        with _CHANGING:
            _OPEN.add(id(self))
            # If a warden itself is killed, what it leaves comes to us instead of to init.
            adopt_orphans()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            self._idle.clear()
            for server in list(self._living):
                self._close(server)
        extinguish_strangers(known=started_apart)
        with _CHANGING:
            _OPEN.discard(id(self))
            # What is adopted from now on would be reaped by nobody.
            if not _OPEN:
                adopt_orphans(False)

    def take(
        self,
        *,
        warm: bool,
        env: Mapping[str, str],
        python: Path | None = None,
        shared_home: bool = False,
        preload: Preload = EVERYTHING,
    ) -> ServerHandle:
        """Take a server that nobody has, started if need be.

        Give it back with `give`, or `discard` it.

        Args:
            warm: whether it imports what ranks need first.
            env: the scenario's variables.
            python: the interpreter of an arm's own environment; None is the harness's own.
            shared_home: whether its ranks have the user's home and temporary folder instead of a
                room.
            preload: what a warm one imports first.

        Raises:
            OSError: a file of a kind cannot be read.
            ServerFailed: it does not start, or the pool is closed.
            Cancelled: the run was interrupted while the server started.
        """
        key = ServerKey(
            warm=warm,
            environment=tuple(
                sorted(server_environment(env, python=python, shared_home=shared_home).items())
            ),
            python=str(python or ""),
            shared_home=shared_home,
            modules=preload.modules if warm else (),
            files=tuple((str(file), sha256(file.read_bytes())) for file in preload.files),
        )
        with self._lock:
            if self._closed:
                raise ServerFailed(
                    "the fork servers were closed while worlds were still being requested"
                )
            while idle := self._idle.get(key):
                if not (server := idle.pop()).has_ended():
                    return server
                self._end(server)
            server = ServerHandle(key)
            self._living.add(server)
        try:
            server.await_ready(self._cancel)
        except BaseException:
            self.discard(server)
            raise
        self._started.append(server)
        return server

    def give(self, server: ServerHandle) -> None:
        """Give a server back. Nobody of its last world may be left."""
        with self._lock:
            if not self._closed:
                self._idle.setdefault(server.key, []).append(server)

    def discard(self, server: ServerHandle) -> None:
        """End a server that failed, and what it left behind; the next world gets a new one."""
        with self._lock:
            if server in self._living:
                self._end(server)

    def _end(self, server: ServerHandle) -> None:
        self._close(server)
        extinguish_strangers(known=started_apart)

    def _close(self, server: ServerHandle) -> None:
        server.close()
        self._living.discard(server)
        self.left += server.left

    @property
    def pids(self) -> tuple[int, ...]:
        """Pids of the servers that were started."""
        return tuple(server.pid for server in self._started)

    @property
    def seconds(self) -> float:
        """How long the servers took to get ready, in seconds, added up."""
        return sum(server.seconds for server in self._started)


def prepare(pool: Pool, lanes: int, **needs: Any) -> None:
    """Have a server ready for each of so many lanes, started side by side.

    Else as `ServerPool.take`.
    """
    with ThreadPoolExecutor(max_workers=lanes) as starters:
        taken = [starters.submit(pool.take, **needs) for _ in range(lanes)]
    for server in taken:
        if server.exception() is None:
            pool.give(server.result())
    for server in taken:
        server.result()


def is_linux() -> bool:
    """Return whether warm start is available: elsewhere a forked copy of a process that has
    imported torch is not safe.
    """
    return sys.platform.startswith("linux") and hasattr(os, "fork")


FIRST_PORT = 20_000
LAST_PORT = 29_999
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
        _own_folder(self._folder)
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
                f"{count} free ports are needed between {FIRST_PORT} and {LAST_PORT}, but only"
                f" {len(taken)} were found"
            )
        return taken

    def release(self) -> None:
        """Give back every port."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()


def _own_folder(folder: Path) -> None:
    """Make the folder. In a shared temporary folder somebody else may have put something in its
    place.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NoPort(
            f"{folder} must be a folder for port leases, but it is not a folder; remove it"
        )
    if status.st_uid != os.getuid():
        raise NoPort(
            f"{folder} belongs to user {status.st_uid}; remove it, or set TMPDIR to your own folder"
        )


def _candidates() -> range:
    """Our range, cut where it would meet the system's ephemeral range."""
    try:
        low, high = (int(word) for word in RANGE_FILE.read_text().split())
    except (OSError, ValueError):
        return range(FIRST_PORT, LAST_PORT + 1)
    if high < FIRST_PORT or low > LAST_PORT:
        return range(FIRST_PORT, LAST_PORT + 1)
    return range(10_000, min(low, FIRST_PORT)) if low > 10_000 else range(high + 1, 65_536)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
