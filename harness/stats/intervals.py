"""Exact statistics of counts, in the standard library.

Clopper-Pearson for claims (exact, conservative; Clopper and Pearson 1934), Wilson for what is drawn, Fisher's exact
test for candidate against control (Fisher 1935).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

HALVINGS = 80


def upper_bound(failures: int, trials: int, *, confidence: float) -> float:
    """One-sided Clopper-Pearson upper bound of the failure rate.

    Args:
        failures: 0 <= failures <= trials.
        trials: number of trials that counted.
        confidence: such as 0.95.

    Returns:
        The largest rate in [0, 1] that is not excluded; 1.0 without trials. No failures in n trials give
        1 - (1 - confidence)^(1/n): 59 clean trials put the rate below 5 % at 95 %.

    Raises:
        ValueError: arguments out of range.
    """
    _demand(failures, trials, confidence)
    if failures >= trials:
        return 1.0
    # The bound is where seeing so few failures has probability 1 - confidence; the probability falls as the rate grows.
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
    rate, spread = failures / trials, z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def fisher(failed_a: int, trials_a: int, failed_b: int, trials_b: int) -> float:
    """Fisher's exact test, one-sided: probability that `a` fails at least so often if both fail at the same rate.

    `a` is the control, `b` the candidate. 5 of 5 against 0 of 5 is 0.004, against 0 of 59 it is 1.3e-7.
    """
    _demand(failed_a, trials_a, 0.5)
    _demand(failed_b, trials_b, 0.5)
    total, failed = trials_a + trials_b, failed_a + failed_b
    ways = math.comb(total, failed)
    most = min(trials_a, failed)
    more = sum(math.comb(trials_a, k) * math.comb(trials_b, failed - k) for k in range(failed_a, most + 1))
    return more / ways


def binomial_at_most(successes: int, trials: int, rate: float) -> float:
    """Probability of at most so many successes in independent trials, summed in logarithms."""
    if rate <= 0.0 or successes >= trials:
        return 1.0
    if rate >= 1.0:
        return 0.0
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    log_ways = 0.0
    total = 0.0
    for k in range(successes + 1):
        total += math.exp(log_ways + k * log_rate + (trials - k) * log_rest)
        log_ways += math.log(trials - k) - math.log(k + 1)
    return min(1.0, total)


def _bisect(is_low: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return high


def _demand(failures: int, trials: int, confidence: float) -> None:
    if not 0 <= failures <= trials:
        raise ValueError(f"{failures} failures in {trials} trials: failures lie between 0 and the trials")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} does not lie between 0 and 1")
