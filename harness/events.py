"""Events: the one thing everything is judged by.

An event is one line of JSON. Ranks, the process that forked them and the harness emit events; a
trial's events are its whole evidence, in `events.jsonl`. Who said it (`by`), which rank and which
pid are written by the reader from the channel a line came through, never taken from the line, so
that a rank cannot speak for the server (rule 13).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Literal, NamedTuple, get_args

from harness.forms.strict_json import DEPTH_LIMIT, JSON, NotStrict, strict_json

Source = Literal["harness", "server", "rank"]

NAME = re.compile(r"[a-z][a-z0-9]*([._-][a-z0-9]+)*")
NAME_LIMIT = 100
KEYS = {"ns", "by", "rank", "pid", "name", "values"}
SOURCES = get_args(Source)
_in_order = itemgetter("ns", "by", "rank", "pid", "name", "values")
_NO_VALUES: Mapping[str, JSON] = {}


class EventError(ValueError):
    """Raised for a line that is not an event; the message says why."""


class Event(NamedTuple):
    """Something that happened at a moment, on a rank or to the whole world.

    Attributes:
        ns: CLOCK_MONOTONIC in nanoseconds, comparable between the processes of one machine.
        by: who evidences it: `rank` is the subject's own process, `server` the process that forked
            it.
        rank: the rank it is about, or None where it is about the world.
        pid: operating-system process of that rank, as the server forked it.
        name: dotted lower-case name, such as `tokenizer.ready`.
        values: JSON object. Nobody changes it: equal lines may share one.
    """

    ns: int
    by: Source
    name: str
    rank: int | None = None
    pid: int | None = None
    values: Mapping[str, JSON] = _NO_VALUES

    def line(self) -> str:
        """Return the event as one line of ASCII JSON, without a newline.

        ASCII, because evidence is read in terminals: control and bidi characters of a subject's
        text stay escapes.
        """
        return json.dumps(
            {
                "ns": self.ns,
                "by": self.by,
                "rank": self.rank,
                "pid": self.pid,
                "name": self.name,
                "values": self.values,
            },
            ensure_ascii=True,
            allow_nan=False,
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, line: str | bytes) -> Event:
        """Read back what `line` wrote.

        Raises:
            EventError: the line is not exactly an event (unknown or missing key, wrong type,
                duplicate key, NaN).
        """
        try:
            found = strict_json(line)
        except NotStrict as error:
            raise EventError(str(error)) from None
        if not isinstance(found, dict) or found.keys() != KEYS:
            raise EventError("not an event: the keys must be ns, by, rank, pid, name and values")
        ns, by, rank, pid, name, values = _in_order(found)
        # By `type`, because true is an int to isinstance.
        if type(ns) is not int:
            raise EventError('not an event: "ns" must be an integer')
        if type(rank) is not int and rank is not None:
            raise EventError('not an event: "rank" must be an integer')
        if type(pid) is not int and pid is not None:
            raise EventError('not an event: "pid" must be an integer')
        if by not in SOURCES:
            raise EventError('not an event: "by" must be harness, server or rank')
        if not is_name(name):
            raise EventError(
                'not an event: "name" must consist of lower-case words separated by dots'
            )
        if not isinstance(values, dict):
            raise EventError('not an event: "values" must be an object')
        return cls(ns=ns, by=by, rank=rank, pid=pid, name=name, values=values)


def parse_lines(text: bytes) -> list[Event]:
    """Read back lines that `Event.line` wrote, each with the newline behind it.

    Raises:
        EventError: as for `Event.parse`; the message names the line, counted from 1.
    """
    if (usual := _as_written(text)) is not None:
        return usual
    events = []
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        try:
            events.append(Event.parse(line))
        except EventError as error:
            raise EventError(f"line {number}: {error}") from None
    if text and not text.endswith(b"\n"):
        raise EventError("the last line is cut off")
    return events


# A whole line in the form that `Event.line` writes: strict JSON with each key once, if the values
# are.
_WRITTEN = re.compile(
    r'^\{"ns":(0|[1-9][0-9]{0,18}),"by":"(harness|server|rank)","rank":(null|0|[1-9][0-9]{0,8}),'
    r'"pid":(null|0|[1-9][0-9]{0,8}),"name":"([a-z0-9._-]{1,100})","values":(\{.*\})\}\n',
    re.MULTILINE,
)
# Trials of one scenario say the same things at other times. Short ones only, so that no record can
# fill the memory.
SHORT = 512


def _as_written(text: bytes) -> list[Event] | None:
    """Read events whose every line has the form that `Event.line` writes; else None.

    A third of the time of `Event.parse`.

    It refuses nothing, so that there is one place with reasons: where it sees any fault it says
    None.
    """
    try:
        rows = _WRITTEN.findall(text.decode("utf-8"))
        # Every match is one whole line: it begins one, ends with its newline, and holds no other.
        if len(rows) != text.count(b"\n") or not text.endswith(b"\n"):
            return None
        events = []
        for ns, by, rank, pid, name, inner in rows:
            values = _short_values(inner) if len(inner) <= SHORT else _values(inner)
            if values is None or not _is_dotted(name):
                return None
            events.append(Event(int(ns), by, name, _integer(rank), _integer(pid), values))
    except ValueError:
        return None
    return events


def _values(text: str) -> dict[str, JSON] | None:
    """Strict JSON that lies one layer deep; None where it may be nested too deep there."""
    return None if text.count("[") + text.count("{") >= DEPTH_LIMIT else strict_json(text)


_short_values = lru_cache(maxsize=4096)(_values)


@lru_cache(maxsize=1024)
def _integer(word: str) -> int | None:
    return None if word == "null" else int(word)


def is_name(text: object) -> bool:
    """Tell whether `text` can name an event: dotted lower-case words, at most 100 characters."""
    return isinstance(text, str) and len(text) <= NAME_LIMIT and _is_dotted(text)


@lru_cache(maxsize=1024)
def _is_dotted(text: str) -> bool:
    return NAME.fullmatch(text) is not None
