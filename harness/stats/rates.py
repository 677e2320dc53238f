"""Exact statistics of counts, in the standard library: bounds of a rate, tests of two, trials that
would settle it.

Clopper-Pearson for claims (exact, conservative; Clopper and Pearson 1934), Wilson for what is
drawn. Fisher's exact test for candidate against control (one-sided; Fisher 1935) and for two runs
(two-sided); McNemar's exact test where trials of both runs share their seeds (McNemar 1947, in its
binomial form). Numbers of trials: Fleiss, Levin and Paik, Statistical Methods for Rates and
Proportions, for two rates; Connor 1987 for pairs. All at 5 %, with a power of 80 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist

from harness.scenario import SIGNIFICANT

POWER = 0.8
MOST = 100_000
"""No more trials than this are looked for."""
HALVINGS = 80


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's exact two-sided p.

    Args:
        only_a: pairs in which only the first of the two failed.
        only_b: pairs in which only the second did. Pairs that agree say nothing about a difference.

    Raises:
        ValueError: a negative count.
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"the counts of pairs must not be negative: {only_a} and {only_b}")
    both = only_a + only_b
    least = sum(math.comb(both, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, float(Fraction(2 * least, 2**both)))


def fisher_two_sided(failed_a: int, trials_a: int, failed_b: int, trials_b: int) -> float:
    """Fisher's exact test, two-sided, as R and SciPy define it: every table that is not likelier
    than this one counts.

    Twice the smaller tail is another test. Likelihoods are whole numbers here, so two that tie are
    equal: no tolerance.

    Raises:
        ValueError: more failures than trials.
    """
    if not (0 <= failed_a <= trials_a and 0 <= failed_b <= trials_b):
        raise ValueError("the number of failures must be between 0 and the number of trials")
    failed = failed_a + failed_b
    ways = {
        k: math.comb(trials_a, k) * math.comb(trials_b, failed - k)
        for k in range(max(0, failed - trials_b), min(trials_a, failed) + 1)
    }
    # Python divides whole numbers of any size exactly; a fraction would first look for their common
    # divisor.
    return sum(count for count in ways.values() if count <= ways[failed_a]) / sum(ways.values())


def least_trials(settles: Callable[[int], bool], *, more_than: int) -> int | None:
    """Return the least number of trials above `more_than` that settles a question; None where none
    up to `MOST` does.

    Args:
        settles: whether so many trials do, if they go on as they did; it stays so with more of
            them.
        more_than: how many there are.
    """
    low = more_than
    high = max(1, more_than)
    while not settles(high):
        high *= 2
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high


def trials_to_tell(rate_a: float, rate_b: float) -> int | None:
    """Trials that each of two runs needs to show such a difference of rates; None where they do not
    differ.
    """
    difference = abs(rate_a - rate_b)
    if difference == 0:
        return None
    middle = (rate_a + rate_b) / 2
    chance = _z(1 - SIGNIFICANT / 2)
    power = _z(POWER)
    spread = chance * math.sqrt(2 * middle * (1 - middle))
    spread += power * math.sqrt(rate_a * (1 - rate_a) + rate_b * (1 - rate_b))
    plain = (spread / difference) ** 2
    # The continuity correction, because the test that follows is exact.
    return math.ceil(plain / 4 * (1 + math.sqrt(1 + 4 / (plain * difference))) ** 2)


def pairs_to_tell(only_a: int, only_b: int, pairs: int) -> int | None:
    """Pairs that it takes to show such a difference; None where as many pairs speak for either
    side.

    Raises:
        ValueError: more discordant pairs than pairs.
    """
    if not 0 <= only_a + only_b <= pairs:
        raise ValueError(f"{only_a} + {only_b} must be between 0 and {pairs}, the number of pairs")
    difference = abs(only_a - only_b) / pairs if pairs else 0.0
    if difference == 0:
        return None
    apart = (only_a + only_b) / pairs
    spread = _z(1 - SIGNIFICANT / 2) * math.sqrt(apart) + _z(POWER) * math.sqrt(
        max(0.0, apart - difference**2)
    )
    # The exact test cannot be passed with fewer than six discordant pairs.
    return max(math.ceil((spread / difference) ** 2), math.ceil(6 / apart))


def _z(share: float) -> float:
    return NormalDist().inv_cdf(share)


def upper_bound(failures: int, trials: int, *, confidence: float) -> float:
    """One-sided Clopper-Pearson upper bound of the failure rate.

    Args:
        failures: 0 <= failures <= trials.
        trials: number of trials that counted.
        confidence: such as 0.95.

    Returns:
        The largest rate in [0, 1] that is not excluded; 1.0 without trials. No failures in n trials
        give 1 - (1 - confidence)^(1/n): 59 clean trials put the rate below 5 % at 95 %.

    Raises:
        ValueError: arguments out of range.
    """
    _demand(failures, trials, confidence)
    if failures >= trials:
        return 1.0
    # The bound is where seeing so few failures has probability 1 - confidence; the probability
    # falls as the rate grows.
    return _bisect(lambda rate: binomial_at_most(failures, trials, rate) > 1 - confidence)


def lower_bound(failures: int, trials: int, *, confidence: float) -> float:
    """One-sided Clopper-Pearson lower bound of the failure rate. Arguments as in `upper_bound`."""
    _demand(failures, trials, confidence)
    if failures == 0:
        return 0.0
    return 1.0 - upper_bound(trials - failures, trials, confidence=confidence)


def wilson(failures: int, trials: int, *, confidence: float) -> tuple[float, float]:
    """Two-sided Wilson score interval of the failure rate (Wilson 1927): narrower, for drawing."""
    _demand(failures, trials, confidence)
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = failures / trials
    spread = z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def fisher(failed_a: int, trials_a: int, failed_b: int, trials_b: int) -> float:
    """Fisher's exact test, one-sided: probability that `a` fails at least so often if both fail at
    the same rate.

    `a` is the control, `b` the candidate. 5 of 5 against 0 of 5 is 0.004, against 0 of 59 it is
    1.3e-7.
    """
    _demand(failed_a, trials_a, 0.5)
    _demand(failed_b, trials_b, 0.5)
    total = trials_a + trials_b
    failed = failed_a + failed_b
    ways = math.comb(total, failed)
    most = min(trials_a, failed)
    more = sum(
        math.comb(trials_a, k) * math.comb(trials_b, failed - k) for k in range(failed_a, most + 1)
    )
    return more / ways


def binomial_at_most(successes: int, trials: int, rate: float) -> float:
    """Probability of at most so many successes in independent trials, summed in logarithms."""
    if rate <= 0.0 or successes >= trials:
        return 1.0
    if rate >= 1.0:
        return 0.0
    log_rate = math.log(rate)
    log_rest = math.log1p(-rate)
    log_ways = 0.0
    total = 0.0
    for k in range(successes + 1):
        total += math.exp(log_ways + k * log_rate + (trials - k) * log_rest)
        log_ways += math.log(trials - k) - math.log(k + 1)
    return min(1.0, total)


def _bisect(is_low: Callable[[float], bool]) -> float:
    """Find where `is_low` turns false: the upper end, so that a bound is never too small."""
    low = 0.0
    high = 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if is_low(middle):
            low = middle
        else:
            high = middle
    return high


def _demand(failures: int, trials: int, confidence: float) -> None:
    if not 0 <= failures <= trials:
        raise ValueError(
            f"the number of failures must be between 0 and the number of trials, not {failures} in"
            f" {trials}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence}")
