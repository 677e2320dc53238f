"""Whether a control failed as stated and by nothing else: its ranks, its evidence, and who ended before."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.events import Event
from harness.faults.proof import STRUCK
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import MustFail
from harness.stats.ends import classes, ends, source_of
from harness.stats.stated import UNTRUSTED, deviation
from tests.checks.conftest import healthy

STATED = {"check": "ready", "ranks": [1, 2], "error": "AssertionError", "source": "x"}
MILLISECOND = 10**6


def fallen(moments: dict[int, float], *, size: int = 4, **errors: str) -> History:
    """A world in which these ranks raise at these milliseconds, an AssertionError if no other is named."""
    events = []
    for event in healthy(size):
        is_of = event.rank in moments
        if is_of and event.name in ("tokenizer.ready", "decode", "subject.end"):
            continue
        if is_of and event.name == "rank.exited":
            event = event._replace(values={"code": 1, "signal": None})  # noqa: PLW2901
        events.append(event)
    for rank, at in moments.items():
        values = {"type": errors.get(f"rank_{rank}", "AssertionError"), "message": "", "source": "x"}
        ns = int(at * MILLISECOND)
        events.append(Event(ns=ns, by="rank", rank=rank, pid=200 + rank, name="rank.error", values=values))
    return History(sorted(events, key=lambda event: event.ns), size=size)


def finding(*failed: int, check: str = "ready", size: int = 4) -> Finding:
    ranks = tuple(RankFinding(rank=rank, passed=rank not in failed, reason="never said it") for rank in range(size))
    return Finding(check=check, kind="event", ranks=ranks)


def judged(history: History, *findings: Finding, stated: dict[str, Any] | None = None) -> DeviationCode | None:
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
    """Each of the harness' own checks of the evidence spoils a control, though it failed as stated."""
    spoiled = finding(0, check=check)
    assert judged(fallen(BOTH), finding(1, 2), spoiled) == DeviationCode.EVIDENCE_NOT_WHOLE
    assert judged(fallen(BOTH), finding(1, 2), finding(check=check)) is None
    assert len(UNTRUSTED) == 3


@pytest.mark.parametrize(
    ("at", "code"), [(19.9, DeviationCode.CAUSE_ELSEWHERE), (20.0, None), (21.0, None), (23.0, None)]
)
def test_an_end_before_the_first_stated_one_is_a_cause(at: float, code: DeviationCode | None) -> None:
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
    broken = Event(ns=1, by="harness", name="harness.error", values={"type": "OSError", "message": "m"})
    events = sorted([*(seen.event for seen in history.seen), broken], key=lambda event: event.ns)
    assert judged(History(events, size=4), finding(1, 2)) == DeviationCode.HARNESS_FAILED


@pytest.mark.parametrize(("error", "code"), [("AssertionError", None), ("KeyError", DeviationCode.OTHER_ERROR)])
def test_each_stated_rank_ends_as_stated(error: str, code: DeviationCode | None) -> None:
    """The last of them too."""
    assert judged(fallen(BOTH, rank_2=error), finding(1, 2)) == code


def test_who_was_stopped_is_no_cause() -> None:
    """A rank that the harness had to stop ended by that."""
    history = fallen({**BOTH, 3: 19.0}, rank_3="RuntimeError")
    stop = Event(ns=25 * MILLISECOND, by="harness", name="world.stopped", values={"ranks": [3]})
    events = sorted([*(seen.event for seen in history.seen), stop], key=lambda event: event.ns)
    assert judged(History(events, size=4), finding(1, 2)) is None


# -- ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["nothing", "stopped", "code", "error", "silent"])
def test_a_clean_end_is_one_in_which_nothing_went_wrong(what: str) -> None:
    """It returned, with code 0, raised nothing, and nobody stopped it: each of the four is asked."""
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
        events.append(Event(ns=last, by="rank", rank=0, pid=200, name="rank.error", values={"type": "E"}))
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
    """A file of a library is called again from itself; and the subject's file of that name is another one."""
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


@pytest.mark.parametrize(("code", "is_slip"), [(125, False), (126, True), (127, True), (128, False)])
def test_a_program_that_is_not_there_is_a_slip(code: int, *, is_slip: bool) -> None:
    """A shell ends with 126 or 127 where it cannot start what it was given."""
    events = [
        event._replace(values={"code": code, "signal": None}) if event.name == "rank.exited" else event
        for event in healthy(1)
    ]
    assert ends(History(events, size=1), faults={})[0].is_slip is is_slip
