"""What the counts of both arms decide, exactly at each bound."""

from __future__ import annotations

from typing import Any

import pytest

from harness.reason import VerdictCode, Void, VoidCode
from harness.scenario import SIGNIFICANT, Scenario
from harness.stats.outcome import Trial
from harness.stats.rates import fisher, upper_bound
from harness.stats.tally import Starts, Tally, tally, tally_control
from harness.stats.verdict import decide
from tests.stats.test_verdict import scenario


def counted(*, trials: int, failed: int, upper: float = 0.01) -> Tally:
    """An arm with these counts, whose bound is what the test says."""
    return Tally(
        trials=[], counted=trials, failed=failed, voids=0, upper=upper, upper_with_voids=upper
    )


def control(asked: Scenario, *, p_value: float = 0.001, as_stated: int = 5) -> Tally:
    """The control's counts: every trial failed, as required in so many."""
    counts = counted(trials=asked.trials.control, failed=asked.trials.control)
    return counts.model_copy(update={"as_stated": as_stated, "p_value": p_value})


def codes(asked: Scenario, candidate: Tally, other: Tally | None) -> tuple[str, list[VerdictCode]]:
    """The verdict, and the codes of its reasons."""
    word, reasons = decide(asked, candidate, other, ())
    return word, [reason.code for reason in reasons]


@pytest.mark.parametrize(("upper", "word"), [(0.0499, "PASS"), (0.05, "FAIL"), (0.0501, "FAIL")])
def test_a_bound_that_is_as_high_as_what_is_accepted_fails(upper: float, word: str) -> None:
    """Below 5 % is asked, so a bound of exactly 5 % is not enough where a trial failed."""
    asked = scenario()
    found, reasons = codes(asked, counted(trials=200, failed=1, upper=upper), control(asked))
    assert (found, reasons) == (word, [VerdictCode.FAILURE_RATE] if word == "FAIL" else [])


@pytest.mark.parametrize(("upper", "word"), [(0.0499, "PASS"), (0.05, "INCONCLUSIVE")])
def test_too_few_clean_trials_by_the_same_bound(upper: float, word: str) -> None:
    """A bound of exactly 5 % is not below it where no trial failed either."""
    asked = scenario()
    found, reasons = codes(asked, counted(trials=59, failed=0, upper=upper), control(asked))
    assert (found, reasons) == (word, [VerdictCode.TOO_FEW_TRIALS] if word != "PASS" else [])


@pytest.mark.parametrize(
    ("p_value", "word"), [(0.0499, "PASS"), (0.05, "INCONCLUSIVE"), (0.07, "INCONCLUSIVE")]
)
def test_what_sets_a_control_apart(p_value: float, word: str) -> None:
    """Fisher's one-sided p has to be below 0.05: neither at it nor 0.07."""
    asked = scenario(share='">=20%"')
    candidate = counted(trials=59, failed=0)
    found, reasons = codes(asked, candidate, control(asked, p_value=p_value))
    assert (found, reasons) == (word, [VerdictCode.CONTROL_NOT_APART] if word != "PASS" else [])


def test_the_level_of_significance_is_the_documented_one() -> None:
    """docs/architecture.md and every report say 0.05."""
    assert SIGNIFICANT == 0.05


def test_a_control_that_never_ran_shows_nothing() -> None:
    """The scenario has a control and the cell has no trial of it: nothing shows that the checks can
    fail.
    """
    asked = scenario()
    assert codes(asked, counted(trials=59, failed=0), None) == (
        "INCONCLUSIVE",
        [VerdictCode.NO_CONTROL],
    )


@pytest.mark.parametrize(
    ("holds", "said"),
    [(False, "failed as required in 4 of 5"), (True, "held as required in 4 of 5")],
)
def test_the_reason_says_what_was_stated(holds: bool, said: str) -> None:
    """A control that has to fail failed in too few trials; one that has to hold held in too few."""
    asked = scenario()
    _, reasons = decide(
        asked, counted(trials=59, failed=0), control(asked, as_stated=4), (), holds=holds
    )
    assert any(said in str(reason) for reason in reasons)


def a_trial(index: int, outcome: Any, *, as_stated: bool | None = None) -> Trial:
    void = Void(VoidCode.NO_END, "its event log has no end") if outcome == "void" else None
    return Trial(
        index=index,
        seed="1",
        evidence="e",
        ms=1.0,
        outcome=outcome,
        as_stated=as_stated,
        void=void,
    )


def trials(passed: int, failed: int, void: int) -> list[Trial]:
    outcomes = ["pass"] * passed + ["fail"] * failed + ["void"] * void
    return [a_trial(index, outcome) for index, outcome in enumerate(outcomes)]


def test_void_trials_are_counted_in_a_bound_of_their_own() -> None:
    """The bound is of the trials that counted.

    The other one takes each void trial for a failure.
    """
    found = tally(scenario(), trials(56, 1, 3))
    assert (found.counted, found.failed, found.voids) == (57, 1, 3)
    assert found.upper == pytest.approx(upper_bound(1, 57, confidence=0.95))
    assert found.upper_with_voids == pytest.approx(upper_bound(4, 60, confidence=0.95))


def test_a_control_is_held_against_the_candidate_by_what_failed_as_stated() -> None:
    """Failures of another sort set nothing apart: only those as required go into Fisher's test."""
    asked = scenario(control=5)
    candidate = tally(asked, trials(18, 2, 0))
    control = [a_trial(index, "fail", as_stated=index < 3) for index in range(5)]
    found = tally_control(asked, control, candidate, {})
    assert (found.failed, found.as_stated) == (5, 3)
    assert found.p_value == pytest.approx(fisher(3, 5, 2, 20))


def test_the_asked_share_is_of_all_trials_of_the_control() -> None:
    """Two of three failures are less than half of five trials, though more than half of the
    failures.
    """
    asked = scenario(share='">=50%"')
    candidate = counted(trials=59, failed=0)
    other = counted(trials=5, failed=3).model_copy(update={"as_stated": 2, "p_value": 0.001})
    assert codes(asked, candidate, other) == ("INCONCLUSIVE", [VerdictCode.CONTROL_NOT_AS_STATED])
    enough = other.model_copy(update={"as_stated": 3})
    assert codes(asked, candidate, enough) == ("PASS", [])


def test_a_start_that_ended_between_two_trials_fails_the_cell() -> None:
    """No trial failed, and the bound is over starts: two of three of them failed."""
    starts = Starts(of={0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}, ended={0, 2})
    found = tally(scenario(), trials(6, 0, 0), starts)
    assert found.starts is not None
    assert (found.failed, found.starts.counted, found.starts.failed) == (0, 3, 2)
    assert found.upper == pytest.approx(upper_bound(2, 3, confidence=0.95))
    word, reasons = decide(scenario(), found, None, ())
    assert word == "FAIL"
    assert "0 of 6 trials failed, and 2 of 3 starts of the services" in str(reasons[0])


def test_a_void_trial_spoils_its_start() -> None:
    """The second bound counts a start with a void trial as failed, beside trials that count."""
    starts = Starts(of={0: 0, 1: 1, 2: 1})
    found = tally(scenario(), trials(2, 0, 1), starts)
    assert found.starts is not None
    assert (found.starts.counted, found.starts.voids) == (2, 1)
    assert found.upper_with_voids == pytest.approx(upper_bound(1, 2, confidence=0.95))
