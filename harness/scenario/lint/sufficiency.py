"""Whether the trials of a scenario can lead to a PASS at all: said by lint, before any is made.

What is asked here is what the verdict asks (`harness.stats.verdict`), where all goes well: no trial
of the candidate fails, and the control fails in just the share that is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from harness.forms.problem import Problem
from harness.scenario.arm import EVERY_TRIAL, Share
from harness.scenario.lint.arms import MUST_FAIL
from harness.scenario.lint.draft import Draft

SIGNIFICANT = 0.05
"""Fisher's one-sided p that sets the control's failures apart must be below this
(docs/architecture.md#verdicts).
"""

MOST = 100_000
"""Trials of an arm that a scenario may ask for."""


def clean_bound(trials: int, *, confidence: float) -> float:
    """What so many clean trials leave of the failure rate: 1 - (1 - confidence)^(1/trials)
    (Clopper-Pearson).
    """
    return -math.expm1(math.log1p(-confidence) / trials)


def trials_needed(*, below: float, confidence: float) -> int:
    """How many clean trials put the failure rate below `below`: 59 for 5 % at 95 %."""
    if not (0 < below < 1 and 0 < confidence < 1):
        raise ValueError("below and confidence lie between 0 and 1")
    count = max(1, math.floor(math.log1p(-confidence) / math.log1p(-below)))
    # Below, not at: a bound that is as high as what is accepted is not enough, and rounding must
    # not make it so.
    while clean_bound(count, confidence=confidence) >= below * (1 - 1e-12):
        count += 1
    return count


def failures(share: Share, trials: int) -> int:
    """How many of so many trials of the control fail at least, where its share is just met."""
    return trials if share.every else _at_least(_parts(share), trials)


def chance(*, candidate: int, control: int, failed: int) -> float:
    """Fisher's one-sided p for `failed` of `control` trials against none of `candidate` trials.

    Against a sample without a failure the test has one term; in logarithms it has no large numbers.
    """
    return math.exp(_log_ways(control, failed) - _log_ways(candidate + control, failed))


def control_trials_needed(share: Share, *, candidate: int, more_than: int = 0) -> int | None:
    """The least number of control trials, above one, that tells the share from chance; None where
    none does.

    However many there are, p stays above (1 - share) to the power of the candidate's trials.
    """
    parts = _parts(share)
    counts = range(more_than + 1, MOST + 1)
    return next(
        (n for n in counts if _is_significant(n, _at_least(parts, n), candidate=candidate)), None
    )


def _parts(share: Share) -> tuple[int, int]:
    """The share as it was written, as a fraction: 7 % of 100 are 7, and not 8 because 0.07 is a
    little more.
    """
    return Fraction(str(share.at_least)).as_integer_ratio()


def _at_least(parts: tuple[int, int], trials: int) -> int:
    return max(1, -(-parts[0] * trials // parts[1]))


def _is_significant(control: int, failed: int, *, candidate: int) -> bool:
    return chance(candidate=candidate, control=control, failed=failed) < SIGNIFICANT * (1 - 1e-9)


def _log_ways(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _is_to_pass(draft: Draft) -> bool:
    return draft.role == "claim" or (draft.role == "self-test" and draft.expects == "PASS")


def enough_candidate_trials(draft: Draft) -> Iterator[Problem]:
    """Few trials cannot put the failure rate below what is accepted, however clean they are."""
    if draft.trials is None or not _is_to_pass(draft):
        return
    count = draft.trials.candidate
    accept = draft.trials.accept
    needed = trials_needed(below=accept.failure_rate_below, confidence=accept.confidence)
    if count < needed:
        bound = clean_bound(count, confidence=accept.confidence)
        message = (
            f"cannot PASS: {count} clean trials bound the failure rate by {bound:.1%}; accept needs"
            f" {needed} trials"
        )
        yield draft.problem(("trials", "candidate"), message, kind="note")


def enough_control_trials(draft: Draft) -> Iterator[Problem]:
    """A control must be told from chance.

    One that fails in a share of its trials must be able to be.
    """
    if (draft.must_fail is None and draft.compare is None) or draft.trials is None:
        return
    share = EVERY_TRIAL if draft.must_fail is None else draft.must_fail.share
    candidate = draft.trials.candidate
    control = draft.trials.control
    if _is_significant(control, failures(share, control), candidate=candidate):
        return
    path = (*MUST_FAIL, "share") if not share.every else ("trials", "control")
    if (
        not share.every
        and draft.role != "self-test"
        and not _is_significant(control, control, candidate=candidate)
    ):
        message = f"cannot be shown: even {control} failures in {control} trials could be chance"
        yield draft.problem(
            path, f"{message} beside {candidate} trials of the candidate; raise trials.control"
        )
    elif _is_to_pass(draft) or draft.role == "upstream":
        enough = control_trials_needed(share, candidate=candidate, more_than=control)
        needs = (
            f"needs {enough} trials of the control"
            if enough
            else "needs more trials of the candidate"
        )
        purpose = f"to be told from chance (Fisher's one-sided p below {SIGNIFICANT})"
        yield draft.problem(path, f"{needs} {purpose}, trials.control is {control}", kind="note")


TRIAL_RULES = (enough_candidate_trials, enough_control_trials)
