"""Channel of a node to control: what control asks, what it is told, when the lease is over, and the
journal of what control may not hear.

Two threads beside the one that does things: one reads, answers heartbeats at once, and knows when
the lease is over; one writes. What happened in one world is on the machine's own disk until control
has it: a file of messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import re
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from os import _exit
from pathlib import Path
from typing import Any, Literal, TypedDict

from harness.world.machines.agent import HEAD, MOST_BYTES, MOST_JSON, cache, frame

# What waits to be sent, in bytes, before ranks have to wait too.
MOST_WAITING = 8 * 2**20
# How long the end of the lease may go unheeded: then this process ends, and its warden ends the
# rest.
HEEDED_WITHIN = 20.0


class PreparedRendezvous(TypedDict):
    """Rendezvous of a backend, as it travels.

    Attributes:
        ranks: of each rank, what its backend is told.
        env: of each rank, its variables.
        opened: what has to be open on which rank's machine.
    """

    ranks: list[Mapping[str, Any]]
    env: list[Mapping[str, str]]
    opened: list[dict[str, Any]]


class PlacedMachines(TypedDict):
    """Machines of a world, as they travel: see `harness.world.machines.roll.Placed`."""

    of: Sequence[int]
    called: Sequence[str]
    reached: Sequence[str]


class ShareOrder(TypedDict):
    """Order for one machine's share of a world.

    Attributes:
        ask: what it is for a node.
        world: mark of the world.
        launch: as `harness.world.machines.share.travels` gives it.
        code: digest of the arm's code.
        inputs: name to the digest of an input, and the name of its file.
        inside: kind of fault to the file in which it acts inside a rank, below Rankproof.
        machines: the machines of the world.
        rendezvous: what the backend prepared.
        port: leased for the subject's own use.
        until: seconds after which the machine ends its ranks, whatever control does.
        ranks: those on this machine.
        ports: how many ports its next world needs there.
    """

    ask: Literal["world"]
    world: str
    launch: dict[str, Any]
    code: str
    inputs: dict[str, tuple[str, str]]
    inside: dict[str, str]
    machines: PlacedMachines
    rendezvous: PreparedRendezvous
    port: int
    until: float
    ranks: list[int]
    ports: int


class Outbox:
    """Messages to control, in order; a thread writes them."""

    def __init__(self, writes: int) -> None:
        self._writes = writes
        self._waiting: list[bytes] = []
        self._bytes = 0
        # What waits, how much that is, and whether anybody reads: changed by whoever sends, by the
        # thread that writes, and by the inbox when control is gone.
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._write, daemon=True, name="outbox").start()

    def send(self, message: dict[str, Any], content: bytes = b"", *, first: bool = False) -> bytes:
        """Queue a message, `first` before all that wait; returns it as it goes."""
        data = frame(message, content)
        self.send_raw(data, first=first)
        return data

    def send_raw(self, data: bytes, *, first: bool = False) -> None:
        """Queue a message that is in its form already."""
        with self._changed:
            if not self._closed:
                self._waiting.insert(0 if first else len(self._waiting), data)
                self._bytes += len(data)
                self._changed.notify_all()

    def await_room(self) -> None:
        """Wait while too much waits, unless it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes < MOST_WAITING)

    def close(self) -> None:
        """Drop what waits: nobody reads any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._bytes = 0
            self._changed.notify_all()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                data = self._waiting.pop(0)
            left = memoryview(data)
            try:
                # Not under the lock: a full pipe must not hold those who send.
                while left:
                    left = left[os.write(self._writes, left) :]
            except OSError:
                self.close()
                return
            with self._changed:
                self._bytes = max(0, self._bytes - len(data))
                self._changed.notify_all()


class Inbox:
    """Requests of control, and whether it is still heard.

    Attributes:
        wake: readable when something waits.
        lost: why control counts as gone; empty while it is heard.
        heard: CLOCK_MONOTONIC seconds when something last came from it.
    """

    def __init__(self, reads: int, outbox: Outbox, *, lease: float) -> None:
        self._reads = reads
        self._outbox = outbox
        self._lease = lease
        self._asked: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
        self.wake, self._waker = os.pipe()
        os.set_blocking(self.wake, False)
        self.lost = ""
        self.heard = time.monotonic()
        self._waits = False
        self._heeded = threading.Event()
        threading.Thread(target=self._read, daemon=True, name="inbox").start()

    def take(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield what waits now; to be called when `wake` is readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        if self.lost:
            self._heeded.set()
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._asked.get_nowait()

    def await_some(self) -> None:
        """Wait until something waits, or control is gone."""
        select.select([self.wake], [], [])

    @contextlib.contextmanager
    def waits(self) -> Iterator[None]:
        """Around what takes long and may be left at any moment: when control is gone meanwhile,
        this process ends.
        """
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _read(self) -> None:
        try:
            while True:
                asked, content = self._message()
                if asked.get("ask") == "beat":
                    now = {"wall": time.time_ns(), "ns": time.monotonic_ns()}
                    self._outbox.send({"is": "beat", "echo": asked["ns"], **now}, first=True)
                else:
                    self._asked.put((asked, content))
                    os.write(self._waker, b".")
        except (EOFError, ValueError, KeyError, OSError) as error:
            self.lost = str(error)
        # First: who waits for room in the outbox would not heed the end.
        self._outbox.close()
        os.write(self._waker, b".")
        if self._waits or not self._heeded.wait(HEEDED_WITHIN):
            _exit(1)

    def _message(self) -> tuple[dict[str, Any], bytes]:
        words, size = HEAD.unpack(self._exactly(HEAD.size))
        if words > MOST_JSON or size > MOST_BYTES:
            raise EOFError("the data received is not a valid message")
        return json.loads(self._exactly(words)), self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            if not select.select([self._reads], [], [], self._lease)[0]:
                raise EOFError(
                    f"lease lost: nothing was received from the run for {self._lease:g} s"
                )
            part = os.read(self._reads, min(count - len(parts), 2**20))
            if not part:
                raise EOFError("the run closed the channel")
            parts += part
            self.heard = time.monotonic()
        return bytes(parts)


RUNS = "runs"
JOURNAL_NAME = re.compile(r"[0-9a-f]{8,64}")
# Nobody came for what is older, in seconds.
KEPT_FOR = 30 * 86400
MOST_JOURNAL = 2**30


class Journal:
    """Takes every message that a world sends up, in order.

    What cannot be written is not written, and that is said.

    Attributes:
        lacks: why it is not whole; empty where it is.
    """

    def __init__(self, run: str, world: str, *, machine: int) -> None:
        self.path = journal_path(run, world, machine=machine)
        self.lacks = ""
        self._bytes = 0
        self._descriptor = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
            # Until it is closed, however this process ends, nobody reads it.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.lacks = f"the journal cannot be opened: {error.strerror}"

    def add(self, message: bytes) -> None:
        """Append a message as it goes over the channel."""
        self._bytes += len(message)
        if self._descriptor < 0 or self.lacks:
            return
        if self._bytes > MOST_JOURNAL:
            self.lacks = f"the journal ends after {MOST_JOURNAL} bytes"
            return
        try:
            left = memoryview(message)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.lacks = f"the journal ends early: {error.strerror}"

    def close(self, *, keep: bool) -> None:
        """Close it; what control has is not kept."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if not keep:
            with contextlib.suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()


def journal_path(run: str, world: str, *, machine: int) -> Path:
    """Where the journal of a world lies; machines may have one home folder between them.

    Raises:
        ValueError: one of them is not what these are called.
    """
    if not JOURNAL_NAME.fullmatch(run) or not JOURNAL_NAME.fullmatch(world):
        raise ValueError("run and world names must consist of hexadecimal digits")
    return cache() / RUNS / run / f"{world}-{machine}"


def read_journal(path: Path, *, after: int) -> Iterator[bytes]:
    """Yield the messages whose number is greater.

    The last one, cut off while it was written, is not among them.
    """
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        while len(head := stream.read(HEAD.size)) == HEAD.size:
            words, size = HEAD.unpack(head)
            text = stream.read(words)
            content = stream.read(size)
            if len(text) != words or len(content) != size:
                return
            message: dict[str, Any] = json.loads(text)
            if message["n"] > after:
                yield head + text + content


def forget_journals() -> None:
    """Take away what nobody came for in a month."""
    with contextlib.suppress(OSError):
        for run in (cache() / RUNS).iterdir():
            for path in run.iterdir():
                if path.stat().st_mtime < time.time() - KEPT_FOR:
                    path.unlink()
            with contextlib.suppress(OSError):
                run.rmdir()
