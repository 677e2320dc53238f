"""What is nearly a hang at the stated place, and is none."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import HangsAt
from harness.stats.hang import hang_deviation, text_of
from harness.stats.stated import does_not_say_why
from tests.stats.test_hang import LINES, SECOND, frame, hung, judged, sampled, stated


@pytest.mark.parametrize("at", [5.0, 8.0, 15.9])
def test_a_word_anywhere_in_a_long_stillness_is_movement(at: float) -> None:
    """A world that is said to have stood still for 14 s emitted nothing in all of them, first and
    last.
    """
    said = Event(ns=int(at * SECOND), by="rank", rank=1, pid=8, name="still.here", values={})
    history = hung(seconds=14.0, at=16.0, more=[said])
    assert judged(history, stated([0], within="14s")) == DeviationCode.HANG_MOVING


def test_a_word_before_it_is_none() -> None:
    """What a rank said before the world stood still does not matter."""
    said = Event(ns=SECOND, by="rank", rank=1, pid=8, name="still.here", values={})
    history = hung(seconds=14.0, at=16.0, more=[said])
    assert judged(history, stated([0], within="14s")) is None


def test_a_program_that_went_on_after_the_stated_event_hangs_elsewhere() -> None:
    """The stated event has to be the last one, not one of those that it emitted."""
    said = [
        Event(ns=number, by="rank", rank=1, pid=8, name=name, values={})
        for number, name in ((3, "asked"), (4, "answered"))
    ]
    history = hung({}, more=said)
    assert judged(history, stated([1], after="asked")) == DeviationCode.HANG_ELSEWHERE
    assert judged(history, stated([1], after="answered")) is None


def test_a_program_that_ended_does_not_hang_after_its_last_event() -> None:
    """Only ranks that lived when the world stood still can hang."""
    said = [Event(ns=3, by="rank", rank=rank, pid=8, name="asked", values={}) for rank in (0, 1)]
    history = hung({}, more=said)
    assert judged(history, stated([0, 1], after="asked")) is None
    for seen in history.noted("world.still"):
        seen.event.values["ranks"] = [1]  # type: ignore[index]
    assert judged(history, stated([1], after="asked")) is None
    assert judged(history, stated([0, 1], after="asked")) == DeviationCode.HANG_ELSEWHERE


@pytest.mark.parametrize("is_subject", [True, False])
def test_a_function_of_a_library_is_not_the_stated_one(*, is_subject: bool) -> None:
    """Libraries have functions of the same name; only a frame of the subject is the place."""
    frames: list[JSON] = [frame(9, function="combine", subject=is_subject), frame(3)]
    stacks = [
        Event(
            ns=3 * SECOND + sample,
            by="harness",
            rank=0,
            name="rank.stack",
            values={"sample": sample, "threads": [{"frames": frames}]},
        )
        for sample in (1, 2)
    ]
    found = judged(hung({}, more=stacks), stated([0], function="combine"))
    assert found == (None if is_subject else DeviationCode.HANG_ELSEWHERE)


def test_one_thread_has_to_stand_there_both_times() -> None:
    """A place at which one thread was first and another one later is a place that was left."""
    stacks = []
    for sample, lines in ((1, (3, 5)), (2, (5, 3))):
        threads: list[JSON] = [{"frames": [frame(line)]} for line in lines]
        values: dict[str, JSON] = {"sample": sample, "threads": threads}
        stacks.append(
            Event(ns=3 * SECOND + sample, by="harness", rank=0, name="rank.stack", values=values)
        )
    assert judged(hung({}, more=stacks), stated([0])) == DeviationCode.HANG_ELSEWHERE


@pytest.mark.parametrize(
    "lines",
    [
        [9, 9, 9, 9, 7, 9, *[7, 8] * 8],
        [*[7, 8] * 8, 9, 7, 9, 9, 9, 9],
        [9, 9, 9, *[7, 8] * 8],
    ],
)
def test_a_line_that_comes_again_was_not_left(lines: list[int]) -> None:
    """Once among the others is enough for a loop, wherever.

    And three samples are too few to tell.
    """
    assert judged(sampled(*lines), stated([0])) is None


@pytest.mark.parametrize(("seconds", "code"), [(2.0, None), (1.999, DeviationCode.HANG_MOVING)])
def test_a_window_is_enough_and_less_is_not(seconds: float, code: DeviationCode | None) -> None:
    """Without silences of the candidate two seconds are needed, and exactly two do."""
    assert judged(hung(seconds=seconds), stated([0]), silence=0.0) == code


@pytest.mark.parametrize(
    ("within", "code"), [("5s", None), ("4.9s", DeviationCode.HANG_NOT_WITHIN)]
)
def test_a_window_as_long_as_within_can_be_proved(within: str, code: DeviationCode | None) -> None:
    """Half a second of silence asks for five of stillness: within of five is just enough."""
    history = hung(seconds=5.0, at=5.5)
    assert judged(history, stated([0], within=within), silence=0.5) == code


@pytest.mark.parametrize(("at", "code"), [(11.0, None), (11.1, DeviationCode.HANG_NOT_WITHIN)])
def test_the_harness_may_look_a_second_late(at: float, code: DeviationCode | None) -> None:
    """A second after `within` is the latest at which a window may have been over."""
    history = hung(seconds=2.0, at=at + 1e-9)
    assert judged(history, stated([0]), silence=0.0) == code


def test_without_a_start_nothing_is_in_time() -> None:
    """Where the ranks were never let go, no time can be told."""
    events = [seen.event for seen in hung().seen if seen.event.name != "world.start"]
    assert judged(History(events, size=2), stated([0])) == DeviationCode.HANG_NOT_WITHIN


def test_a_stillness_without_a_number_is_none() -> None:
    """A text in the place of the seconds proves nothing."""
    history = hung()
    for seen in history.noted("world.still"):
        seen.event.values["seconds"] = "9"  # type: ignore[index]
    assert judged(history, stated([0])) == DeviationCode.HANG_MOVING


@pytest.mark.parametrize(
    ("ns", "code"), [(20_000_000, None), (20_000_001, DeviationCode.HANG_MOVING)]
)
def test_clocks_may_differ_at_the_edge_of_a_window(ns: int, code: DeviationCode | None) -> None:
    """A word in the first 20 ms may be from before it; one after them is movement."""
    said = Event(ns=500_000_000 + ns, by="rank", rank=1, pid=8, name="still.here", values={})
    assert judged(hung(more=[said]), stated([0])) == code


def elsewhere(history: History) -> str:
    """What is said of a rank that does not hang where it is stated."""
    must_fail = stated([1])
    found = hang_deviation(
        must_fail,
        history,
        wanted=[1],
        silence=0.0,
        line_of=lambda file, line: LINES.get((file, line)),
    )
    assert found is not None
    return found[1]


def test_where_a_rank_stands_instead_is_said() -> None:
    """The innermost line of the subject; of a rank that was not asked, how it ended."""
    place = "rank 1 does not hang at 'dist.all_reduce(total)'"
    there = "it is in check, subject.py:5: context.group.barrier()"
    assert elsewhere(hung()) == f"{place}: {there}"
    assert elsewhere(hung({0: (3,)})) == f"{place}: its exit was not observed"
    assert elsewhere(hung({0: (3,), 1: (4,)})) == f"{place}: it is in check, subject.py:4"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            {"source": "recv()"},
            "rank 0 does not hang at 'recv()': it is in check, subject.py:3",
        ),
        (
            {"function": "recv"},
            "rank 0 does not hang at function recv: it is in check, subject.py:3",
        ),
        ({"after": "sent"}, "rank 0 does not hang at sent: it is in check, subject.py:3"),
    ],
)
def test_the_place_is_named_as_it_is_stated(place: dict[str, str], words: str) -> None:
    """A line, a function and an event are told apart."""
    found = hang_deviation(
        stated([0], **place), hung(), wanted=[0], silence=0.0, line_of=lambda *_: None
    )
    assert found == (DeviationCode.HANG_ELSEWHERE, words)


def test_who_did_not_come_to_its_end_is_named_where_nothing_hung() -> None:
    """A rank that returned is not why the world was not proved to hang."""

    def said(*returned: int) -> str:
        events = [Event(ns=1, by="rank", rank=rank, pid=7, name="subject.end") for rank in returned]
        found = hang_deviation(
            stated([0]), History(events, size=2), wanted=[0], silence=0.0, line_of=lambda *_: None
        )
        assert found is not None
        return found[1]

    assert said(0) == "it did not hang: rank 1: its exit was not observed"
    assert said(1) == "it did not hang: rank 0: its exit was not observed"
    assert said(0, 1) == "it did not hang: every rank ended"


@pytest.mark.parametrize(("living", "samples"), [((1,), 2), ((0, 1), 1)])
def test_only_a_living_rank_that_was_asked_twice_stands(
    living: tuple[int, ...], samples: int
) -> None:
    """A rank that had ended, and one of which there is one stack alone, stands nowhere."""
    history = hung(second=None if samples == 2 else {1: (5,)})
    for seen in history.noted("world.still"):
        seen.event.values["ranks"] = list(living)  # type: ignore[index]
    assert judged(history, stated([0])) == DeviationCode.HANG_ELSEWHERE


@pytest.mark.parametrize(
    ("ns", "code"), [(3 * SECOND, DeviationCode.HANG_MOVING), (3 * SECOND + 1, None)]
)
def test_a_word_at_the_moment_of_the_proof_is_movement(ns: int, code: DeviationCode | None) -> None:
    """The last nanosecond belongs to the stillness.

    What comes later matters to a world that is watched.
    """
    said = Event(ns=ns, by="rank", rank=1, pid=8, name="still.here", values={})
    assert judged(hung(more=[said]), stated([0])) == code


@pytest.mark.parametrize(
    ("name", "by", "ns", "code"),
    [
        ("still.here", "rank", 3 * SECOND + 5, DeviationCode.HANG_MOVING),
        ("still.here", "rank", 3 * SECOND + 6, None),
        ("rank.exited", "server", 520_000_000, None),
        ("rank.exited", "server", 520_000_001, DeviationCode.HANG_MOVING),
    ],
)
def test_of_a_watched_world_all_counts_until_it_is_stopped(
    name: str, by: Any, ns: int, code: DeviationCode | None
) -> None:
    """Words and ends from the window's first to the moment in which it is stopped.

    None before and none after.
    """
    moved = Event(ns=ns, by=by, rank=1, pid=8, name=name, values={"code": 0, "signal": None})
    history = hung(more=[moved])
    for seen in history.noted("world.still"):
        seen.event.values["watched"] = True  # type: ignore[index]
    assert judged(history, stated([0])) == code


def test_a_frame_without_a_line_has_no_text() -> None:
    """What a rank told in another form is asked of nobody."""

    def line_of(file: str, line: int) -> str | None:
        return LINES[file, line]

    assert text_of(frame(3), line_of) == "dist.all_reduce(total)"
    assert text_of({**frame(3), "line": None}, line_of) is None
    assert text_of({**frame(3), "file": None}, line_of) is None


def test_of_a_check_that_compared_nothing_the_reason_is_said() -> None:
    """The reason is that of the first rank that failed."""
    ranks = (
        RankFinding(rank=0, passed=True, reason="all is well"),
        RankFinding(rank=1, passed=False, reason="it left no ledger", uncompared=True),
    )
    finding = Finding(check="in-step", kind="ledger-agrees", ranks=ranks)
    found = does_not_say_why(HangsAt(function="combine", fails="in-step"), [finding])
    assert found is not None
    assert found.text == "it hung, but check `in-step` compared nothing: it left no ledger"
