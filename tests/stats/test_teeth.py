"""What is kept of the wrong arrays that were tried of a check, over all arrays and trials of a cell."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import Finding, RankFinding
from harness.checks.needled import NEEDLES_TRIED
from harness.events import Event
from harness.history import History
from harness.numeric.needles import LEAST, Needle, Needles
from harness.reason import Void, VoidCode
from harness.scenario import cells, parse_scenario
from harness.stats.outcome import Trial
from harness.stats.teeth import Teeth, Tried

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


def found(*, refused: bool = False, elements: int = 2 * LEAST, what: str = "rolled", **more: Any) -> Needles:
    """What was tried with one array of numbers that differ."""
    needle = Needle(what=what, telling=8, beyond=8 if refused else 0, passes=not refused)
    values = {"elements": elements, "scale": 1.0, "constant": False, "tried": [needle], **more}
    return Needles(**values)


def taken(*several: Needles) -> Tried:
    tried = Tried()
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


def doubted(outcome: Any, *, refused: bool) -> tuple[bool, bool]:
    """Whether a cell of one trial is toothless, and whether anything is left open of it."""
    scenario = parse_scenario(SCENARIO, name="s.yaml")
    cell = cells(scenario)[0]
    teeth = Teeth(scenario)
    void = Void(VoidCode.NO_END, "its events have no end") if outcome == "void" else None
    trial = Trial(index=0, seed="1", evidence="e", ms=1.0, outcome=outcome, void=void)
    values = {"check": "same", "needles": found(refused=refused).model_dump()}
    history = History([Event(ns=1, by="harness", name=NEEDLES_TRIED, values=values)], size=2)
    ranks = tuple(RankFinding(rank=rank, passed=True) for rank in (0, 1))
    finding = Finding(check="same", kind="close", ranks=ranks)
    teeth.take(cell, "candidate", trial, [finding], history)
    return bool(list(teeth.doubts(cell.id))), bool(teeth.left_open(cell.id))


def test_a_check_that_accepts_every_needle_is_toothless() -> None:
    """And one that refuses one is not."""
    assert doubted("pass", refused=False) == (True, False)
    assert doubted("pass", refused=True) == (False, False)


def test_a_void_trial_shows_no_teeth() -> None:
    """Nothing was tried in a cell whose only trial is void, and so nothing is said of it."""
    assert doubted("void", refused=False) == (False, False)
