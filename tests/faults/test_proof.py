"""How long a strike lasted, and what came before, at and after it: the edges of every proof."""

from __future__ import annotations

import pytest

from harness.events import Event
from harness.faults.proof import (
    STRUCK,
    Landing,
    Proof,
    after,
    first_after,
    landing,
    lasted,
    missed,
    next_of,
    said_between,
)
from harness.history import History

SECOND = 10**9


def world() -> History:
    """A rank that speaks at 1, 2 and 3 s and ends at 4 s, beside one that speaks at 2.5 s."""
    events = [
        Event(ns=at * SECOND, by="rank", rank=0, pid=7, name=f"at-{at}", values={})
        for at in (1, 2, 3)
    ]
    events.append(Event(ns=5 * SECOND // 2, by="rank", rank=1, pid=8, name="other", values={}))
    code = {"code": 0, "signal": None}
    events.append(Event(ns=4 * SECOND, by="server", rank=0, pid=7, name="rank.exited", values=code))
    return History(sorted(events, key=lambda event: event.ns), size=2)


@pytest.mark.parametrize(
    ("seconds", "is_enough"), [(0.999, True), (1.0, True), (1.001, False), (1000.0, False)]
)
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


def told(ns: int, by: str, name: str, rank: int | None = 0, **values: object) -> Event:
    return Event(ns=ns, by=by, rank=rank, pid=7, name=name, values=values)  # type: ignore[arg-type]


def history(*events: Event) -> History:
    return History(events, size=2)


ERROR = told(1, "rank", "rank.error", type="KeyError")
EXIT = told(3, "server", "rank.exited", code=1, signal=None)
STOPPED = told(2, "harness", "world.stopped", None, ranks=[0])


@pytest.mark.parametrize(
    ("events", "how", "lines"),
    [
        ([ERROR, EXIT], "it raised KeyError before", (1,)),
        ([ERROR, STOPPED, EXIT], "it raised KeyError before", (1,)),
        ([STOPPED, EXIT], "until it was stopped", (1,)),
        ([EXIT], "it had ended with code 1", (1,)),
        (
            [told(2, "harness", "world.stopped", None, ranks=[1]), EXIT],
            "it had ended with code 1",
            (2,),
        ),
        (
            [told(2, "harness", "world.stopped", None, ranks="0"), EXIT],
            "it had ended with code 1",
            (2,),
        ),
        ([told(2, "harness", "world.stopped", None), EXIT], "it had ended with code 1", (2,)),
        ([], "its exit was not observed", ()),
    ],
)
def test_why_a_fault_could_not_land(events: list[Event], how: str, lines: tuple[int, ...]) -> None:
    """What the rank raised, else that it was stopped, else how it ended.

    And in which line that stands.
    """
    found = missed(history(*events), rank=0, what="nobody came")
    assert (found.proved, found.overtaken, found.lines) == (False, True, lines)
    assert found.description.startswith("nobody came: ")
    assert how in found.description


def test_a_rank_that_returned_had_its_chance() -> None:
    """It is not overtaken: the fault came too late for it."""
    found = missed(history(told(1, "rank", "subject.end"), EXIT), rank=0, what="nobody came")
    assert (found.description, found.lines, found.overtaken) == (
        "nobody came, and returned",
        (1,),
        False,
    )


@pytest.mark.parametrize(("said_at", "is_landed"), [(9, True), (10, True), (11, False)])
def test_a_strike_lands_at_its_event(said_at: int, *, is_landed: bool) -> None:
    """The event comes first, or in the same nanosecond."""
    said, struck = told(said_at, "rank", "begin"), told(10, "harness", STRUCK, fault="f")
    found = landing(
        history(*sorted((said, struck), key=lambda event: event.ns)), fault="f", at="begin", rank=0
    )
    assert isinstance(found, Landing if is_landed else Proof)
    assert (
        isinstance(found, Landing)
        or found.description == "the fault struck before it emitted begin"
    )


def test_after_a_moment_is_at_it_too() -> None:
    """At the same nanosecond, and not before."""
    first, same, later = history(
        told(1, "rank", "a"), told(1, "rank", "b"), told(2, "rank", "c")
    ).seen
    assert after(same, first)
    assert after(later, first)
    assert not after(first, later)


def test_the_end_of_a_rank_is_the_kernels_word() -> None:
    """Nothing else that the server says of a rank is the next of it, nor is an end that somebody
    else tells.
    """
    events = [
        told(1, "rank", "a"),
        told(2, "server", "rank.started"),
        told(3, "harness", "rank.exited"),
        EXIT,
    ]
    all_seen = history(*events).seen
    assert next_of(history(*events), 0, all_seen[0]) == all_seen[3]


def test_what_is_said_at_the_moment_is_next() -> None:
    """In the same nanosecond, but never the moment itself."""
    lived = history(told(1, "rank", "a"), told(1, "rank", "b"))
    assert next_of(lived, 0, lived.seen[0]) == lived.seen[1]
