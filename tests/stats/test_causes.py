"""Whether a control failed as stated and by nothing else: its ranks, its evidence, and who ended
before.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.events import Event
from harness.faults.proof import STRUCK
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import End, MustFail
from harness.stats.ends import RankEnd, classes, ends, how_it_ended, short, source_of
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
    """A world that ran into its deadline did not fail as stated, whatever its ranks raised."""
    history = fallen(BOTH)
    late = Event(ns=30 * MILLISECOND, by="harness", name="world.deadline", values={})
    events = sorted([*(seen.event for seen in history.seen), late], key=lambda event: event.ns)
    assert judged(History(events, size=4), finding(1, 2)) == DeviationCode.DEADLINE


def test_a_failure_of_the_harness_is_no_failure_of_the_control() -> None:
    """Nothing is counted as stated where the harness itself broke."""
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
    assert text_of(fallen(BOTH), finding(1)) == "check ready failed on rank 1 instead of ranks 1, 2"
    assert text_of(fallen(BOTH), finding()) == "check ready held on every rank"
    other = finding(0, check="ended")
    assert (
        text_of(fallen(BOTH), finding(), other)
        == "check ready held on every rank; ended failed instead"
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
    "another shape, as stated": ({"lacks": "shape"}, {"shape": True}, None),
    "NaN, as stated": ({"lacks": "nonfinite"}, {"nonfinite": True}, None),
    "no report, as stated": ({"missing": True}, {"missing": True}, None),
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
    unstated = "ended by what must_fail does not name (signal, code): code 3"
    assert unstated in said_of(fallen_silently(3))
    raised = "ended by an error that must_fail does not name: ValueError"
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


# -- ends --------------------------------------------------------------------------------------


def an_end(
    error: dict[str, Any] | None = None, *, code: int | None = 1, signal: str | None = None
) -> RankEnd:
    """The end of a rank that raises this, and ends with this code or signal."""
    events = [
        (
            event._replace(values={"code": code, "signal": signal})
            if event.name == "rank.exited"
            else event
        )
        for event in healthy(1)
        if event.name != "subject.end"
    ]
    if error is not None:
        events.append(
            Event(ns=events[-1].ns, by="rank", rank=0, pid=200, name="rank.error", values=error)
        )
    return ends(History(events, size=1), faults={})[0]


NAME = {"type": "NameError", "message": "name 'x' is not defined", "source": "x"}
VALUE = {"type": "ValueError", "message": "x is not there", "source": "x"}
DIFFERS: dict[str, tuple[RankEnd, dict[str, Any], DeviationCode | None]] = {
    "the line alone": (an_end(VALUE), {"source": "x"}, None),
    "the text alone": (an_end(VALUE), {"message": "is not"}, None),
    "a slip at the line alone": (an_end(NAME), {"source": "x"}, DeviationCode.SLIP),
    "a slip with the text alone": (an_end(NAME), {"message": "is not"}, DeviationCode.SLIP),
    "a slip that is stated": (an_end(NAME), {"error": "NameError", "source": "x"}, None),
    "another text": (an_end(VALUE), {"message": "was not"}, DeviationCode.OTHER_MESSAGE),
    "another line": (an_end(VALUE), {"source": "y"}, DeviationCode.OTHER_SOURCE),
    "another type": (
        an_end(VALUE),
        {"error": "KeyError", "source": "x"},
        DeviationCode.OTHER_ERROR,
    ),
    "nothing raised": (an_end(), {"source": "x"}, DeviationCode.OTHER_ERROR),
    "its own context": (an_end({**VALUE, "ours": True}), {"source": "x"}, DeviationCode.SLIP),
    "the code": (an_end(code=3), {"code": 3}, None),
    "another code": (an_end(code=3), {"code": 4}, DeviationCode.OTHER_EXIT_CODE),
    "the signal": (an_end(code=None, signal="SIGSEGV"), {"signal": "SIGSEGV"}, None),
    "another signal": (
        an_end(code=None, signal="SIGSEGV"),
        {"signal": "SIGKILL"},
        DeviationCode.OTHER_SIGNAL,
    ),
    "a code for a signal": (an_end(code=1), {"signal": "SIGKILL"}, DeviationCode.OTHER_SIGNAL),
}


@pytest.mark.parametrize("name", DIFFERS)
def test_an_end_is_the_stated_one(name: str) -> None:
    """Of the type, the line, the text, the code and the signal each that is stated is asked, and a
    slip by its type.
    """
    end, stated, code = DIFFERS[name]
    found = end.differs(End.model_validate(stated))
    assert (found[0] if found is not None else None) == code


def test_who_ended_by_no_signal_has_none() -> None:
    """The name of a signal is empty where there was none."""
    assert (an_end().signal, an_end(code=None, signal="SIGSEGV").signal) == ("", "SIGSEGV")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("machine.lost", "its machine two was lost: it fell silent"),
        ("machine.ended", "its machine two ended its ranks by itself: it fell silent"),
        ("machine.joined", "its end was not seen"),
    ],
)
def test_how_a_rank_ended_whose_end_nobody_saw(name: str, words: str) -> None:
    """What became of its machine is what is known of it."""
    placed = {"machines": {"of": [0, 1], "called": ["one", "two"]}}
    history = History(
        [
            Event(ns=1, by="harness", name="world.begin", values=placed),
            Event(
                ns=2, by="harness", name=name, values={"machine": "two", "why": "it fell silent"}
            ),
        ],
        size=2,
    )
    assert how_it_ended(history, 1) == words
    assert how_it_ended(history, 0) == "its end was not seen"


def ended_by(
    values: dict[str, Any], *, returned: bool = False, stopped: bool = False, lost: bool = False
) -> str:
    """How a rank ended, in words, of one that its process tells this of."""
    placed = {"machines": {"of": [0], "called": ["one"]}} if lost else {}
    events = [Event(ns=1, by="harness", name="world.begin", values=placed)]
    if returned:
        events.append(Event(ns=2, by="rank", rank=0, pid=7, name="subject.end"))
    if stopped:
        events.append(Event(ns=3, by="harness", name="world.stopped", values={"ranks": [0]}))
    if lost:
        events.append(
            Event(
                ns=4,
                by="harness",
                name="machine.lost",
                values={"machine": "one", "why": "it is cut off"},
            )
        )
    events.append(Event(ns=5, by="server", rank=0, pid=7, name="rank.exited", values=values))
    return how_it_ended(History(events, size=1), 0)


KILLED = {"code": None, "signal": "SIGKILL"}
FOREIGN = (
    "SIGKILL, sent by nobody here (the kernel, out of memory, or another process) before the"
    " subject returned"
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"values": {"code": 0, "signal": None}, "returned": True}, "code 0"),
        ({"values": {"code": 1, "signal": None}}, "code 1 before the subject returned"),
        ({"values": {"code": None, "signal": "SIGSEGV"}}, "SIGSEGV before the subject returned"),
        ({"values": KILLED}, FOREIGN),
        ({"values": KILLED, "stopped": True}, "SIGKILL before the subject returned"),
        (
            {"values": KILLED, "lost": True},
            "its machine one was lost: it is cut off; the rank ended with SIGKILL",
        ),
    ],
)
def test_how_a_rank_ended_in_words(given: dict[str, Any], words: str) -> None:
    """A kill is nobody's only where the harness stopped nobody.

    The machine that was lost comes first.
    """
    assert ended_by(**given) == words


def test_what_a_rank_raised_in_words() -> None:
    """The type, and of text and line what is there."""

    def said(**values: Any) -> str:
        return how_it_ended(
            History(
                [Event(ns=1, by="rank", rank=0, pid=7, name="rank.error", values=values)], size=1
            ),
            0,
        )

    assert said(type="E", message="m", source="x()") == "E: m at 'x()'"
    assert said(type="E", message="", source="") == "E"


def test_a_program_says_nothing_of_a_return() -> None:
    """It has no subject that could return."""
    started = Event(ns=1, by="harness", name="world.begin", values={"program": True})
    ended = Event(
        ns=2, by="server", rank=0, pid=7, name="rank.exited", values={"code": 1, "signal": None}
    )
    assert how_it_ended(History([started, ended], size=1), 0) == "code 1"


@pytest.mark.parametrize(
    ("models", "in_home", "words"),
    [
        (
            ["a", "b"],
            True,
            (
                "E (a, b: only in the user's own cache, name it under inputs, or set world.home:"
                " shared)"
            ),
        ),
        (["a"], False, "E (a: only in the user's own cache, name it under inputs)"),
        ("a", False, "E (: only in the user's own cache, name it under inputs)"),
    ],
)
def test_a_model_that_a_rank_did_not_find_is_named(models: Any, in_home: bool, words: str) -> None:
    """With what to do about it."""
    events = [
        Event(ns=1, by="rank", rank=0, pid=7, name="rank.error", values={"type": "E"}),
        Event(
            ns=2,
            by="harness",
            rank=0,
            name="cache.missed",
            values={"models": models, "in_home": in_home},
        ),
    ]
    assert how_it_ended(History(events, size=1), 0) == words


def test_a_line_of_a_library_is_told_with_its_file() -> None:
    """And one of the subject is told alone."""
    told = [an_end(VALUE).differs(End(source="y", file=file)) for file in (None, "t/a.py")]
    assert [one[1] if one is not None else None for one in told] == [
        "did not fail at 'y'",
        "did not fail at 'y' in t/a.py",
    ]


def test_who_raised_nothing_has_no_error() -> None:
    """What a rank raised is what it told, and it is nobody's peer that is gone where it told
    nothing.
    """
    assert (an_end().error, an_end().peer_gone) == (None, False)
    assert an_end(VALUE).error == VALUE


def test_long_texts_are_cut_and_say_by_how_much() -> None:
    """300 characters are kept as they are."""
    assert short("x" * 300) == "x" * 300
    assert short("x" * 301) == "x" * 300 + "... (1 more characters)"


@pytest.mark.parametrize("what", ["nothing", "stopped", "code", "error", "silent"])
def test_a_clean_end_is_one_in_which_nothing_went_wrong(what: str) -> None:
    """It returned, with code 0, raised nothing, and nobody stopped it: each of the four is
    asked.
    """
    events = []
    for event in healthy(1):
        if what == "silent" and event.name == "subject.end":
            continue
        if what == "code" and event.name == "rank.exited":
            event = event._replace(values={"code": 3, "signal": None})  # noqa: PLW2901
        events.append(event)
    last = events[-1].ns
    if what == "stopped":
        events.append(Event(ns=last, by="harness", name="world.stopped", values={"ranks": [0]}))
    if what == "error":
        events.append(
            Event(ns=last, by="rank", rank=0, pid=200, name="rank.error", values={"type": "E"})
        )
    found = ends(History(events, size=1), faults={})[0]
    assert found.is_clean is (what == "nothing")


def test_a_rank_that_raised_ended_when_it_raised() -> None:
    """Its process ends later, and that is no moment of its own."""
    assert ends(fallen({1: 0.5}), faults={})[1].ns == MILLISECOND // 2


def test_a_rank_that_a_fault_ended_ended_when_it_was_struck() -> None:
    """What the kernel and the rank tell of it comes later."""
    values = {"fault": "kill", "kind": "kill"}
    struck = Event(ns=7, by="harness", rank=1, name=STRUCK, values=values)
    history = fallen({1: 0.5})
    events = sorted([*(seen.event for seen in history.seen), struck], key=lambda event: event.ns)
    assert ends(History(events, size=4), faults={1: "kill"})[1].ns == 7
    assert ends(History(events, size=4), faults={})[1].ns == MILLISECOND // 2


def test_the_classes_of_an_error_begin_with_its_own() -> None:
    """An error without ancestors, from a rank in another language, still has a class."""
    assert classes({"type": "NameError"}) == ("NameError",)
    assert classes({"type": "Mine", "mro": ["NameError"]}) == ("Mine", "NameError")


def test_the_last_frame_in_a_librarys_file_counts() -> None:
    """A file of a library is called again from itself.

    And the subject's file of that name is another one.
    """
    frames = [
        {"file": "t.py", "source": "first()", "subject": False},
        {"file": "t.py", "source": "last()", "subject": False},
        {"file": "t.py", "source": "ours()", "subject": True},
        {"file": "u.py", "source": "other()", "subject": False},
    ]
    error: Any = {"source": "its own", "frames": frames}
    assert source_of(error, "t.py") == "last()"
    assert source_of(error, None) == "its own"
    assert source_of(error, "v.py") is None


@pytest.mark.parametrize(
    ("code", "is_slip"), [(125, False), (126, True), (127, True), (128, False)]
)
def test_a_program_that_is_not_there_is_a_slip(code: int, *, is_slip: bool) -> None:
    """A shell ends with 126 or 127 where it cannot start what it was given."""
    events = [
        (
            event._replace(values={"code": code, "signal": None})
            if event.name == "rank.exited"
            else event
        )
        for event in healthy(1)
    ]
    assert ends(History(events, size=1), faults={})[0].is_slip is is_slip
