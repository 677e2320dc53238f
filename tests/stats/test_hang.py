"""A hang judged from what the harness noted: by the candidate's silences, the ranks, and the lines
they stand at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.checks import Finding
from harness.checks.finding import RankFinding
from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import LEDGERS_COMPARED, History, longest_silence, window
from harness.ledger.file import encode
from harness.ledger.outside.account import account
from harness.reason import DeviationCode
from harness.scenario import HangsAt, MustFail
from harness.stats.hang import hang_deviation
from harness.stats.shown_trial import hung_trial
from harness.stats.stated import does_not_say_why
from harness.world.control.stillness import BUSY_SHARE
from tests.ledger.made import WORLD, call, ledger, receive

SECOND = 10**9
LINES = {("subject.py", 3): "dist.all_reduce(total)", ("subject.py", 5): "context.group.barrier()"}


def frame(line: int, *, function: str = "check", subject: bool = True) -> dict[str, JSON]:
    return {
        "file": "subject.py" if subject else "torch/x.py",
        "line": line,
        "function": function,
        "subject": subject,
    }


def hung(
    places: dict[int, Sequence[int]] | None = None,
    *,
    seconds: float = 2.5,
    at: float = 3.0,
    more: Sequence[Event] = (),
    second: dict[int, Sequence[int]] | None = None,
    spins: bool = False,
    busy: Sequence[JSON] = (),
) -> History:
    """A world of two that stood still: `places` gives each rank's thread the lines on its stack,
    innermost first.
    """
    first = {0: (3,), 1: (5,)} if places is None else places
    events = [
        Event(ns=0, by="harness", name="world.begin", values={"size": 2, "backend": "gloo"}),
        Event(ns=1, by="harness", name="world.start", values={"ranks": [0, 1]}),
        *(
            Event(ns=2, by="rank", rank=rank, pid=7 + rank, name="subject.begin", values={})
            for rank in (0, 1)
        ),
    ]
    ns = int(at * SECOND)
    values: dict[str, JSON] = {
        "seconds": seconds,
        "after": 0.1,
        "ranks": [0, 1],
        "spins": spins,
        "busy": [*busy],
    }
    events.append(Event(ns=ns, by="harness", name="world.still", values=values))
    for sample, stacks in ((1, first), (2, first if second is None else second)):
        for rank, lines in stacks.items():
            frames: list[JSON] = [frame(1, subject=False), *(frame(line) for line in lines)]
            told: dict[str, JSON] = {"sample": sample, "threads": [{"frames": frames}]}
            events.append(
                Event(ns=ns + sample, by="harness", rank=rank, name="rank.stack", values=told)
            )
    events.append(
        Event(
            ns=ns + 5, by="harness", name="world.stopped", values={"ranks": [0, 1], "why": "hang"}
        )
    )
    return History(sorted([*events, *more], key=lambda event: event.ns), size=2)


def stated(ranks: Any = (0,), *, within: str = "10s", **place: str) -> MustFail:
    asked = place or {"source": "dist.all_reduce(total)"}
    return MustFail.model_validate({"hang": asked, "ranks": list(ranks), "within": within})


def judged(history: History, must_fail: MustFail, *, silence: float = 0.05) -> DeviationCode | None:
    found = hang_deviation(
        must_fail,
        history,
        wanted=must_fail.ranks.of(2),
        silence=silence,
        line_of=lambda file, line: LINES.get((file, line)),
    )
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("must_fail", "places"),
    [
        (stated([0]), None),
        (stated([1], source="context.group.barrier()"), None),
        (stated([0, 1], function="check"), None),
        (stated([0, 1]), {0: (3,), 1: (5, 3)}),
    ],
)
def test_a_world_that_stands_still_at_the_stated_place_hangs(
    must_fail: MustFail, places: dict[int, Sequence[int]] | None
) -> None:
    """The line, or the function, is on the stack of exactly the stated ranks, at any depth."""
    assert judged(hung(places), must_fail) is None


SAID = Event(ns=2 * SECOND, by="rank", rank=1, pid=8, name="still.here", values={})
UNPROVED = {"code": "moving", "why": "process 7 went on"}


@pytest.mark.parametrize(
    ("history", "must_fail", "silence", "code"),
    [
        (hung(), stated([1]), 0.0, DeviationCode.HANG_ELSEWHERE),
        (hung(), stated([0, 1]), 0.0, DeviationCode.HANG_ELSEWHERE),
        (hung({0: (3,), 1: (3,)}), stated([0]), 0.0, DeviationCode.OTHER_RANKS),
        (hung(second={0: (5,), 1: (5,)}), stated([0]), 0.0, DeviationCode.HANG_ELSEWHERE),
        (hung({}), stated([0]), 0.0, DeviationCode.HANG_ELSEWHERE),
        (hung(), stated([0], source="dist.all_reduce(totl)"), 0.0, DeviationCode.HANG_ELSEWHERE),
        (hung(), stated([0], function="chek"), 0.0, DeviationCode.HANG_ELSEWHERE),
        (hung(), stated([0]), 0.3, DeviationCode.HANG_MOVING),
        (hung(seconds=1.9), stated([0]), 0.0, DeviationCode.HANG_MOVING),
        (hung(more=[SAID]), stated([0]), 0.0, DeviationCode.HANG_MOVING),
        (hung(), stated([0]), 1.1, DeviationCode.HANG_NOT_WITHIN),
        (hung(at=14.0), stated([0]), 0.0, DeviationCode.HANG_NOT_WITHIN),
        (
            hung(more=[Event(ns=4 * SECOND, by="harness", name="world.unproved", values=UNPROVED)]),
            stated([0]),
            0.0,
            DeviationCode.HANG_MOVING,
        ),
        (
            hung(
                more=[
                    Event(
                        ns=4 * SECOND,
                        by="harness",
                        name="world.unproved",
                        values={"code": "unreadable"},
                    )
                ]
            ),
            stated([0]),
            0.0,
            DeviationCode.HANG_UNREADABLE,
        ),
        (
            History([Event(ns=0, by="harness", name="world.begin", values={})], size=2),
            stated(),
            0,
            DeviationCode.NO_HANG,
        ),
    ],
)
def test_what_is_no_such_hang_is_told_as_what_it_is(
    history: History, must_fail: MustFail, silence: float, code: DeviationCode
) -> None:
    """Another place, rank or line, only one of two stacks, too short a stillness, a word in
    between, no proof.
    """
    assert judged(history, must_fail, silence=silence) == code


def test_a_program_hangs_after_its_last_event() -> None:
    """Programs have no stacks: the last event that a rank emitted says where it stands."""
    ready = [
        Event(ns=3, by="rank", rank=rank, pid=7 + rank, name="ready", values={}) for rank in (0, 1)
    ]
    asked = Event(ns=4, by="rank", rank=1, pid=8, name="asked", values={})
    history = hung({}, more=[*ready, asked])
    assert judged(history, stated([1], after="asked")) is None
    assert judged(history, stated([0], after="asked")) == DeviationCode.HANG_ELSEWHERE


def test_the_window_follows_the_candidates_silence() -> None:
    """Two seconds at least, ten times the longest silence, and no silence that the harness itself
    made.
    """
    assert [window(silence) for silence in (0.0, 0.2, 0.5)] == [2.0, 2.0, 5.0]

    def events(*more: tuple[float, str, str]) -> History:
        found = [Event(ns=0, by="harness", name="world.start", values={})]
        for at, by, name in more:
            found.append(Event(ns=int(at * SECOND), by=by, rank=0, pid=7, name=name, values={}))  # type: ignore[arg-type]
        return History(found, size=1)

    said = [(0.1, "rank", "a.begin"), (0.5, "rank", "a.end"), (0.6, "server", "rank.exited")]
    assert longest_silence(events(*said)) == pytest.approx(0.4)
    held = [(0.1, "rank", "a.begin"), (5.0, "harness", "gate.opened"), (5.2, "rank", "a.end")]
    assert longest_silence(events(*held)) == pytest.approx(0.2)


def test_where_ranks_stood_is_shown_with_their_source() -> None:
    """Each rank's calls, innermost first, with the text of the subject's lines from the arm's own
    files.
    """
    found = hung_trial(
        "control", hung(), index=3, evidence="x", line_of=lambda file, line: LINES.get((file, line))
    )
    assert found is not None
    assert found.proof == "The world stood still for 2.5 s."
    looped = hung_trial(
        "control", hung(spins=True, busy=[1]), index=3, evidence="x", line_of=lambda *_: None
    )
    assert looped is not None
    said = (
        "The world looped, busy for 90% of the time or more and within the same lines, for 2.5 s."
    )
    assert (looped.proof, BUSY_SHARE) == (said, 0.9)
    assert found.ranks[0].calls == [
        "torch/x.py:1 in check",
        "subject.py:3 in check: dist.all_reduce(total)",
    ]
    assert (
        hung_trial("control", History([], size=2), index=0, evidence="x", line_of=lambda *_: None)
        is None
    )


def test_the_call_in_which_a_rank_stood_comes_first() -> None:
    """Where calls are observed, each rank's last open one is told above its stack."""
    files = {
        0: encode(ledger(0, call(), call("barrier", shape="", dtype="", elements=0, state="open"))),
        1: encode(ledger(1, call(), receive(0))),
    }
    values = account(files, size=2, world=WORLD, asked={})
    seen = Event(ns=9 * SECOND, by="harness", name=LEDGERS_COMPARED, values=values)
    found = hung_trial("control", hung(more=[seen]), index=3, evidence="x", line_of=lambda *_: None)
    assert found is not None
    assert [one.calls[0] for one in found.ranks] == [
        "by its ledger in barrier #2 at step.py:9",
        "by its ledger after it called recv #1 from rank 0 of 4 float32 at step.py:9",
    ]


def test_a_hang_whose_ledgers_must_say_why_counts_only_where_they_do() -> None:
    """The named check has to fail by what it compared: holding, or comparing nothing, is another
    end.
    """
    hang = HangsAt(function="combine", fails="in-step")

    def said(**part: Any) -> DeviationCode | None:
        ranks = (RankFinding(rank=0, passed=True), RankFinding(rank=1, **part))
        found = does_not_say_why(
            hang, [Finding(check="in-step", kind="ledger-agrees", ranks=ranks)]
        )
        return None if found is None else found.code

    assert said(passed=False, reason="rank 0 made barrier #1, rank 1 made all_reduce #1") is None
    assert said(passed=True) is DeviationCode.CHECK_HELD
    assert (
        said(passed=False, reason="it left no ledger", uncompared=True)
        is DeviationCode.NOT_COMPARED
    )
    assert does_not_say_why(HangsAt(function="combine"), []) is None


def sampled(*lines: int) -> History:
    """A world in which rank 0 was asked at each of these lines, one after the other, while it was
    watched.
    """
    stacks = []
    for number, line in enumerate(lines):
        frames: list[JSON] = [frame(line), frame(3)]
        values: dict[str, JSON] = {"sample": number + 1, "threads": [{"frames": frames}]}
        stacks.append(
            Event(ns=SECOND + number, by="harness", rank=0, name="rank.stack", values=values)
        )
    history = hung({1: (5,)}, second={1: (5,)}, more=stacks, spins=True)
    for seen in history.noted("world.still"):
        seen.event.values["watched"] = True  # type: ignore[index]
    return history


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([7, 8, 9] * 7, None),
        ([7] * 20, None),
        ([7, 7, 7, 8, 9, 7] * 4, None),
        ([9, *[7, 8] * 10], None),  # once at the beginning, which a rare line does too
        ([7] * 4 + [8] * 16, DeviationCode.HANG_MOVING),
        ([7] * 10 + [8] * 10, DeviationCode.HANG_MOVING),
        ([7] * 16 + [8] * 4, DeviationCode.HANG_MOVING),
        ([7, 8] * 8 + [9] * 5, DeviationCode.HANG_MOVING),
    ],
)
def test_a_loop_comes_back_to_its_lines(lines: list[int], code: DeviationCode | None) -> None:
    """A line that each of the first or last samples has and no other one was left: the rank went
    on, and is slow.
    """
    assert judged(sampled(*lines), stated([0])) == code


@pytest.mark.parametrize(
    ("many", "call", "code"),
    [(7, "none", DeviationCode.HANG_MOVING), (8, "none", None), (2, "futex", None)],
)
def test_a_loop_that_was_hardly_asked_is_not_told(
    many: int, call: str, code: DeviationCode | None
) -> None:
    """With few samples nobody knows whether it left its lines.

    A main thread that waits is asked twice alone.
    """
    history = sampled(*[7] * many)
    for seen in history.noted("world.still"):
        seen.event.values["waits"] = {"0": call, "1": "futex"}  # type: ignore[index]
    assert judged(history, stated([0])) == code


@pytest.mark.parametrize(
    ("kind", "by", "rank"), [("rank.exited", "server", 1), ("said", "rank", 1)]
)
def test_who_goes_on_before_it_is_stopped_does_not_hang(kind: str, by: Any, rank: int) -> None:
    """An event or an end between the proof and the last stack is movement."""
    ns = 3 * SECOND + 4
    history = hung(
        more=[Event(ns=ns, by=by, rank=rank, pid=8, name=kind, values={"code": 0, "signal": None})]
    )
    assert judged(history, stated([0])) is None
    for seen in history.noted("world.still"):
        seen.event.values["watched"] = False  # type: ignore[index]
    assert judged(history, stated([0])) == DeviationCode.HANG_MOVING


def test_the_time_of_a_watch_is_not_counted_for_within() -> None:
    """A world that stood still in time is proved in time, however long it is watched afterwards."""
    assert judged(hung(seconds=10.0, at=19.0), stated([0])) is None
    assert judged(hung(seconds=2.0, at=19.0), stated([0])) == DeviationCode.HANG_NOT_WITHIN


def test_a_doubt_has_a_code_of_its_own() -> None:
    """A world that stood still and may go on by itself is told from one that moved."""
    doubt = Event(
        ns=4 * SECOND,
        by="harness",
        name="world.unproved",
        values={"code": "doubtful", "why": "a timer"},
    )
    assert judged(hung(more=[doubt]), stated([0])) == DeviationCode.HANG_DOUBTFUL
