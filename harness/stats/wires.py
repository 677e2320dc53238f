"""The wires of one trial on test hosts: which rank was where, what passed between the hosts, and
what was done to it.

All of it as the wire and the process that forked the ranks say. What they say in another form is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.faults.link import COUNTED, STRUCK, UNDONE
from harness.forms.model import Model
from harness.history import History, Seen

TEXT_LIMIT = 60


def without_payload(history: History) -> Seen | None:
    """Return the first count of a fault on a wire that does not say how many packets carried new
    payload; None without one.
    """
    for seen in history.seen:
        values = seen.event.values
        if seen.event.name in (COUNTED, UNDONE) and "struck" in values and "payload" not in values:
            return seen
    return None


class ShownHost(Model):
    """A test host: what it is called, its address, and the ranks on it."""

    name: str
    address: str
    ranks: list[int]


class ShownLink(Model):
    """What one host sent another: packets, bytes, and packets that the other one's kernel did not
    take.
    """

    source: int
    target: int
    packets: int
    bytes: int
    lost: int


class ShownStrike(Model):
    """A fault in force on some links, each a source and a target, and how many of the packets there
    it was done to.

    Times are in ms since the trial began; `to_ms` is null where it lasted until the wire was asked
    for its counts.
    """

    fault: str
    rank: int
    links: list[list[int]]
    from_ms: float
    to_ms: float | None
    matched: int
    struck: int
    line: int


class Wires(Model):
    """The hosts, every link on which something was sent, and every strike; `line` is the one that
    tells the links.
    """

    hosts: list[ShownHost]
    links: list[ShownLink]
    strikes: list[ShownStrike]
    line: int | None


def wires(history: History) -> Wires | None:
    """Return what the events tell of them; None of a trial without test hosts."""
    made = history.served(None, "hosts.made")
    placed = history.about().get("hosts")
    told = made[0].event.values.get("hosts") if made else None
    if not isinstance(told, list) or not isinstance(placed, list):
        return None
    hosts = [
        ShownHost(
            name=_text(one, "name"),
            address=_text(one, "address"),
            ranks=[
                rank
                for rank, at in enumerate(placed[: history.size])
                if type(at) is int and at == number
            ],
        )
        for number, one in enumerate(told)
    ]
    carried = history.served(None, "wire.carried")
    listed = carried[0].event.values.get("links") if carried else None
    links = [
        ShownLink(
            source=one["source"],
            target=one["target"],
            **{key: _count(one, key) for key in ("packets", "bytes", "lost")},
        )
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and _is_link([one.get("source"), one.get("target")], len(hosts))
    ]
    strikes = [
        shown
        for rank in range(history.size)
        for seen in history.served(rank, STRUCK)
        if (shown := _strike(history, rank, seen, count=len(hosts))) is not None
    ]
    strikes.sort(key=lambda strike: strike.line)
    return Wires(
        hosts=hosts, links=links, strikes=strikes, line=carried[0].line if carried else None
    )


def _strike(history: History, rank: int, seen: Seen, *, count: int) -> ShownStrike | None:
    values = seen.event.values
    named = values.get("links")
    fault = values.get("fault")
    links = [link for link in (named if isinstance(named, list) else ()) if _is_link(link, count)]
    if not links or not isinstance(fault, str):
        return None

    def after(name: str) -> Seen | None:
        found = (
            one for one in history.served(rank, name) if one.event.values.get("fault") == fault
        )
        return next((one for one in found if one.line > seen.line), None)

    undone = after(UNDONE)
    counted = undone or after(COUNTED)
    numbers: Mapping[str, Any] = counted.event.values if counted is not None else {}

    def ms(ns: int) -> float:
        return round((ns - history.start_ns()) / 1e6, 1)

    return ShownStrike(
        fault=fault[:TEXT_LIMIT],
        rank=rank,
        links=links,
        from_ms=ms(seen.event.ns),
        to_ms=ms(undone.event.ns) if undone is not None else None,
        matched=_count(numbers, "matched"),
        struck=_count(numbers, "struck"),
        line=seen.line,
    )


def _is_link(value: Any, count: int) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(end) is int for end in value)
    return is_pair and value[0] != value[1] and all(0 <= end < count for end in value)


def _text(values: Any, key: str) -> str:
    return str(values.get(key))[:TEXT_LIMIT] if isinstance(values, dict) else ""


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if type(value) is int and value >= 0 else 0
