"""How long a strike lasted, and what came before, at and after it: the edges of every proof."""

from __future__ import annotations

import pytest

from harness.events import Event
from harness.faults.proof import first_after, lasted, next_of, said_between
from harness.history import History

SECOND = 10**9


def world() -> History:
    """A rank that speaks at 1, 2 and 3 s and ends at 4 s, beside one that speaks at 2.5 s."""
    events = [Event(ns=at * SECOND, by="rank", rank=0, pid=7, name=f"at-{at}", values={}) for at in (1, 2, 3)]
    events.append(Event(ns=5 * SECOND // 2, by="rank", rank=1, pid=8, name="other", values={}))
    code = {"code": 0, "signal": None}
    events.append(Event(ns=4 * SECOND, by="server", rank=0, pid=7, name="rank.exited", values=code))
    return History(sorted(events, key=lambda event: event.ns), size=2)


@pytest.mark.parametrize(("seconds", "is_enough"), [(0.999, True), (1.0, True), (1.001, False), (1000.0, False)])
def test_a_strike_lasted_for_as_long_as_was_asked(seconds: float, *, is_enough: bool) -> None:
    """Between 1 s and 2 s there is one second: just enough for one, and for nothing more."""
    history = world()
    start, end = history.said(0, "at-1")[0], history.said(0, "at-2")[0]
    assert lasted(start, end, seconds=seconds) is is_enough


def test_what_a_rank_says_at_either_end_is_not_between() -> None:
    """Only its own words strictly inside count, not those of another rank."""
    history = world()
    one, two, three = (history.said(0, f"at-{at}")[0] for at in (1, 2, 3))
    assert said_between(history, 0, one, three) == two
    assert said_between(history, 0, one, two) is None
    assert said_between(history, 0, two, three) is None


def test_what_is_next_is_of_that_rank_and_its_end_too() -> None:
    """After its last word comes the end that the kernel told; and nothing after that."""
    history = world()
    two, three = history.said(0, "at-2")[0], history.said(0, "at-3")[0]
    end = history.exit(0)
    assert end is not None
    assert next_of(history, 0, two) == three
    assert next_of(history, 0, three) == end
    assert next_of(history, 0, end) is None


def test_the_first_that_is_not_before_a_moment_may_be_at_it() -> None:
    """At the same nanosecond is after."""
    history = world()
    two, three = history.said(0, "at-2")[0], history.said(0, "at-3")[0]
    assert first_after([two, three], two) == two
    assert first_after([two], three) is None
