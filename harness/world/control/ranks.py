"""Ranks of one world as the harness sees them: what is known of each, what the kernel counts of one
that lives, and its event channel: bytes in, events out, bounded whatever a subject writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from harness.events import Event, EventError, is_name
from harness.forms.strict_json import JSON, NotStrict, strict_json
from harness.rank.emit import LINE_LIMIT


@dataclass(kw_only=True)
class RankStates:
    """States of the ranks, as far as they are known.

    Attributes:
        size: world size.
        started: rank to pid, of those the keeper forked.
        begun: ranks that said `rank.begin`: from then on they can be asked for their stacks.
        finished: ranks whose subject returned.
        joined: ranks that have joined the group and wait at the start line, or have left it.
        exited: rank to the CLOCK_MONOTONIC nanoseconds of its end.
        lost: ranks on machines that were lost: whether they live, nobody here knows.
        wire: the process beside the ranks that joins their test hosts; None where there are none.
    """

    size: int
    started: dict[int, int] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)
    exited: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    wire: int | None = None

    def told(self, kind: str, rank: int, pid: int) -> None:
        """Take what the keeper says of a rank."""
        if kind == "started":
            self.started[rank] = pid

    def living(self) -> list[int]:
        """Ranks that were started and have not ended, as far as they are seen."""
        return [rank for rank in self.started if rank not in self.exited and rank not in self.lost]

    def is_over(self) -> bool:
        """Return whether every rank has ended that is seen."""
        return len(self.exited.keys() | self.lost) == self.size


def probe(pid: int) -> dict[str, JSON] | None:
    """Read a process' own memory, processor time and traffic; None where the system does not tell.

    Returns:
        `private_bytes` (pages that are this process' alone: what a warm rank shares with its server
        is not in it), `cpu_seconds` (user and system), `read_bytes` and `written_bytes` (all that
        went through read and write, pipes and caches included).
    """
    try:
        process = psutil.Process(pid)
        used = process.cpu_times()
        traffic = process.io_counters()
        return {
            "private_bytes": process.memory_full_info().uss,
            "cpu_seconds": round(used.user + used.system, 3),
            "read_bytes": traffic.read_chars,
            "written_bytes": traffic.write_chars,
        }
    except (psutil.Error, AttributeError):
        return None


BYTES_LIMIT = 2 * 1024 * 1024
EVENTS_LIMIT = 10_000
GARBAGE_LIMIT = 20
SAMPLE = 80
TOO_LONG = f"a line of more than {LINE_LIMIT} bytes"


class RankChannel:
    """Reads one rank's lines.

    A line that is not an event is evidence too: it becomes `channel.garbage`, emitted by the
    harness, and the trial fails, because what that rank reports cannot be trusted to be whole. The
    same for more than 2 MiB or 10,000 events.
    """

    def __init__(self, rank: int, *, not_before: int) -> None:
        self._rank = rank
        self.not_before = not_before
        # What its host's clock is ahead of ours, in nanoseconds. Of a test host we set it, so it is
        # exact.
        self.ahead = 0
        # Of another machine it is measured, and right to within so many nanoseconds.
        self.within = 0
        # When it had ended at the latest; None while it may still say something.
        self.not_after: int | None = None
        self._line = bytearray()
        self._skipping = False
        self._bytes = 0
        self._events = 0
        self._garbage = 0
        self._overflowed = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take what was read and yield the events in it, the rank's own and the harness' about the
        channel.

        What comes out depends on the bytes alone, not on how they were cut into pieces.
        """
        room = max(0, BYTES_LIMIT - self._bytes)
        self._bytes += len(data)
        *lines, rest = data[:room].split(b"\n")
        for part in lines:
            yield from self._end_line(part)
        if not self._overflowed and not self._skipping:
            self._line += rest
            if len(self._line) > LINE_LIMIT:
                yield from self._bad(TOO_LONG, self._line)
                self._skipping = True
                self._line.clear()
        if len(data) > room:
            yield from self._overflow()

    def close(self) -> Iterator[Event]:
        """Take the end of the channel: a line without its newline was cut off while it was
        written.
        """
        if self._line.strip() and not self._skipping and not self._overflowed:
            yield from self._bad("the last line was cut off", self._line)
        self._line.clear()

    def _end_line(self, part: bytes) -> Iterator[Event]:
        if self._overflowed:
            return
        if self._skipping:
            self._skipping = False
            return
        line = bytes(self._line + part)
        self._line.clear()
        if len(line) > LINE_LIMIT:
            yield from self._bad(TOO_LONG, line)
        elif line.strip():
            yield from self._parse(line)

    def _parse(self, line: bytes) -> Iterator[Event]:
        try:
            event = self._event(strict_json(line))
        except (EventError, NotStrict) as error:
            yield from self._bad(str(error), line)
            return
        self._events += 1
        if self._events > EVENTS_LIMIT:
            yield from self._overflow()
        else:
            yield event

    def _event(self, words: Any) -> Event:
        now = time.monotonic_ns() if self.not_after is None else self.not_after
        if not isinstance(words, dict) or not {"event"} <= set(words) <= {"event", "ns", "values"}:
            raise EventError(
                "an event line must be an object with event, and optionally ns and values"
            )
        name = words["event"]
        ns = words.get("ns", now)
        values = words.get("values", {})
        if not is_name(name):
            raise EventError("an event name must consist of lower-case words separated by dots")
        if not isinstance(values, dict):
            raise EventError("values must be an object")
        if not isinstance(ns, int) or isinstance(ns, bool):
            raise EventError("ns must be an integer")
        if "ns" in words:
            ns -= self.ahead
            if self.within and self.not_before - self.within <= ns <= now + self.within:
                ns = min(max(ns, self.not_before), now)
        if not self.not_before <= ns <= now:
            raise EventError("ns is outside the lifetime of the rank")
        return Event(ns=ns, by="rank", rank=self._rank, name=name, values=values)

    def _overflow(self) -> Iterator[Event]:
        if not self._overflowed:
            self._overflowed = True
            self._line.clear()
            yield self._about(
                "channel.overflow", limit_bytes=BYTES_LIMIT, limit_events=EVENTS_LIMIT
            )

    def _bad(self, why: str, line: bytes | bytearray) -> Iterator[Event]:
        self._garbage += 1
        if self._garbage <= GARBAGE_LIMIT:
            sample = bytes(line[:SAMPLE]).decode("utf-8", "backslashreplace")
            yield self._about("channel.garbage", why=why[:200], sample=sample)

    def _about(self, name: str, **values: Any) -> Event:
        return Event(
            ns=time.monotonic_ns(), by="harness", rank=self._rank, name=name, values=values
        )
