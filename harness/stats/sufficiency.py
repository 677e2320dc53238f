"""Advice on numbers of trials, before any is run."""

from __future__ import annotations

import math

from harness.scenario import Scenario
from harness.stats.intervals import fisher, trials_needed, upper_bound
from harness.stats.verdict import SIGNIFICANT

MOST = 100_000


def advice(scenario: Scenario) -> list[str]:
    """Say where the trials of a scenario cannot reach PASS even if all goes well."""
    found = []
    trials, accept = scenario.trials, scenario.trials.accept
    if upper_bound(0, trials.candidate, confidence=accept.confidence) >= accept.failure_rate_below:
        needed = trials_needed(below=accept.failure_rate_below, confidence=accept.confidence)
        found.append(
            f"{trials.candidate} clean trials cannot put the failure rate below {accept.failure_rate_below:.3g} at "
            f"{accept.confidence:.0%} confidence: that takes {needed}"
        )
    control = scenario.subject.control
    if control is not None:
        share = control.must_fail.share
        rate = 1.0 if share.every else share.at_least
        controls = control_trials_needed(rate=rate, candidate=trials.candidate)
        told = (
            f"{trials.control} control trials are too few to tell a control that fails in {rate:.0%} of them from "
            f"the candidate (Fisher's one-sided p < {SIGNIFICANT}): "
        )
        if controls is None:
            found.append(f"{told}no number of them would do beside {trials.candidate} of the candidate; raise those")
        elif trials.control < controls:
            found.append(f"{told}that takes {controls}")
    return found


def control_trials_needed(*, rate: float, candidate: int) -> int | None:
    """How many control trials, failing at `rate`, differ significantly from a clean candidate; None where none do.

    However many there are, p stays above (1 - rate) to the power of the candidate's trials, but for few of them.
    """
    for count in range(1, MOST):
        failed = math.ceil(rate * count)
        # Against a sample without a failure Fisher's test has one term: in logarithms it has no large numbers.
        close = math.exp(_log_ways(count, failed) - _log_ways(candidate + count, failed)) < SIGNIFICANT * (1 + 1e-6)
        if close and fisher(failed, count, 0, candidate) < SIGNIFICANT:
            return count
    return None


def _log_ways(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
