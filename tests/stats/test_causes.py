"""Whether a control failed as required and by nothing else: its ranks, its evidence, and who ended
before.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.events import Event
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import MustFail
from harness.stats.stated import UNTRUSTED, deviation
from tests.kit.histories import healthy
from tests.stats.test_hang import hung

STATED = {"check": "ready", "ranks": [1, 2], "error": "AssertionError", "source": "x"}
MILLISECOND = 10**6


def fallen(moments: dict[int, float], *, size: int = 4, **errors: str) -> History:
    """A world in which these ranks raise at these milliseconds, an AssertionError if no other is
    named.
    """
    events = []
    for event in healthy(size):
        is_of = event.rank in moments
        if is_of and event.name in ("tokenizer.ready", "decode", "subject.end"):
            continue
        if is_of and event.name == "rank.exited":
            event = event._replace(values={"code": 1, "signal": None})  # noqa: PLW2901
        events.append(event)
    for rank, at in moments.items():
        values = {
            "type": errors.get(f"rank_{rank}", "AssertionError"),
            "message": "",
            "source": "x",
        }
        ns = int(at * MILLISECOND)
        events.append(
            Event(ns=ns, by="rank", rank=rank, pid=200 + rank, name="rank.error", values=values)
        )
    return History(sorted(events, key=lambda event: event.ns), size=size)


def finding(*failed: int, check: str = "ready", size: int = 4) -> Finding:
    ranks = tuple(
        RankFinding(rank=rank, passed=rank not in failed, reason="never said it")
        for rank in range(size)
    )
    return Finding(check=check, kind="event", ranks=ranks)


def judged(
    history: History, *findings: Finding, stated: dict[str, Any] | None = None
) -> DeviationCode | None:
    found = deviation(
        MustFail.model_validate(stated or STATED),
        findings,
        history,
        faults={},
        silence=0.0,
        line_of=lambda *_: None,
    )
    return None if found is None else found.code


BOTH = {1: 20.0, 2: 22.0}


def test_exactly_the_stated_ranks_fail() -> None:
    """Fewer or more of them than stated are other ranks."""
    assert judged(fallen(BOTH), finding(1, 2)) is None
    assert judged(fallen(BOTH), finding(1)) == DeviationCode.OTHER_RANKS
    assert judged(fallen(BOTH), finding(1, 2, 3)) == DeviationCode.OTHER_RANKS


@pytest.mark.parametrize("check", UNTRUSTED)
def test_the_evidence_of_a_control_is_whole(check: str) -> None:
    """Each of the harness' own checks of the evidence spoils a control, though it failed as
    stated.
    """
    spoiled = finding(0, check=check)
    assert judged(fallen(BOTH), finding(1, 2), spoiled) == DeviationCode.EVIDENCE_NOT_WHOLE
    assert judged(fallen(BOTH), finding(1, 2), finding(check=check)) is None
    assert len(UNTRUSTED) == 3


@pytest.mark.parametrize(
    ("at", "code"),
    [(19.9, DeviationCode.CAUSE_ELSEWHERE), (20.0, None), (21.0, None), (23.0, None)],
)
def test_an_end_before_the_first_stated_one_is_a_cause(
    at: float, code: DeviationCode | None
) -> None:
    """What ends after the first of the stated ranks may be its consequence."""
    history = fallen({**BOTH, 3: at}, rank_3="RuntimeError")
    assert judged(history, finding(1, 2)) == code


@pytest.mark.parametrize("at", [19.0, 25.0])
def test_a_slip_is_a_cause_at_any_time(at: float) -> None:
    """A name that is not there is no consequence of anything."""
    history = fallen({**BOTH, 3: at}, rank_3="NameError")
    assert judged(history, finding(1, 2)) == DeviationCode.SLIP


def test_the_deadline_is_no_end_that_was_stated() -> None:
    """A world that ran into its deadline did not fail as required, whatever its ranks raised."""
    history = fallen(BOTH)
    late = Event(ns=30 * MILLISECOND, by="harness", name="world.deadline", values={})
    events = sorted([*(seen.event for seen in history.seen), late], key=lambda event: event.ns)
    assert judged(History(events, size=4), finding(1, 2)) == DeviationCode.DEADLINE


def test_a_failure_of_the_harness_is_no_failure_of_the_control() -> None:
    """Nothing is counted as required where the harness itself broke."""
    history = fallen(BOTH)
    broken = Event(
        ns=1, by="harness", name="harness.error", values={"type": "OSError", "message": "m"}
    )
    events = sorted([*(seen.event for seen in history.seen), broken], key=lambda event: event.ns)
    assert judged(History(events, size=4), finding(1, 2)) == DeviationCode.HARNESS_FAILED


@pytest.mark.parametrize(
    ("error", "code"), [("AssertionError", None), ("KeyError", DeviationCode.OTHER_ERROR)]
)
def test_each_stated_rank_ends_as_stated(error: str, code: DeviationCode | None) -> None:
    """The last of them too."""
    assert judged(fallen(BOTH, rank_2=error), finding(1, 2)) == code


def test_who_was_stopped_is_no_cause() -> None:
    """A rank that the harness had to stop ended by that."""
    history = fallen({**BOTH, 3: 19.0}, rank_3="RuntimeError")
    stop = Event(ns=25 * MILLISECOND, by="harness", name="world.stopped", values={"ranks": [3]})
    events = sorted([*(seen.event for seen in history.seen), stop], key=lambda event: event.ns)
    assert judged(History(events, size=4), finding(1, 2)) is None


def also_of(rank: int, error: str = "RuntimeError") -> dict[str, Any]:
    return {**STATED, "also": [{"ranks": [rank], "error": error, "source": "x"}]}


def test_an_end_that_belongs_to_the_bug_is_no_cause() -> None:
    """What `also` states of a rank excuses that end on that rank, and no other one."""
    history = fallen({**BOTH, 3: 19.0}, rank_3="RuntimeError")
    assert judged(history, finding(1, 2), stated=also_of(3)) is None
    assert (
        judged(history, finding(1, 2), stated=also_of(3, "OSError"))
        == DeviationCode.CAUSE_ELSEWHERE
    )
    assert judged(history, finding(1, 2), stated=also_of(0)) == DeviationCode.CAUSE_ELSEWHERE


def text_of(history: History, *findings: Finding, stated: dict[str, Any] | None = None) -> str:
    must_fail = MustFail.model_validate(stated or STATED)
    found = deviation(must_fail, findings, history, faults={}, silence=0.0, line_of=lambda *_: None)
    assert found is not None
    return found.text


def test_what_is_said_of_a_check_that_failed_otherwise() -> None:
    """Where nothing is known of why it may have held nothing stands in its place."""
    assert (
        text_of(fallen(BOTH), finding(1)) == "check `ready` failed on rank 1 instead of ranks 1, 2"
    )
    assert text_of(fallen(BOTH), finding()) == "check `ready` passed on every rank"
    other = finding(0, check="ended")
    assert (
        text_of(fallen(BOTH), finding(), other)
        == "check `ready` passed on every rank; `ended` failed instead"
    )


def on(machines: list[int], history: History) -> History:
    """The same world over machines, named by their numbers."""
    events = [
        (
            seen.event._replace(
                values={**seen.event.values, "backend": "gloo", "machines": {"of": machines}}
            )
            if seen.event.name == "world.begin"
            else seen.event
        )
        for seen in history.seen
    ]
    return History(events, size=history.size)


@pytest.mark.parametrize(
    ("machines", "code"),
    [
        ([0, 1, 2, 3], DeviationCode.CAUSE_ELSEWHERE),
        ([0, 1, 2, 1], None),
        ([0, 1, 2, 2], None),
        ([0, 1, 1, 1], None),
    ],
)
def test_times_of_two_machines_are_not_compared(
    machines: list[int], code: DeviationCode | None
) -> None:
    """An end on another machine than all of the stated ranks may be a cause, whenever it was.

    On one of theirs not.
    """
    history = fallen({**BOTH, 3: 30.0}, rank_3="RuntimeError")
    assert judged(on(machines, history), finding(1, 2)) == code


def test_the_stated_end_on_another_rank_is_the_bug_too() -> None:
    """A rank that the check does not ask may fail first, in the stated way."""
    assert judged(fallen({**BOTH, 3: 19.0}), finding(1, 2)) is None
    assert (
        judged(fallen({**BOTH, 3: 19.0}, rank_3="KeyError"), finding(1, 2))
        == DeviationCode.CAUSE_ELSEWHERE
    )


@pytest.mark.parametrize("what", ["silent", "stopped"])
def test_a_rank_that_did_not_end_by_itself_did_not_end_as_stated(what: str) -> None:
    """Whatever it raised before: the harness had to stop it, or nobody saw its end."""
    events = []
    for seen in fallen(BOTH).seen:
        if (
            what == "silent"
            and seen.event.rank == 2
            and seen.event.name in ("rank.error", "rank.exited")
        ):
            continue
        events.append(seen.event)
    if what == "stopped":
        events.append(
            Event(ns=events[-1].ns, by="harness", name="world.stopped", values={"ranks": [2]})
        )
    assert judged(History(events, size=4), finding(1, 2)) == DeviationCode.STOPPED


UNSAID = {"check": "ready", "ranks": [1, 2]}


def gone(*ranks: int, history: History) -> History:
    """The same world in which these ranks say that their peer is gone."""
    message = {"type": "RuntimeError", "message": "gloo/transport/tcp: Connection closed by peer"}
    events = [
        (
            seen.event._replace(values=message)
            if seen.event.name == "rank.error" and seen.event.rank in ranks
            else seen.event
        )
        for seen in history.seen
    ]
    return on([0] * history.size, History(events, size=history.size))


def test_who_only_noticed_that_a_peer_was_gone_did_not_fail_first() -> None:
    """Without a stated end it is no failure of its own.

    If all of them did no more, nobody knows who failed.
    """
    assert (
        judged(gone(1, 2, history=fallen(BOTH)), finding(1, 2), stated=UNSAID)
        == DeviationCode.PEER_GONE_ONLY
    )
    assert (
        judged(gone(1, history=fallen(BOTH)), finding(1, 2), stated=UNSAID)
        == DeviationCode.UNSTATED_END
    )


def test_where_a_gone_peer_is_stated_whoever_ended_otherwise_is_the_cause() -> None:
    """Earlier or later: the stated error only says that another rank ended."""
    stated = {
        "check": "ready",
        "ranks": [1, 2],
        "error": "RuntimeError",
        "message": "closed by peer",
    }
    assert judged(gone(1, 2, history=fallen(BOTH)), finding(1, 2), stated=stated) is None
    for at in (19.0, 30.0):
        history = gone(1, 2, history=fallen({**BOTH, 3: at}, rank_3="ValueError"))
        assert judged(history, finding(1, 2), stated=stated) == DeviationCode.CAUSE_ELSEWHERE
    history = gone(1, 2, 3, history=fallen({**BOTH, 3: 19.0}))
    assert judged(history, finding(1, 2), stated=stated) is None


def part(rank: int, *, passed: bool = False, **more: Any) -> RankFinding:
    return RankFinding(rank=rank, passed=passed, reason="" if passed else "it is off", **more)


def compared(kind: str = "close", **more: Any) -> Finding:
    """A finding in which ranks 1 and 2 fail."""
    ranks = (part(0, passed=True), part(1, **more), part(2, **more), part(3, passed=True))
    return Finding(check="ready", kind=kind, ranks=ranks)


WANT: dict[str, tuple[dict[str, Any], dict[str, Any], DeviationCode | None]] = {
    "a number that is off": ({}, {}, None),
    "another shape": ({"lacks": "shape"}, {}, DeviationCode.NOT_COMPARED),
    "NaN": ({"lacks": "nonfinite"}, {}, DeviationCode.NOT_COMPARED),
    "nothing to compare with": ({"uncompared": True}, {}, DeviationCode.NOT_COMPARED),
    "no report": ({"missing": True}, {}, DeviationCode.NOT_COMPARED),
    "another shape, as required": ({"lacks": "shape"}, {"shape": True}, None),
    "NaN, as required": ({"lacks": "nonfinite"}, {"nonfinite": True}, None),
    "no report, as required": ({"missing": True}, {"missing": True}, None),
    "another shape where NaN is stated": (
        {"lacks": "shape"},
        {"nonfinite": True},
        DeviationCode.NOT_COMPARED,
    ),
    "a number where another shape is stated": ({}, {"shape": True}, DeviationCode.NOT_COMPARED),
}


@pytest.mark.parametrize("name", WANT)
def test_a_control_fails_by_what_was_compared_or_as_stated(name: str) -> None:
    """A slip that leaves nothing to compare shows nothing of what the check can tell apart."""
    found, stated, code = WANT[name]
    assert (
        judged(History(healthy(4), size=4), compared(**found), stated={**UNSAID, **stated}) == code
    )


def test_what_is_missing_because_the_rank_ended_is_told_by_its_end() -> None:
    """The end is what nobody stated, and not that something is missing."""
    assert judged(fallen(BOTH), compared(missing=True), stated=UNSAID) == DeviationCode.UNSTATED_END
    never = [
        seen.event
        for seen in fallen(BOTH).seen
        if seen.event.name not in ("rank.error", "rank.exited")
    ]
    assert (
        judged(History(never, size=4), compared(missing=True), stated=UNSAID)
        == DeviationCode.NOT_COMPARED
    )


@pytest.mark.parametrize(
    ("lacking", "words"), [({"lacks": "shape"}, "shape: true"), ({"uncompared": True}, "")]
)
def test_what_may_be_stated_of_a_control_is_named(lacking: dict[str, Any], words: str) -> None:
    """Of another shape it may; of what cannot be compared nothing may."""
    text = text_of(History(healthy(4), size=4), compared(**lacking), stated=UNSAID)
    assert ("unless must_fail states" in text) is bool(words)
    assert words in text


def fallen_silently(
    code: int | None, *, error: str | None = None, stopped: bool = False
) -> History:
    """A world in which rank 1 ends with this code and, with a type, by an error."""
    events = []
    for event in healthy(4):
        if event.rank == 1 and event.name == "subject.end":
            continue
        if event.rank == 1 and event.name == "rank.exited":
            event = event._replace(values={"code": code, "signal": None})  # noqa: PLW2901
        events.append(event)
    last = events[-1].ns
    if error is not None:
        events.append(
            Event(ns=last, by="rank", rank=1, pid=201, name="rank.error", values={"type": error})
        )
    if stopped:
        events.append(Event(ns=last, by="harness", name="world.stopped", values={"ranks": [1]}))
    return History(events, size=4)


def one_failed(kind: str) -> Finding:
    return Finding(check="ready", kind=kind, ranks=(part(0, passed=True), part(1)))


ONE = {"check": "ready", "ranks": [1]}


def coded(
    code: int | None, *, error: str | None = None, kind: str = "event", stopped: bool = False
) -> Any:
    """What is judged of a check that rank 1 fails, which ends like this."""
    return judged(fallen_silently(code, error=error, stopped=stopped), one_failed(kind), stated=ONE)


def said_of(history: History) -> str:
    return text_of(history, one_failed("event"), stated=ONE)


def test_an_end_without_an_error_is_told_from_one_with_one() -> None:
    """A rank that raised nothing ended by its code or a signal."""
    unstated = "ended with a signal or code that is not in must_fail: code 3"
    assert unstated in said_of(fallen_silently(3))
    raised = "ended with an error that is not in must_fail: ValueError"
    assert raised in said_of(fallen_silently(1, error="ValueError"))


def test_an_end_that_nobody_stated_is_a_slip_or_is_not() -> None:
    """A program that is not there and a name that is not are slips.

    Another code and another error are none.
    """
    for kind in ("event", "survivors-end"):
        assert coded(127, kind=kind) == DeviationCode.SLIP
        assert coded(1, error="NameError", kind=kind) == DeviationCode.SLIP
        assert coded(1, error="ValueError", kind=kind) == DeviationCode.UNSTATED_END
    assert coded(3) == DeviationCode.UNSTATED_END
    assert coded(None, stopped=True) == DeviationCode.STOPPED


@pytest.mark.parametrize("kind", ["close", "survivors-end"])
def test_where_an_end_is_stated_the_end_is_asked(kind: str) -> None:
    """A rank that raised what is stated need not have given anything that could be compared."""
    history = fallen(BOTH)
    assert judged(history, compared(kind, uncompared=True)) is None
    assert (
        judged(history, compared(kind, uncompared=True), stated={**STATED, "source": "y"})
        is not None
    )


@pytest.mark.parametrize(
    ("kind", "line", "code"),
    [
        ("close", 1, None),
        ("close", None, DeviationCode.CAUSE_ELSEWHERE),
        ("event", 1, DeviationCode.CAUSE_ELSEWHERE),
        ("exit", 1, DeviationCode.CAUSE_ELSEWHERE),
    ],
)
def test_the_moment_at_which_a_check_fails(
    kind: str, line: int | None, code: DeviationCode | None
) -> None:
    """A wrong value fails at its event, if there is one.

    What is asked of an end fails at the end.
    """
    history = fallen({3: 19.0}, rank_3="RuntimeError")
    assert judged(history, compared(kind, line=line), stated=UNSAID) == code


def test_beside_a_hang_nobody_may_have_ended() -> None:
    """Where a rank ended by what nobody stated the others may only wait for it."""
    raised = Event(
        ns=7,
        by="rank",
        rank=1,
        pid=8,
        name="rank.error",
        values={"type": "KeyError", "message": "k"},
    )
    must_fail = MustFail.model_validate({"hang": {"function": "check"}, "ranks": [0]})

    def code(*more: Event) -> DeviationCode | None:
        history = hung({0: (3,)}, more=[*more, Event(ns=10**10, by="harness", name="world.end")])
        for seen in history.noted("world.stopped"):
            seen.event.values["ranks"] = [0]  # type: ignore[index]
        found = deviation(must_fail, [], history, faults={}, silence=0.0, line_of=lambda *_: None)
        return None if found is None else found.code

    assert code() is None
    assert code(raised) == DeviationCode.CAUSE_ELSEWHERE
