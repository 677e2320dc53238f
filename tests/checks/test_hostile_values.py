"""A rank may report anything: no judgement raises by the values of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check
from harness.checks.equivalent import sizes_of
from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import (
    CODED,
    CODED_END,
    MACHINE_COLLECTED,
    MACHINE_CUT,
    MACHINE_ENDED,
    MACHINE_LOST,
    MACHINES_JOINED,
    History,
)

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
# No float holds the numbers, and no set can be asked for a list or a mapping.
HOSTILE: tuple[JSON, ...] = ([], {}, 10**400, -(10**400), True, None, "", [[]])
CALL: dict[str, JSON] = {
    "sequence": 1,
    "operation": "all_reduce",
    "other": 0,
    "reduction": "sum",
    "elements": 5,
    "dtype": "float32",
    "site": "try.py:7",
    "bytes": 20,
    "parts": ["ab" * 32],
    "first": {"part": 0, "index": 0, "got": "00" * 4},
}
ENVIRONMENT: dict[str, JSON] = {
    "at": "begin",
    "versions": {"python": "3.11.9"},
    "libraries": {},
    "variables": {"LANG": "C"},
    "threads": {"cores": 2},
    "numerics": {},
    "clock": {"offset": 1_700_000_000_000_000_000},
}
MACHINES: dict[str, JSON] = {"of": [0, 1], "called": ["a", "b"]}


def event(by: Any, name: str, values: dict[str, Any], rank: int | None = None) -> Event:
    """An event at a later moment than the one before it."""
    return Event(ns=1, by=by, name=name, rank=rank, values=values)


def of_two(name: str, values: dict[str, JSON]) -> list[Event]:
    """What both ranks of a world report."""
    return [event("rank", name, values, rank) for rank in range(2)]


WORLDS: dict[str, tuple[dict[str, Any], list[Event]]] = {
    "collective-correct": (
        {"kind": "collective-correct"},
        [*of_two(CODED, {"calls": [CALL]}), *of_two(CODED_END, {"calls": 1})],
    ),
    "environment-agrees": (
        {"kind": "environment-agrees"},
        of_two("rank.environment", ENVIRONMENT),
    ),
    "host-lost": (
        {"kind": "host-lost", "fault": "cut"},
        [
            event("harness", "world.begin", {"machines": MACHINES}),
            event("harness", MACHINES_JOINED, {"lease": 4.0, "after_failure": 2.0}),
            event("harness", MACHINE_CUT, {"fault": "cut", "machine": "b", "link": "down"}),
            event("harness", MACHINE_LOST, {"machine": "b", "why": "silence"}),
            event("harness", MACHINE_ENDED, {"machine": "b", "silent": 4.0}),
            event("harness", MACHINE_COLLECTED, {"machine": "b", "why": ""}),
            event("harness", "world.stopped", {"ranks": [0], "why": "lost"}),
            *(event("server", "rank.exited", {"signal": "SIGKILL"}, rank) for rank in range(2)),
        ],
    ),
    "survivors-end": (
        {"kind": "survivors-end", "fault": "cut", "limit": "1s"},
        [
            *of_two("rank.error", {"type": "OSError", "mro": ["OSError"], "message": "gone"}),
            *(event("server", "rank.exited", {"code": 1}, rank) for rank in range(2)),
            event("harness", "world.stopped", {"ranks": [0]}),
        ],
    ),
    "close": (
        {"kind": "close", "value": "score.loss", "against": 0, "atol": 1.0},
        of_two("score", {"loss": [1.0, 2]}),
    ),
    "at-most": ({"kind": "at-most", "value": "score.loss", "to": 2}, of_two("score", {"loss": 1})),
    "progress": (
        {"kind": "progress", "event": "step", "counter": "number", "limit": "1s"},
        [*of_two("subject.begin", {}), *of_two("step", {"number": 1}), *of_two("step", {})],
    ),
}


def replaced(value: JSON) -> Iterator[JSON]:
    """Every copy of a value in which one part of it is hostile."""
    yield from HOSTILE
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: other} for other in replaced(part))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in replaced(part))


@pytest.mark.parametrize("kind", WORLDS)
def test_no_check_raises_by_the_values_of_events(kind: str) -> None:
    """Whichever part of the evidence is of another type or too large, there is a finding."""
    given, events = WORLDS[kind]
    check = CHECK.validate_python({"id": "it", "ranks": "every", **given})
    for place, changed in enumerate(events):
        for values in replaced(dict(changed.values)):
            if isinstance(values, dict):
                hostile = [*events[:place], changed._replace(values=values), *events[place + 1 :]]
                assert check.judge(History(hostile, size=2)).check == "it"


@pytest.mark.parametrize("size", HOSTILE)
def test_a_defect_of_no_size_is_none(size: JSON) -> None:
    """The reference may call any size its own, and only a number that a float holds is one."""
    values = {"defect": 1, "size": size, "what": "a scale"}
    history = History([event("rank", "sensitivity", values, 0)], size=1)
    assert list(sizes_of(history)) == []
