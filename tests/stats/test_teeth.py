"""What is kept of the wrong arrays that were tried of a check, over all arrays and trials of a
cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.checks.arrays import NEEDLES_TRIED
from harness.events import Event
from harness.history import ARTEFACT_COMPARED, ARTEFACTS_ACCOUNTED, History
from harness.numeric.needles import LEAST, Needle, Needles
from harness.reason import Void, VoidCode
from harness.scenario import Cell, cells, parse_scenario
from harness.stats.outcome import JudgedTrial, Trial, no_lines
from harness.stats.teeth import Teeth, TriedNeedles

SCENARIO = b"""
schema: 1
id: teeth
title: t
question: q
subject:
  entry: subject:keep
  candidate: {with: {off: 0}}
  control: {with: {off: 1}, must_fail: {check: same, ranks: nonzero}}
matrix: {ranks: [2], backend: [none]}
checks:
  - {id: same, kind: close, ranks: every, artefact: it, against: 0, atol: 100}
"""


def found(
    *, refused: bool = False, elements: int = 2 * LEAST, what: str = "rolled", **more: Any
) -> Needles:
    """What was tried with one array of numbers that differ."""
    needle = Needle(what=what, telling=8, beyond=8 if refused else 0, passes=not refused)
    values = {"elements": elements, "scale": 1.0, "constant": False, "tried": [needle], **more}
    return Needles(**values)


def taken(*several: Needles) -> TriedNeedles:
    tried = TriedNeedles()
    for one in several:
        tried.take(one)
    return tried


@pytest.mark.parametrize("turned", [False, True])
def test_one_refused_needle_is_enough(*, turned: bool) -> None:
    """In whichever array it was refused, the check has teeth."""
    both = [found(refused=True), found()]
    assert taken(*(reversed(both) if turned else both)).refused
    assert not taken(found(), found()).refused


@pytest.mark.parametrize("turned", [False, True])
def test_the_largest_array_counts(*, turned: bool) -> None:
    """How many floats the largest holds, and the largest magnitude, in any order."""
    both = [found(elements=64, scale=3.0), found(elements=16, scale=None)]
    tried = taken(*(reversed(both) if turned else both))
    assert (tried.most, tried.scale) == (64, 3.0)


@pytest.mark.parametrize("turned", [False, True])
def test_one_array_with_other_numbers_is_not_constant(*, turned: bool) -> None:
    """Each of the arrays has to be one number; a small one says nothing of that."""
    both = [found(constant=True), found(constant=False)]
    assert not taken(*(reversed(both) if turned else both)).constant
    small = found(elements=LEAST - 1, constant=False)
    assert taken(found(constant=True), small).constant
    assert not taken(found(constant=True), found(elements=LEAST, constant=False)).constant


@pytest.mark.parametrize(("hollow", "is_hollow"), [(8, False), (9, True)])
def test_more_than_half_without_a_number_is_hollow(hollow: int, *, is_hollow: bool) -> None:
    """Exactly half is not more, and every array of the cell has to be so."""
    assert taken(found(elements=16, hollow=hollow)).hollow is is_hollow
    assert not taken(found(elements=16, hollow=9), found(elements=16)).hollow
    assert not taken(found(elements=16), found(elements=16, hollow=9)).hollow


def judged(cell: Cell, arm: Any, trial: Trial, finding: Finding, history: History) -> JudgedTrial:
    """A trial as it is handed to what keeps something over all of them."""
    return JudgedTrial(
        cell=cell, arm=arm, trial=trial, findings=[finding], history=history, line_of=no_lines
    )


def doubted(outcome: Any, *, refused: bool) -> tuple[bool, bool]:
    """Whether a cell of one trial is toothless, and whether anything is left open of it."""
    scenario = parse_scenario(SCENARIO, name="s.yaml")
    cell = cells(scenario)[0]
    teeth = Teeth(scenario)
    void = Void(VoidCode.NO_END, "its event log has no end") if outcome == "void" else None
    trial = Trial(index=0, seed="1", evidence="e", ms=1.0, outcome=outcome, void=void)
    values = {"check": "same", "needles": found(refused=refused).model_dump()}
    history = History([Event(ns=1, by="harness", name=NEEDLES_TRIED, values=values)], size=2)
    ranks = tuple(RankFinding(rank=rank, passed=True) for rank in (0, 1))
    finding = Finding(check="same", kind="close", ranks=ranks)
    teeth.take(judged(cell, "candidate", trial, finding, history))
    return bool(list(teeth.doubts(cell.id))), bool(teeth.left_open(cell.id))


def test_a_check_that_accepts_every_needle_is_toothless() -> None:
    """And one that refuses one is not."""
    assert doubted("pass", refused=False) == (True, False)
    assert doubted("pass", refused=True) == (False, False)


def test_a_void_trial_shows_no_teeth() -> None:
    """Nothing was tried in a cell whose only trial is void, and so nothing is said of it."""
    assert doubted("void", refused=False) == (False, False)


# -- what a cell shows -------------------------------------------------------------------------


def compared(rank: int = 1, **more: Any) -> Event:
    """The comparison of a rank's array of 16 numbers, of which two are too far, 5 at most."""
    values = {
        "shape": [16],
        "expected_shape": [16],
        "dtype": "float32",
        "expected_dtype": "float32",
        "elements": 16,
        "differing": 2,
        "beyond": 2,
        "worst": {"index": [0], "found": 5.0, "expected": 0.0},
        **more,
    }
    return Event(
        ns=2,
        by="harness",
        rank=rank,
        name=ARTEFACT_COMPARED,
        values={"check": "same", "comparison": values},
    )


def one_of(*tried: Needles, events: Sequence[Event] = ()) -> History:
    noted = [
        Event(
            ns=1,
            by="harness",
            name=NEEDLES_TRIED,
            values={"check": "same", "needles": one.model_dump()},
        )
        for one in tried
    ]
    return History([*noted, *events], size=2)


def told(
    candidate: History, control: History | None = None, *, text: bytes = SCENARIO, **failed: Any
) -> tuple[list[str], list[str]]:
    """Of a cell with a trial of each arm, in which the control's rank 1 failed: its doubts, and
    what is left open.
    """
    scenario = parse_scenario(text, name="s.yaml")
    cell = cells(scenario)[0]
    teeth = Teeth(scenario)
    passed = RankFinding(rank=0, passed=True)
    fell = RankFinding(rank=1, passed=False, reason="it is off", **failed)
    arms: list[tuple[Any, Any, History | None, RankFinding]] = [
        ("candidate", "pass", candidate, passed._replace(rank=1)),
        ("control", "fail", control, fell),
    ]
    for arm, outcome, history, part in arms:
        if history is not None:
            trial = Trial(index=0, seed="1", evidence="e", ms=1.0, outcome=outcome)
            finding = Finding(check="same", kind="close", ranks=(passed, part))
            teeth.take(judged(cell, arm, trial, finding, history))
    return [str(reason) for reason in teeth.doubts(cell.id)], teeth.left_open(cell.id)


@pytest.mark.parametrize(("scale", "has_teeth"), [(4.9, False), (5.0, True), (5.1, True)])
def test_a_control_is_tooth_enough_up_to_the_largest_number(
    scale: float, *, has_teeth: bool
) -> None:
    """A departure as large as the largest number compared counts, and a larger one does not."""
    doubts, left = told(one_of(found(scale=scale)), one_of(events=[compared()]))
    assert bool(doubts) is not has_teeth
    assert bool(left) is has_teeth
    words = "Only the control shows that the check can fail, with a difference of 5"
    assert all(words in one for one in left)
    assert all("accepts every wrong array that the harness tried" in one for one in doubts)


def test_a_control_that_could_not_be_compared_is_no_tooth() -> None:
    """Another dtype fails it whatever the numbers are, and so does what is not a number."""
    for more in ({"uncompared": True}, {"lacks": "nonfinite"}, {"lacks": "shape"}):
        doubts, left = told(
            one_of(found(scale=9.0)), one_of(events=[compared(dtype="float64")]), **more
        )
        assert len(doubts) == 1
        assert left == []


def test_a_constant_array_has_no_place_that_could_be_wrong() -> None:
    """Every array contains a single number: that is the reason, and nothing is told of wrong
    arrays.
    """
    (doubt,), left = told(one_of(found(constant=True, tried=[])))
    assert "contains a single number (1 in size)" in doubt
    assert left == []


@pytest.mark.parametrize(("elements", "is_enough"), [(LEAST - 1, False), (LEAST, True)])
def test_eight_numbers_are_an_array(elements: int, *, is_enough: bool) -> None:
    """In fewer nothing could be at the wrong place: no doubt, and a sentence that none was
    tried.
    """
    doubts, left = told(one_of(found(elements=elements)))
    assert bool(doubts) is is_enough
    assert bool(left) is not is_enough
    assert all("no array of 8 floats or more was compared" in one for one in left)


def test_without_a_wrong_array_nothing_is_shown() -> None:
    """An array of numbers that differ, and none of its shape elsewhere: neither toothless nor
    shown.
    """
    for elements in (LEAST, 4 * LEAST):
        doubts, (left,) = told(one_of(found(tried=[], elements=elements)))
        assert doubts == []
        assert "no wrong array was tried" in left
        assert "there was no other array of the same shape" in left
    doubts, (left,) = told(one_of())
    assert doubts == []
    assert "no array of 8 floats or more was compared" in left


@pytest.mark.parametrize(("telling", "is_told"), [(7, True), (8, False), (16, False)])
def test_a_refused_needle_that_differs_in_few_elements_shows_little(
    telling: int, *, is_told: bool
) -> None:
    """Less than half of the elements could be told apart: the others may never have been
    computed.
    """
    needle = Needle(what="rolled", telling=telling, beyond=telling, passes=False)
    doubts, left = told(one_of(found(tried=[needle])))
    assert doubts == []
    sentence = (
        "of 16 elements that check same compares, no tried wrong array differs in more than"
        f" {telling}. The others are equal or masked, so this run does not show that they were"
        " computed"
    )
    assert left == ([sentence] if is_told else [])


MASKED = SCENARIO.replace(b"atol: 100", b"atol: 100, nonfinite: allowed")


@pytest.mark.parametrize(
    ("text", "nonfinite", "is_told"),
    [
        (MASKED, [9, 9], True),
        (MASKED, [8, 8], False),
        (MASKED, [9, 8], False),
        (SCENARIO, [9, 9], False),
    ],
)
def test_a_rank_that_agrees_on_nan_is_named(
    text: bytes, nonfinite: list[int], *, is_told: bool
) -> None:
    """More than half on both sides, where that is allowed, and on the candidate's ranks alone."""
    many = compared(beyond=0, differing=0, worst=None, nonfinite=nonfinite)
    needles = found(refused=True)
    words = "more than half of the values that check same compared on rank 1 are NaN or infinite on both sides"
    assert told(one_of(needles, events=[many]), text=text)[1] == ([words] if is_told else [])
    assert told(one_of(needles), one_of(events=[many]), text=text)[1] == []


def test_what_is_left_open_of_a_cell_is_its_own() -> None:
    """Nothing of another cell is told, and nothing of one in which no trial ran."""
    scenario = parse_scenario(MASKED.replace(b"ranks: [2]", b"ranks: [2, 3]"), name="s.yaml")
    teeth = Teeth(scenario)
    first, second = cells(scenario)
    trial = Trial(index=0, seed="1", evidence="e", ms=1.0, outcome="pass")
    many = compared(beyond=0, differing=0, worst=None, nonfinite=[9, 9])
    for cell, events in ((first, [many]), (second, [])):
        assert teeth.left_open(cell.id) == []
        finding = Finding(check="same", kind="close", ranks=(RankFinding(rank=1, passed=True),))
        history = one_of(found(refused=True), events=events)
        teeth.take(judged(cell, "candidate", trial, finding, history))
    assert len(teeth.left_open(first.id)) == 1
    assert teeth.left_open(second.id) == []


VALUES = SCENARIO.replace(
    b"artefact: it, against: 0, atol: 100", b"value: score.logits, against: 0, atol: 1"
)


def scored(*reports: list[float]) -> History:
    """Both ranks report the same lists, one after the other."""
    events = [
        Event(
            ns=number,
            by="rank",
            rank=rank,
            pid=7 + rank,
            name="score",
            values={"logits": [*report]},
        )
        for rank in (0, 1)
        for number, report in enumerate(reports)
    ]
    return History(events, size=2)


def test_of_values_wrong_ones_are_tried_too() -> None:
    """Each list that was reported is tried once, and one that came again ends nothing."""
    flat = [1.0] * LEAST
    near = [0.5 * (number % 2) for number in range(LEAST + 1)]
    rising = [float(number) for number in range(2 * LEAST)]
    assert "a single number" in told(scored(flat), text=VALUES)[0][0]
    assert "accepts every wrong array" in told(scored(near), text=VALUES)[0][0]
    assert told(scored(rising), text=VALUES)[0] == []
    assert told(scored(flat, flat, rising), text=VALUES)[0] == []
    assert "a single number" in told(scored(flat, flat), text=VALUES)[0][0]


REFERENCE = b"""
schema: 1
id: teeth
title: t
question: q
subject:
  entry: subject:keep
  candidate: {with: {off: 0}}
  control: {with: {off: 1}, must_fail: {check: same, ranks: every}}
  reference: {with: {off: 0}}
matrix: {ranks: [2], backend: [gloo]}
checks:
  - {id: near, kind: close, ranks: every, value: score.off, to: 0.5, atol: 5}
  - {id: same, kind: equivalent, ranks: every, against: reference}
"""


@pytest.mark.parametrize(
    ("needles", "is_toothless"), [(found(), True), (found(refused=True), False), (None, False)]
)
def test_the_reference_tells_what_equivalence_makes_of_wrong_logits(
    needles: Needles | None, *, is_toothless: bool
) -> None:
    """Its second run was compared with wrong ones; where none was tried nothing is doubted."""
    scenario = parse_scenario(REFERENCE, name="s.yaml")
    cell = cells(scenario)[0]
    account: Any = {"dtype": "float32", "phases": {}, "sensitivity": [], "ranks": []}
    if needles is not None:
        account["needles"] = needles.model_dump()
    teeth = Teeth(scenario)
    values = {"check": "same", "account": account}
    teeth.take_reference(
        cell, History([Event(ns=1, by="harness", name=ARTEFACTS_ACCOUNTED, values=values)], size=1)
    )
    assert bool(list(teeth.doubts(cell.id))) is is_toothless
    bare = Teeth(scenario)
    bare.take_reference(cell, History([], size=1))
    assert list(bare.doubts(cell.id)) == []
