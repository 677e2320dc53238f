"""What `progress` says of ranks that move, pause, or only look as if they moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import History

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
MS = 1_000_000


def world(*steps: Sequence[tuple[int, Any]], end: int = 600, more: Sequence[Event] = ()) -> History:
    """For each rank its steps, as milliseconds and number.

    Every rank begins at 100 ms and ends at `end`.
    """
    events = [Event(ns=MS, by="harness", name="world.begin", values={"size": len(steps)}), *more]
    for rank, own in enumerate(steps):
        events.append(Event(ns=101 * MS, by="rank", name="subject.begin", rank=rank))
        events += [
            Event(ns=(1 + ms) * MS, by="rank", name="step", rank=rank, values={"number": value})
            for ms, value in own
        ]
        if not any(one.rank == rank and one.by == "server" for one in more):
            events.append(Event(ns=(1 + end) * MS, by="rank", name="subject.end", rank=rank))
            events.append(
                Event(
                    ns=(2 + end) * MS,
                    by="server",
                    name="rank.exited",
                    rank=rank,
                    values={"code": 0, "signal": None},
                )
            )
    events.append(Event(ns=99_999 * MS, by="harness", name="world.end"))
    return History(sorted(events, key=lambda event: event.ns), size=len(steps))


def judge(history: History, **options: Any) -> Finding:
    given = {
        "id": "it",
        "kind": "progress",
        "ranks": "every",
        "event": "step",
        "limit": "250ms",
        **options,
    }
    return CHECK.validate_python(given).judge(history)


STEADY = [(200, 1), (300, 2), (400, 3), (500, 4)]


def test_steady_ranks_pass_and_the_longest_pause_is_told() -> None:
    """Moves that follow each other in time pass, counted and with the longest pause."""
    found = judge(world(STEADY, STEADY), counter="number", at_least=4)
    assert found.passed
    assert found.ranks[0].observed == "4 steps, longest pause 0.100 s"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (
            [(200, 1), (600, 2)],
            "paused for 0.400 s (at most 0.25 s), since step.number 1 at 0.200 s",
        ),
        ([(400, 1), (500, 2)], "since subject.begin at 0.100 s"),
        ([(200, 1), (300, 2)], "since step.number 2 at 0.300 s"),
        ([], "since subject.begin at 0.100 s"),
        ([(200, 1), (300, 1), (400, 1), (500, 1)], "since step.number 1 at 0.200 s"),
        ([(200, 2), (300, 1), (400, 0), (500, 2)], "since step.number 2 at 0.200 s"),
        ([(200, True)], "is not a number"),
        ([(200, "1")], "is not a number"),
        ([(200, None)], "is not a number"),
    ],
    ids=[
        "between",
        "at the start",
        "at the end",
        "never",
        "repeats",
        "falls",
        "true",
        "text",
        "null",
    ],
)
def test_a_pause_fails_on_its_rank_alone(steps: list[tuple[int, Any]], words: str) -> None:
    """A pause too long, wherever it is, and a counter that only seems to move, fail on exactly that
    rank.
    """
    found = judge(world(STEADY, steps), counter="number")
    assert found.failed_ranks == (1,)
    assert words in found.ranks[1].reason


def test_who_is_behind_is_named() -> None:
    """Ranks that wait name the one that moved less often; that one names nobody."""
    waits = [(200, 1), (300, 2), (590, 3)]
    found = judge(world(waits, [(200, 1), (560, 2), (590, 3)], waits), counter="number")
    assert found.failed_ranks == (0, 1, 2)
    assert "behind it: rank 1" in found.ranks[0].reason
    assert "no rank is behind it" in found.ranks[1].reason


def test_where_it_stood_is_told_where_the_pause_lasted_until_it_was_stopped() -> None:
    """The line comes from the stacks that were taken at the stop, and only where they show this
    pause.
    """
    frames = [{"file": "subject.py", "line": 7, "function": "reduce", "subject": True}]
    asked = [
        Event(
            ns=9000 * MS,
            by="harness",
            name="rank.stack",
            rank=1,
            values={"threads": [{"frames": frames}]},
        ),
        Event(ns=9001 * MS, by="harness", name="world.stopped", values={"ranks": [1]}),
        Event(
            ns=9002 * MS,
            by="server",
            name="rank.exited",
            rank=1,
            values={"code": None, "signal": "SIGKILL"},
        ),
    ]
    found = judge(world(STEADY, [(200, 1)], more=asked), counter="number")
    assert found.ranks[1].reason.endswith("in reduce (subject.py:7)")
    # It paused once before as well: what the stacks show is another pause.
    found = judge(world(STEADY, [(200, 1), (600, 2)], more=asked), counter="number")
    assert "subject.py" not in found.ranks[1].reason


def test_a_rank_that_ends_early_does_not_pause_but_has_to_have_moved() -> None:
    """An error ends the clock; a rank that never moved before it, or too seldom, fails all the
    same.
    """
    error = Event(ns=250 * MS, by="rank", name="rank.error", rank=1, values={"type": "ValueError"})
    left = Event(
        ns=260 * MS, by="server", name="rank.exited", rank=1, values={"code": 1, "signal": None}
    )
    assert judge(world(STEADY, [(200, 1)], more=[error, left])).passed
    found = judge(world(STEADY, [], more=[error, left]))
    assert found.failed_ranks == (1,)
    assert found.ranks[1].missing
    assert judge(world(STEADY, [(200, 1)], more=[error, left]), at_least=2).failed_ranks == (1,)


def test_the_clock_starts_and_stops_where_the_scenario_says() -> None:
    """What comes before `from` and after `until` is not watched.

    Without a start nothing is proved.
    """
    idle = [(400, 1), (500, 2)]
    assert judge(world(STEADY, idle), **{"from": "step"}).passed
    assert judge(world(STEADY, idle), **{"from": "warm"}).failed_ranks == (0, 1)
    assert judge(world(STEADY, [(200, 1), (300, 2)]), until="step", **{"from": "step"}).passed


def test_the_line_that_shows_a_pause_is_the_one_that_ends_it() -> None:
    """So that whatever ended meanwhile, and may be why, is before it."""
    history = world(STEADY, [(200, 1), (600, 2)])
    line = judge(history).ranks[1].line
    assert line is not None
    assert history.seen[line - 1].event.values == {"number": 2}
