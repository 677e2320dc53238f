"""How a control failed, as the events have it and not as the scenario states it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.events import Event
from harness.history import History
from harness.scenario import MustFail
from harness.stats.stated import StatedEnd, stated_ends
from tests.kit.histories import healthy
from tests.stats.test_hang import hung
from tests.stats.test_verdict import broken


def finding(*ranks: int, reason: str = "never said it") -> Finding:
    return Finding(
        check="ready",
        kind="event",
        ranks=[RankFinding(rank=one, passed=False, reason=reason) for one in ranks],
    )


def ends(
    stated: dict[str, Any], events: list[Event], *, size: int = 2, reason: str = "never said it"
) -> list[StatedEnd]:
    must_fail = MustFail.model_validate({"check": "ready", "ranks": "nonzero", **stated})
    return stated_ends(
        must_fail, [finding(*range(1, size), reason=reason)], History(events, size=size)
    )


@pytest.mark.parametrize("source", ["assert tokenizer", "assert vocabulary"])
def test_the_line_is_the_one_that_failed(source: str) -> None:
    """Where the scenario states a type and a message, the line comes from the rank's own error."""
    stated = {"error": "AssertionError", "message": "x"}
    assert ends(stated, broken(source=source)) == [StatedEnd("AssertionError", "at", source, (1,))]


def test_ranks_that_failed_in_one_way_are_told_together() -> None:
    """Two ways are two entries, each with its ranks.

    An error without a line is told by its message.
    """
    events = []
    for event in healthy(4):
        events.append(event)
        if event.name == "subject.begin" and event.rank:
            values = {
                "type": "KeyError" if event.rank == 2 else "AssertionError",
                "message": "gone",
                "source": "",
            }
            events.append(event._replace(name="rank.error", values=values))
    found = ends({"message": "gone"}, sorted(events, key=lambda event: event.ns), size=4)
    assert found == [
        StatedEnd("AssertionError", "saying", "gone", (1, 3)),
        StatedEnd("KeyError", "saying", "gone", (2,)),
    ]


def test_signals_codes_and_checks_alone() -> None:
    """How the process ended, where it raised nothing.

    And why the check does not hold, where no end is stated.
    """
    killed = [
        (
            event._replace(values={"code": None, "signal": "SIGSEGV"})
            if (event.rank, event.name) == (1, "rank.exited")
            else event
        )
        for event in healthy()
    ]
    assert ends({"signal": "SIGSEGV"}, killed) == [StatedEnd("SIGSEGV", "", "", (1,))]
    (alone,) = ends({}, killed, reason="was null")
    assert alone == StatedEnd("check `ready` failed", "because", "was null", (1,))


@pytest.mark.parametrize(
    ("place", "where"),
    [({"source": "recv()"}, "at"), ({"function": "recv"}, "in"), ({"after": "sent"}, "after")],
)
def test_hangs(place: dict[str, str], where: str) -> None:
    """A hang is told by the place at which it was proved."""
    must_fail = MustFail.model_validate({"hang": place, "ranks": "every"})
    assert stated_ends(must_fail, [], hung()) == [
        StatedEnd("hang", where, next(iter(place.values())), (0, 1))
    ]
