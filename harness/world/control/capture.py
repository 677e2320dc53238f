"""Capture of one world: its events, what its ranks printed, where they stood, how they say they
failed.

Where a rank stood is what Python's faulthandler wrote about every thread, read as frames. It names
a thread by its handle in the C library, and /proc by its number in the kernel. The handle points
to the thread's own record, which holds that number; where in the record is learned from the main
thread, whose number is the process'.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness.events import Event
from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import JSON, NotStrict, strict_json
from harness.rank.failure import FILE_NAME
from harness.rank.lifecycle import STACKS
from harness.world.control.names import Elsewhere, hide_home_in, shorten
from harness.world.control.ranks import RankStates
from harness.world.control.room import Room
from harness.world.control.waits import PROC, UnreadableProcess, memory

# Of a stream, its beginning and its end.
HEAD = TAIL = 128 * 1024
ERROR_LIMIT = 1024 * 1024
STACK_LIMIT = 256 * 1024
KEYS = {
    "ns",
    "type",
    "module",
    "message",
    "mro",
    "ours",
    "file",
    "line",
    "source",
    "frames",
    "causes",
}


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Everything a trial left: its events in order of time, and per rank what it printed and where
    it stood.

    Attributes:
        events: all of them, by whoever emitted them.
        logs: rank to the bytes it printed (bounded); ranks that printed nothing are absent.
        stacks: rank to the text of its threads' stacks, taken when its world was stopped.
        loaded: what ranks had loaded, by the sha256 that their events give in its place.
        services: what the services of the trial left, by name, those of a cell's excepted.
    """

    events: tuple[Event, ...]
    logs: Mapping[int, bytes]
    stacks: Mapping[int, bytes]
    loaded: Mapping[str, bytes] = field(default_factory=dict)
    services: Mapping[str, Capture] = field(default_factory=dict)


class Recorder:
    """Gathers them while the world lives, and makes them evidence when it is over.

    Attributes:
        logs: rank to what it printed.
        code: the folder that the ranks import from; names of files are told as from there.
        room: home and temporary folder of the ranks, told as those of a user; None where they are
            the user's own.
    """

    def __init__(self, *, size: int, code: Path, python: Path | None, given: object = None) -> None:
        """Begin.

        Args:
            size: world size.
            code: the folder of the arm's code.
            python: the interpreter of the ranks where it is not our own.
            given: arguments and variables of the ranks, as JSON.
        """
        self._given = given
        self.logs = {rank: Log() for rank in range(size)}
        self.code = code
        self.room: Room | None = None
        self._python = python
        self.events: list[Event] = []
        # Nanoseconds that the clock of a rank's test host is ahead of ours.
        self.ahead: dict[int, int] = {}
        # What is called otherwise on the machine of a rank, where that is another one.
        self.elsewhere: Mapping[int, Elsewhere] = {}
        self._stacks: dict[int, bytes] = {}

    def add(self, event: Event) -> None:
        """Add an event, by whoever emitted it."""
        self.events.append(event)

    def note(self, name: str, *, rank: int | None = None, **values: JSON) -> None:
        """Add an event of the harness, that happens now."""
        self.add(Event(ns=time.monotonic_ns(), by="harness", rank=rank, name=name, values=values))

    def failed(self, kind: str, error: Exception) -> None:
        """Add an error of the harness itself."""
        self.note("harness.error", type=kind, message=self.shortened(str(error))[:2000])

    def collect(self, scratch: Path, *, states: RankStates, begun: int, stacks: bool) -> None:
        """Take what the ranks left in their folders. To be called when all have ended.

        Args:
            scratch: the world's folder.
            states: what is known of the ranks.
            begun: CLOCK_MONOTONIC nanoseconds before which no rank can have said anything.
            stacks: whether they were asked where they stand.
        """
        for rank, log in self.logs.items():
            folder = scratch / f"rank-{rank}"
            if stacks and (text := read_stack(folder / STACKS)):
                self._stacks[rank] = self.shortened(
                    text.decode("utf-8", "replace"), rank=rank
                ).encode()
            if (error := read_error(folder)) is not None:
                if self.room and (models := missed(error, given=self._given, code=self.code)):
                    self.note(
                        "cache.missed",
                        rank=rank,
                        models=list[JSON](models),
                        in_home=is_below_home(),
                    )
                ns = error.pop("ns")
                last = states.exited.get(rank, time.monotonic_ns())
                if isinstance(ns, int):
                    ns -= self.ahead.get(rank, 0)
                in_time = isinstance(ns, int) and begun <= ns <= last
                self.add(
                    Event(
                        ns=ns if in_time else last,
                        by="rank",
                        rank=rank,
                        name="rank.error",
                        values=error,
                    )
                )
            if dropped := log.dropped():
                self.note("log.cut", rank=rank, bytes=log.total, dropped=dropped)

    def capture(self, states: RankStates) -> Capture:
        """All of it as evidence, without the names of this machine."""
        loaded: dict[str, bytes] = {}
        events = []
        for event in self.events:
            pid = states.started.get(event.rank) if event.rank is not None else None
            events.append(_apart(self._as_evidence(event, pid=pid), loaded))
        return Capture(
            events=tuple(sorted(events, key=lambda event: event.ns)),
            logs={
                rank: self._printed(log, rank=rank) for rank, log in self.logs.items() if log.total
            },
            stacks=self._stacks,
            loaded=loaded,
        )

    def shortened(self, text: str, *, rank: int | None = None) -> str:
        """Return a text, of a rank or of the harness, in which files are named as they are called
        on any machine.
        """
        if rank is not None and rank in self.elsewhere:
            return self.elsewhere[rank].shorten(text)
        return shorten(text, folder=self.code, python=self._python, room=self.room)

    def _as_evidence(self, event: Event, *, pid: int | None) -> Event:
        """Return an event with its rank's pid, where it does not say, and without the names of this
        machine and its user.
        """
        values = event.values
        if event.by == "rank":
            there = self.elsewhere.get(event.rank) if event.rank is not None else None
            if there is not None:
                values = {key: there.hide_home_in(value) for key, value in values.items()}
            else:
                values = hide_home_in(
                    dict(values), self.room.homes if self.room is not None else ()
                )
            if event.name == "rank.error":
                values = {**values, **self._in_words(values, rank=event.rank)}
        return event._replace(pid=pid if event.pid is None else event.pid, values=values)

    def _in_words(self, values: Mapping[str, JSON], *, rank: int | None) -> dict[str, JSON]:
        """Return what a failed rank says in words: text for readers, that no check looks at."""
        shortened: dict[str, JSON] = {}
        if isinstance(message := values.get("message"), str):
            shortened["message"] = self.shortened(message, rank=rank)
        if isinstance(causes := values.get("causes"), list):
            shortened["causes"] = [
                (
                    {**cause, "message": self.shortened(str(cause.get("message", "")), rank=rank)}
                    if isinstance(cause, dict)
                    else cause
                )
                for cause in causes
            ]
        return shortened

    def _printed(self, log: Log, *, rank: int) -> bytes:
        """Return what a rank printed; its tracebacks name files."""
        text = log.content().decode("utf-8", "surrogateescape")
        return self.shortened(text, rank=rank).encode("utf-8", "surrogateescape")


class Log:
    """Keeps the first and the last 128 KiB of a stream of bytes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        if (room := HEAD - len(self._head)) > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut rarely: a cut moves the whole tail.
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    def dropped(self) -> int:
        """How many bytes in the middle are not kept."""
        return max(0, self.total - HEAD - TAIL)

    def content(self) -> bytes:
        """Return the kept bytes, with a line that says what is missing."""
        if not self.dropped():
            return bytes(self._head + self._tail)
        note = f"\n[rankproof: {self.dropped()} bytes not kept]\n".encode()
        return bytes(self._head) + note + bytes(self._tail[-TAIL:])


def read_error(scratch: Path) -> dict[str, Any] | None:
    """How the rank says it failed, or None where it says nothing that can be read."""
    text = _read(scratch / FILE_NAME, limit=ERROR_LIMIT)
    if text is None:
        return None
    try:
        error = strict_json(text)
    except NotStrict:
        return None
    if not isinstance(error, dict) or set(error) != KEYS or not isinstance(error["type"], str):
        return None
    return error


def read_stack(path: Path) -> bytes | None:
    """Return the stacks a rank wrote, at most 256 KiB of them."""
    return _read(path, limit=STACK_LIMIT, cut=True)


def _read(path: Path, *, limit: int, cut: bool = False) -> bytes | None:
    """Read a regular file, never through a link and never one that blocks."""
    try:
        return read_regular(path, limit=limit, follow=False, cut=cut)
    except OSError:
        return None


def _apart(event: Event, loaded: dict[str, bytes]) -> Event:
    """Take what a rank had loaded out of its event, by its sha256: it is long, and most ranks of a
    run say the same.
    """
    if (event.by, event.name) != ("rank", "subject.loaded") or "packages" not in event.values:
        return event
    if not isinstance(event.values["packages"], dict):
        # Only what is kept may be named by its digest.
        return event._replace(values={**event.values, "packages": None})
    listing = json.dumps(
        event.values["packages"], ensure_ascii=True, allow_nan=False, sort_keys=True, indent=1
    )
    data = listing.encode("ascii") + b"\n"
    digest = sha256(data)
    loaded[digest] = data
    return event._replace(values={**event.values, "packages": digest})


# What huggingface_hub raises offline, as an error or as the cause of one, and what transformers
# makes of it.
OFFLINE_TYPES = frozenset({"LocalEntryNotFoundError", "OfflineModeIsEnabled"})
OFFLINE_WORDS = "couldn't find them in the cached files"
READ_LIMIT = 2**20
MODEL_PREFIX = "models--"


def missed(error: Mapping[str, Any], *, given: object, code: Path) -> list[str]:
    """Names of the models that the user's cache holds and that the failed subject speaks of.

    Empty as a rule.

    The error itself seldom names the model, so the name is looked for in what the subject was given
    too.

    Args:
        error: how the rank failed.
        given: arguments and variables of the ranks, as JSON.
        code: the folder that they import from.
    """
    causes = (
        [cause for cause in error["causes"] if isinstance(cause, dict)]
        if isinstance(error["causes"], list)
        else []
    )
    messages = [str(failure.get("message")) for failure in (error, *causes)]
    if (
        OFFLINE_TYPES.isdisjoint(str(failure.get("type")) for failure in (error, *causes))
        and OFFLINE_WORDS not in messages[0]
    ):
        return []
    if not (known := list(_models(users_cache()))):
        return []
    text = "\n".join([*messages, json.dumps(given), *_sources(code)])
    return [name for name in known if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", text)]


def users_cache() -> Path:
    """Where the user's own processes cache what they take from the hub."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HF_HOME") or Path(caches) / "huggingface").expanduser() / "hub"


def is_below_home() -> bool:
    """Return whether a rank with the user's own home folder finds that cache: it gets no variable
    of the user's.
    """
    return users_cache() == Path.home() / ".cache" / "huggingface" / "hub"


def _models(cache: Path) -> Iterator[str]:
    for folder in sorted(cache.glob(f"{MODEL_PREFIX}*")):
        if any((folder / "snapshots").glob("*/*")):
            yield folder.name.removeprefix(MODEL_PREFIX).replace("--", "/")


def _sources(code: Path) -> Iterable[str]:
    for path in sorted(code.rglob("*")):
        with suppress(OSError):  # a rank may have done anything to it
            if path.is_file() and path.stat().st_size <= READ_LIMIT:
                yield path.read_bytes().decode("utf-8", "replace")


THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[.*\])? \(most recent call first\):$"
)
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
# faulthandler itself writes at most 100 of each.
FRAMES_LIMIT = 100
THREADS_LIMIT = 100
RECORD_SIZE = 1024


class Frame(NamedTuple):
    """One call: the file as the interpreter knows it, the line it is at, the function."""

    file: str
    line: int
    function: str


class Stack(NamedTuple):
    """One Python thread, innermost frame first. `handle` is its pthread_t."""

    handle: int
    frames: tuple[Frame, ...]


def parse_stacks(text: str) -> list[Stack]:
    """Read what faulthandler wrote once. What is not part of a stack is passed over."""
    threads: list[tuple[int, list[Frame]]] = []
    for line in text.splitlines():
        if thread := THREAD.match(line):
            threads.append((int(thread[1], 16), []))
        elif (frame := FRAME.match(line)) and threads and len(threads[-1][1]) < FRAMES_LIMIT:
            threads[-1][1].append(Frame(frame[1], int(frame[2]), frame[3]))
    return [Stack(handle, tuple(frames)) for handle, frames in threads[:THREADS_LIMIT]]


def inside(frame: Frame, folder: Path) -> str | None:
    """Return the frame's file relative to a folder, or None where it lies outside of it."""
    root = os.path.realpath(folder) + os.sep
    file = os.path.realpath(frame.file)
    return file[len(root) :] if file.startswith(root) else None


def threads_of(pid: int, stacks: Sequence[Stack]) -> dict[int, int]:
    """Return the kernel's number of each thread by its handle.

    Raises:
        UnreadableProcess: the C library's records cannot be read, or hold no such number.
    """
    tids = {int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()}
    records = {stack.handle: memory(pid, stack.handle, RECORD_SIZE) for stack in stacks}
    for offset in range(0, RECORD_SIZE, 4):
        numbers = {
            handle: int.from_bytes(record[offset : offset + 4], "little")
            for handle, record in records.items()
        }
        values = list(numbers.values())
        if pid in values and len(set(values)) == len(values) and tids.issuperset(values):
            return numbers
    raise UnreadableProcess(f"cannot tell which threads of process {pid} these stacks belong to")
