"""Exact statistics against published values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.intervals import binomial_at_most, fisher, lower_bound, upper_bound, wilson

PAIRS = st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("trials", "bound"),
    [
        (1, 0.95),
        (3, 0.632),
        (5, 0.451),
        (10, 0.259),
        (20, 0.139),
        (30, 0.095),
        (59, 0.0495),
        (100, 0.0295),
        (299, 0.00997),
    ],
)
def test_no_failures_give_the_closed_form(trials: int, bound: float) -> None:
    """With no failure the bound is 1 - 0.05^(1/n), the table every textbook prints."""
    assert upper_bound(0, trials, confidence=0.95) == pytest.approx(bound, abs=5e-4)
    assert upper_bound(0, trials, confidence=0.95) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-9)


@pytest.mark.parametrize(
    ("failures", "trials", "low", "high"),
    [
        # Two-sided 95 % Clopper-Pearson intervals, as printed by R's binom.test.
        (10, 100, 0.04900469, 0.17622260),
        (1, 10, 0.002528579, 0.445016117),
        (5, 10, 0.187086, 0.812914),
        (0, 10, 0.0, 0.3084971),
        (10, 10, 0.6915029, 1.0),
        (7, 20, 0.1539092, 0.5921885),
    ],
)
def test_clopper_pearson_equals_published_intervals(failures: int, trials: int, low: float, high: float) -> None:
    """Both one-sided bounds at 97.5 % are the two-sided 95 % interval of R's binom.test."""
    assert lower_bound(failures, trials, confidence=0.975) == pytest.approx(low, abs=1e-6)
    assert upper_bound(failures, trials, confidence=0.975) == pytest.approx(high, abs=1e-6)


@pytest.mark.parametrize(
    ("table", "p"),
    [
        ((3, 3, 0, 3), 0.05),
        ((5, 5, 0, 5), 1 / 252),
        ((5, 5, 0, 59), 1 / math.comb(64, 5)),
        # Fisher's tea: three of four cups right, and all four.
        ((3, 4, 1, 4), 17 / 70),
        ((4, 4, 0, 4), 1 / 70),
        ((0, 5, 0, 59), 1.0),
    ],
)
def test_fisher_equals_exact_fractions(table: tuple[int, int, int, int], p: float) -> None:
    """Fisher's one-sided p is the exact hypergeometric tail, as in the tea-tasting experiment."""
    assert fisher(*table) == pytest.approx(p, rel=1e-12)


def test_wilson_equals_the_published_interval() -> None:
    """Wilson's interval for 10 of 100 is the one Newcombe (1998) and every calculator print."""
    low, high = wilson(10, 100, confidence=0.95)
    assert (low, high) == (pytest.approx(0.0552291, abs=1e-6), pytest.approx(0.1743657, abs=1e-6))
    assert wilson(0, 0, confidence=0.95) == (0.0, 1.0)


@given(PAIRS)
def test_the_bound_covers_the_observed_rate_and_grows_with_failures(pair: tuple[int, int]) -> None:
    """The upper bound is never below what was seen, and one failure more never lowers it."""
    failures, trials = pair
    bound = upper_bound(failures, trials, confidence=0.95)
    assert 0.0 <= bound <= 1.0
    if trials:
        assert bound >= failures / trials
    if failures < trials:
        assert upper_bound(failures + 1, trials, confidence=0.95) >= bound
        assert binomial_at_most(failures, trials, bound) == pytest.approx(0.05, abs=1e-6)


@given(PAIRS, PAIRS)
def test_fisher_is_a_probability_and_symmetric_under_exchange(a: tuple[int, int], b: tuple[int, int]) -> None:
    """Swapping arms and outcomes together gives the same p."""
    p = fisher(*a, *b)
    assert 0.0 < p <= 1.0
    assert fisher(b[1] - b[0], b[1], a[1] - a[0], a[1]) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("bad", [(-1, 5, 0.95), (6, 5, 0.95), (0, 5, 0.0), (0, 5, 1.0)])
def test_arguments_out_of_range_are_refused(bad: tuple[int, int, float]) -> None:
    """A negative count, more failures than trials and a confidence of 0 or 1 are errors, not numbers."""
    with pytest.raises(ValueError, match="lie between"):
        upper_bound(bad[0], bad[1], confidence=bad[2])
