"""What the counts of both arms decide, exactly at each bound."""

from __future__ import annotations

import pytest

from harness.reason import VerdictCode
from harness.scenario import SIGNIFICANT, Scenario
from harness.stats.tally import Tally, decide
from tests.stats.test_verdict import scenario


def counted(*, trials: int, failed: int, upper: float = 0.01) -> Tally:
    """An arm with these counts, whose bound is what the test says."""
    return Tally(trials=[], counted=trials, failed=failed, voids=0, upper=upper, upper_with_voids=upper)


def control(asked: Scenario, *, p_value: float = 0.001, as_stated: int = 5) -> Tally:
    """The control's counts: every trial failed, as stated in so many."""
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


@pytest.mark.parametrize(("p_value", "word"), [(0.0499, "PASS"), (0.05, "INCONCLUSIVE"), (0.07, "INCONCLUSIVE")])
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
    """The scenario has a control and the cell has no trial of it: nothing shows that the checks can fail."""
    asked = scenario()
    assert codes(asked, counted(trials=59, failed=0), None) == ("INCONCLUSIVE", [VerdictCode.NO_CONTROL])


@pytest.mark.parametrize(("holds", "said"), [(False, "failed as stated in 4 of 5"), (True, "held as stated in 4 of 5")])
def test_the_reason_says_what_was_stated(holds: bool, said: str) -> None:
    """A control that has to fail failed in too few trials; one that has to hold held in too few."""
    asked = scenario()
    _, reasons = decide(asked, counted(trials=59, failed=0), control(asked, as_stated=4), (), holds=holds)
    assert any(said in str(reason) for reason in reasons)
