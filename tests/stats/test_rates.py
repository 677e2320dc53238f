"""Exact statistics of counts, against values that are published, known, or can be counted by
hand.
"""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.rates import (
    binomial_at_most,
    fisher,
    fisher_two_sided,
    lower_bound,
    mcnemar,
    pairs_to_tell,
    trials_to_tell,
    upper_bound,
    wilson,
)


@pytest.mark.parametrize(
    ("only_a", "only_b", "expected"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 0.0625),
        (6, 0, 0.03125),
        (0, 6, 0.03125),
        (2, 10, 0.03857421875),
        (4, 4, 1.0),
    ],
)
def test_mcnemar(only_a: int, only_b: int, expected: float) -> None:
    """McNemar's exact p is twice the smaller tail of a fair coin: 6 against none is the first below
    5 %.
    """
    assert mcnemar(only_a, only_b) == expected


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_is_what_counting_says(only_a: int, only_b: int) -> None:
    """Every way in which the discordant pairs could have fallen, counted one by one."""
    both = only_a + only_b
    extreme = max(only_a, only_b)
    ways = sum(math.comb(both, k) for k in range(both + 1) if max(k, both - k) >= extreme)
    assert mcnemar(only_a, only_b) == pytest.approx(min(1.0, ways / 2**both))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ((3, 59, 0, 59), 2 * math.comb(59, 3) / math.comb(118, 3)),
        ((5, 5, 0, 5), 2 / math.comb(10, 5)),
        ((0, 59, 0, 59), 1.0),
        ((0, 0, 3, 59), 1.0),
        # Groups of two sizes, where twice the smaller tail would be another number; R and SciPy
        # print these.
        ((3, 10, 0, 40), 0.006122448979591837),
        ((0, 40, 3, 10), 0.006122448979591837),
        ((2, 59, 2, 5), 0.027865389942333365),
        ((8, 10, 1, 6), 0.03496503496503495),  # the whales and sharks of SciPy's documentation
        ((1, 20, 6, 20), 0.09147609147609148),
    ],
)
def test_fisher_two_sided(table: tuple[int, int, int, int], expected: float) -> None:
    """Known values: 3 of 59 against 0 of 59 is 0.24, and so no difference."""
    assert fisher_two_sided(*table) == pytest.approx(expected, rel=1e-12)


TRIALS = st.integers(0, 150).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.whole
def test_fisher_is_scipys() -> None:
    """SciPy's two-sided test gives the same p for any two counts."""
    from scipy import stats

    @given(TRIALS, TRIALS)
    def same(a: tuple[int, int], b: tuple[int, int]) -> None:
        expected = stats.fisher_exact([[a[0], a[1] - a[0]], [b[0], b[1] - b[0]]]).pvalue
        assert fisher_two_sided(*a, *b) == pytest.approx(float(expected), rel=1e-9)

    same()


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_fisher_is_what_counting_says(
    failed_a: int, passed_a: int, failed_b: int, passed_b: int
) -> None:
    """Every way to deal the failures to the trials, counted one by one."""
    first, second, failed = failed_a + passed_a, failed_b + passed_b, failed_a + failed_b
    dealt = [
        sum(i < first for i in chosen)
        for chosen in itertools.combinations(range(first + second), failed)
    ]
    chance = {count: dealt.count(count) for count in set(dealt)}
    expected = sum(ways for ways in chance.values() if ways <= chance[failed_a]) / len(dealt)
    assert fisher_two_sided(failed_a, first, failed_b, second) == pytest.approx(expected)


def test_trials_to_tell() -> None:
    """Fleiss' table: 5 % against 10 % takes 474 trials on each side.

    No difference takes no number.
    """
    assert trials_to_tell(0.05, 0.10) == 474
    assert trials_to_tell(0.10, 0.05) == 474
    assert trials_to_tell(0.5, 0.5) is None
    assert trials_to_tell(0.0, 1.0) is not None


def test_pairs_to_tell() -> None:
    """Connor's numbers grow with what agrees.

    A draw takes no number, and six discordant pairs are the least.
    """
    assert pairs_to_tell(3, 3, 10) is None
    assert pairs_to_tell(0, 0, 0) is None
    assert (pairs_to_tell(3, 0, 59) or 0) >= 6 * 59 / 3
    assert (pairs_to_tell(30, 10, 100) or 0) < (pairs_to_tell(30, 20, 100) or 0)
    # Connor 1987: 20 % discordant, a difference of 10 %: 155 pairs at 5 % two-sided and a power of
    # 80 %.
    assert pairs_to_tell(15, 5, 100) == 155


def test_counts_that_cannot_be() -> None:
    """Counts that cannot be are an error."""
    with pytest.raises(ValueError, match="not be negative"):
        mcnemar(-1, 0)
    with pytest.raises(ValueError, match="between 0 and the number of trials"):
        fisher_two_sided(2, 1, 0, 1)
    with pytest.raises(ValueError, match="between 0 and 3, the number of pairs"):
        pairs_to_tell(2, 2, 3)


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
    assert upper_bound(0, trials, confidence=0.95) == pytest.approx(
        1 - 0.05 ** (1 / trials), rel=1e-9
    )


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
def test_clopper_pearson_equals_published_intervals(
    failures: int, trials: int, low: float, high: float
) -> None:
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
def test_fisher_is_a_probability_and_symmetric_under_exchange(
    a: tuple[int, int], b: tuple[int, int]
) -> None:
    """Swapping arms and outcomes together gives the same p."""
    p = fisher(*a, *b)
    assert 0.0 < p <= 1.0
    assert fisher(b[1] - b[0], b[1], a[1] - a[0], a[1]) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("bad", [(-1, 5, 0.95), (6, 5, 0.95), (0, 5, 0.0), (0, 5, 1.0)])
def test_arguments_out_of_range_are_refused(bad: tuple[int, int, float]) -> None:
    """A negative count, more failures than trials and a confidence of 0 or 1 are errors, not
    numbers.
    """
    with pytest.raises(ValueError, match="must be between"):
        upper_bound(bad[0], bad[1], confidence=bad[2])
