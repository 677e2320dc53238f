"""Numbers of trials: what lint says before a run is what the verdict will say after it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.forms.problem import ScenarioError
from harness.scenario import StatedShare, trials_needed
from harness.scenario.lint.sufficiency import chance, clean_bound, control_trials_needed, failures
from harness.scenario.load import load_scenario
from harness.stats.rates import fisher, upper_bound

SCENARIO = """
schema: 1
id: few
title: Few
question: Are these enough?
ROLE
subject:
  entry: subject:go
  candidate: {with: {broken: false}}
  control: {with: {broken: true}, must_fail: {check: ended, ranks: every, ERRORshare: SHARE}}
matrix: {ranks: [2], backend: [none]}
trials: {candidate: CANDIDATE, control: CONTROL, accept: {failure_rate_below: 60%}}
checks: [{id: ended, kind: event, ranks: every, event: ended}]
"""


@pytest.fixture
def notes(tmp_path: Any) -> Any:
    """What is said about a scenario with such numbers: kind, key and message of each."""

    def find(
        *,
        candidate: int,
        control: int,
        share: str,
        role: str = "role: claim",
        error: str = "error: OSError, message: full, ",
    ) -> list[tuple[str, str, str]]:
        text = (
            SCENARIO.replace("ERROR", error)
            .replace("CANDIDATE", str(candidate))
            .replace("CONTROL", str(control))
        )
        (tmp_path / "scenario.yaml").write_text(text.replace("SHARE", share).replace("ROLE", role))
        try:
            found = load_scenario(tmp_path).notes
        except ScenarioError as refused:
            found = tuple(refused.problems)
        return [(one.kind, one.key, one.message) for one in found]

    return find


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_the_chance_is_fishers_exact_test(
    candidate: int, control: int, data: st.DataObject
) -> None:
    """One term in logarithms is what the verdict adds up in whole numbers."""
    failed = data.draw(st.integers(1, control))
    assert chance(candidate=candidate, control=control, failed=failed) == pytest.approx(
        fisher(failed, control, 0, candidate), rel=1e-9
    )


@given(st.integers(1, 2000), st.floats(0.5, 0.999))
def test_the_bound_is_clopper_and_pearsons(trials: int, confidence: float) -> None:
    """The closed form for clean trials is the bound that the verdict finds by halving."""
    assert clean_bound(trials, confidence=confidence) == pytest.approx(
        upper_bound(0, trials, confidence=confidence), rel=1e-9
    )


def test_trials_needed_are_59_and_299() -> None:
    """59 clean trials put the rate below 5 %, 299 below 1 %, and one trial less does not."""
    for below, count in ((0.05, 59), (0.01, 299), (0.5, 5)):
        assert trials_needed(below=below, confidence=0.95) == count
        assert (
            upper_bound(0, count, confidence=0.95)
            < below
            <= upper_bound(0, count - 1, confidence=0.95)
        )


def test_a_bound_at_the_limit_is_not_below_it() -> None:
    """One clean trial bounds the rate by just 50 % at 50 % confidence: the verdict asks for less
    than that.
    """
    assert trials_needed(below=0.5, confidence=0.5) == 2


@pytest.mark.parametrize(
    ("rate", "candidate"), [(1.0, 3), (1.0, 59), (0.5, 8), (0.2, 59), (0.2, 20), (0.01, 20)]
)
def test_it_is_the_least_number_that_fisher_tells_apart(rate: float, candidate: int) -> None:
    """The number is that of the exact test."""
    needed = control_trials_needed(StatedShare(every=False, at_least=rate), candidate=candidate)
    assert needed is not None
    assert fisher(math.ceil(rate * needed), needed, 0, candidate) < 0.05
    assert all(fisher(math.ceil(rate * n), n, 0, candidate) >= 0.05 for n in range(1, needed))


def test_a_share_is_met_in_whole_trials() -> None:
    """At least one failure, and never a share that rounding raised by one."""
    assert failures(StatedShare(every=False, at_least=0.05), 3) == 1
    assert failures(StatedShare(every=False, at_least=0.2), 10) == 2
    assert failures(StatedShare(every=False, at_least=0.07), 100) == 7


def test_what_no_number_can_show_is_said_at_once(notes: Any) -> None:
    """Beside four trials of the candidate, a failure in a fifth of the trials could always be
    chance.
    """
    assert control_trials_needed(StatedShare(every=False, at_least=0.2), candidate=4) is None
    ((kind, key, message),) = notes(candidate=4, control=300, share='">=20%"')
    assert (kind, key) == ("note", "subject.control.must_fail.share")
    assert "more trials of the candidate are needed" in message


def test_a_control_that_always_fails_needs_trials_too(notes: Any) -> None:
    """The verdict asks Fisher's test of every control, so one of one beside four is not enough, and
    that is said.
    """
    ((kind, key, message),) = notes(candidate=4, control=1, share="every")
    assert (kind, key) == ("note", "trials.control")
    assert "3 trials of the control are needed" in message
    assert notes(candidate=4, control=3, share="every") == []


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("role: claim", 2),
        ("role: self-test\nexpects: PASS", 2),
        ("role: self-test\nexpects: FAIL", 0),
        ("role: upstream", 1),
    ],
)
def test_who_does_not_mean_to_pass_is_not_advised(role: str, said: int, notes: Any) -> None:
    """Each thing is said once, and to those whose verdict it decides."""
    found = notes(candidate=1, control=1, share="every", role=role)
    assert len(found) == said
    assert len({message for _, _, message in found}) == said


@pytest.mark.parametrize(
    ("end", "key"),
    [
        ("", "must_fail"),
        ("error: OSError, ", "must_fail.error"),
        ("code: 3, signal: SIGSEGV, ", "must_fail.code"),
        ("signal: 9, ", "must_fail.signal"),
        ("source: fail(), ", None),
        ("error: OSError, message: full, ", None),
        ("signal: SIGSEGV, ", None),
        ("code: 3, ", None),
    ],
)
def test_a_control_that_may_fail_by_a_slip_is_refused(
    end: str, key: str | None, notes: Any
) -> None:
    """A rank ends by a slip as well: a check of its end counts only with the end that is the bug,
    and one of it.
    """
    found = notes(candidate=59, control=5, share="every", error=end)
    # Without an end, a rank that returns and never emits the event still counts.
    told = "error" if end else "note"
    assert [(kind, where) for kind, where, _ in found] == [(told, f"subject.control.{key}")] * (
        key is not None
    )
