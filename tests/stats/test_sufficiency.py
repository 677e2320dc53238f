"""Advice on numbers of trials: worked out before a run, and always in a moment."""

from __future__ import annotations

import math

import pytest

from harness.scenario import parse_scenario
from harness.stats.intervals import fisher
from harness.stats.sufficiency import advice, control_trials_needed

SCENARIO = """
schema: 1
id: few
title: Few
question: Are these enough?
subject:
  entry: subject:go
  candidate: {with: {broken: false}}
  control: {with: {broken: true}, must_fail: {check: ended, ranks: every, share: ">=20%"}}
matrix: {ranks: [2], backend: [none]}
trials: {candidate: CANDIDATE, control: CONTROL, accept: {failure_rate_below: 60%}}
checks: [{id: ended, kind: exit, ranks: every, code: 0}]
"""


@pytest.mark.parametrize(("rate", "candidate"), [(1.0, 3), (1.0, 59), (0.5, 8), (0.2, 59), (0.2, 20)])
def test_it_is_the_least_number_that_fisher_tells_apart(rate: float, candidate: int) -> None:
    """The number is that of the exact test, worked out in logarithms."""
    needed = control_trials_needed(rate=rate, candidate=candidate)
    assert needed is not None
    assert fisher(math.ceil(rate * needed), needed, 0, candidate) < 0.05
    assert all(fisher(math.ceil(rate * n), n, 0, candidate) >= 0.05 for n in range(1, needed))


def test_what_no_number_can_show_is_said_at_once() -> None:
    """Beside four trials of the candidate, a failure in a fifth of the trials could always be chance."""
    assert control_trials_needed(rate=0.2, candidate=4) is None
    scenario = parse_scenario(SCENARIO.replace("CANDIDATE", "4").replace("CONTROL", "300").encode(), name="s.yaml")
    assert any("no number of them would do beside 4" in line for line in advice(scenario))
