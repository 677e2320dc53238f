"""Whether the trials of a scenario can lead to a PASS at all, and what they would not show: said by
lint, before any is made.

What is asked here is what the verdict asks (`harness.stats.verdict`), where all goes well: no trial
of the candidate fails, and the control fails in just the share that is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from harness.checks.equivalent import EquivalentCheck
from harness.checks.influence import InfluenceCheck
from harness.checks.shards_cover import ShardsCoverCheck
from harness.forms.problem import Problem
from harness.forms.text import numbered
from harness.scenario.arm import EVERY_TRIAL, StatedShare
from harness.scenario.lint.arms import MUST_FAIL
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.model import Trials

OF_ONE = "a world with one rank does not test anything distributed"
# What a rank emits last; a fault that waits for it finds the work done.
LAST = "subject.end"
SIGNIFICANT = 0.05
"""Fisher's one-sided p that sets the control's failures apart must be below this
(docs/architecture.md#verdicts).
"""

MOST = 100_000
"""Trials of an arm that a scenario may ask for."""


def clean_bound(trials: int, *, confidence: float) -> float:
    """Return what so many clean trials leave of the failure rate: 1 - (1 - confidence)^(1/trials)
    (Clopper-Pearson).
    """
    return -math.expm1(math.log1p(-confidence) / trials)


def trials_needed(*, below: float, confidence: float) -> int:
    """How many clean trials put the failure rate below `below`: 59 for 5 % at 95 %."""
    if not (0 < below < 1 and 0 < confidence < 1):
        raise ValueError("`below` and `confidence` must each be between 0 and 1")
    count = max(1, math.floor(math.log1p(-confidence) / math.log1p(-below)))
    # Below, not at: a bound that is as high as what is accepted is not enough, and rounding must
    # not make it so.
    while clean_bound(count, confidence=confidence) >= below * (1 - 1e-12):
        count += 1
    return count


def failures(share: StatedShare, trials: int) -> int:
    """How many of so many trials of the control fail at least, where its share is just met."""
    return trials if share.every else _at_least(_parts(share), trials)


def chance(*, candidate: int, control: int, failed: int) -> float:
    """Fisher's one-sided p for `failed` of `control` trials against none of `candidate` trials.

    Against a sample without a failure the test has one term; in logarithms it has no large numbers.
    """
    return math.exp(_log_ways(control, failed) - _log_ways(candidate + control, failed))


def control_trials_needed(share: StatedShare, *, candidate: int, more_than: int = 0) -> int | None:
    """Least number of control trials, above one, that tells the share from chance; None where none
    does.

    With n trials, p is above ((1 - share) n / (n + 1)) to the power of the candidate's trials. This
    grows with n, so the search ends where it reaches SIGNIFICANT.
    """
    parts = _parts(share)
    counts = range(more_than + 1, min(MOST, _last_that_can_do(parts, candidate=candidate)) + 1)
    return next(
        (n for n in counts if _is_significant(n, _at_least(parts, n), candidate=candidate)), None
    )


def _last_that_can_do(parts: tuple[int, int], *, candidate: int) -> int:
    """Trials of the control beyond which p never is below SIGNIFICANT."""
    least, whole = parts
    if candidate < 1 or least >= whole:
        return MOST
    ratio = SIGNIFICANT ** (1 / candidate) / (1 - least / whole)
    return MOST if ratio >= 1 else math.ceil(ratio / (1 - ratio))


def _parts(share: StatedShare) -> tuple[int, int]:
    """Share as it was written, as a fraction: 7 % of 100 are 7, and not 8 because 0.07 is a little
    more.
    """
    return Fraction(str(share.at_least)).as_integer_ratio()


def _at_least(parts: tuple[int, int], trials: int) -> int:
    return max(1, -(-parts[0] * trials // parts[1]))


def _is_significant(control: int, failed: int, *, candidate: int) -> bool:
    return chance(candidate=candidate, control=control, failed=failed) < SIGNIFICANT * (1 - 1e-9)


def _log_ways(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _is_to_pass(draft: ScenarioDraft) -> bool:
    return draft.role == "claim" or (draft.role == "self-test" and draft.expects == "PASS")


def enough_candidate_trials(draft: ScenarioDraft) -> Iterator[Problem]:
    """Few trials cannot put the failure rate below what is accepted, however clean they are."""
    if draft.trials is None or not _is_to_pass(draft):
        return
    count, _ = units(draft, draft.trials)
    accept = draft.trials.accept
    needed = trials_needed(below=accept.failure_rate_below, confidence=accept.confidence)
    if count < needed:
        bound = clean_bound(count, confidence=accept.confidence)
        of_what = "trials" if count == draft.trials.candidate else "starts of its services"
        message = (
            f"is too low for PASS, because {count} clean {of_what} only bound the failure rate at"
            f" {bound:.1%}; accept needs {needed} {of_what.partition(' ')[0]}"
        )
        yield draft.problem(("trials", "candidate"), message, kind="note")


def units(draft: ScenarioDraft, trials: Trials) -> tuple[int, int]:
    """Return what is counted of the candidate and of the control: trials, or starts of a service
    that a cell keeps.
    """
    kept = [service.starts for service in draft.services.values() if service.keep == "cell"]
    starts = min(kept, default=MOST)
    return min(trials.candidate, starts), min(trials.control, starts)


def enough_control_trials(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a control can be told from chance.

    One that fails in a share of its trials must be able to be.
    """
    if (draft.must_fail is None and draft.compare is None) or draft.trials is None:
        return
    share = EVERY_TRIAL if draft.must_fail is None else draft.must_fail.share
    candidate, control = units(draft, draft.trials)
    if _is_significant(control, failures(share, control), candidate=candidate):
        return
    path = (*MUST_FAIL, "share") if not share.every else ("trials", "control")
    if (
        not share.every
        and draft.role != "self-test"
        and not _is_significant(control, control, candidate=candidate)
    ):
        message = (
            f"cannot be shown, because even {control} failures in {control} trials could be due to"
            " chance"
        )
        yield draft.problem(
            path, f"{message} with {candidate} trials of the candidate; raise trials.control"
        )
    elif _is_to_pass(draft) or draft.role == "upstream":
        enough = control_trials_needed(share, candidate=candidate, more_than=control)
        needs = (
            f"{enough} trials of the control are needed"
            if enough
            else "more trials of the candidate are needed"
        )
        purpose = (
            "for a result that is distinguishable from chance (Fisher's one-sided p below"
            f" {SIGNIFICANT})"
        )
        yield draft.problem(path, f"{needs} {purpose}; trials.control is {control}", kind="note")


TRIAL_RULES = (enough_candidate_trials, enough_control_trials)


# -- what would let any comparison of inference with its reference pass ----------------------------


USUAL = {"margin": 2.0, "middle": 2.0, "layers": 3.0}
"""Times the reference's own noise: so much two runs with the same noise may differ by."""


def wide(check: EquivalentCheck) -> str:
    """That a check allows more than noise explains, in words; empty where it does not."""
    most = {
        key: margin
        for key, usual in USUAL.items()
        if (margin := getattr(check, key) or 0.0) > usual
    }
    if not most:
        return ""
    said = " and ".join(
        f"{margin:g} times the reference's noise ({key}, usually {USUAL[key]:g})"
        for key, margin in most.items()
    )
    return f"check {check.id} allows {said}"


def slack(draft: ScenarioDraft) -> Iterator[Problem]:
    """Find a margin that is larger than noise explains: it lets defects of that size pass."""
    for index, check in draft.checks.items():
        if isinstance(check, EquivalentCheck) and (words := wide(check)):
            key = next(key for key in USUAL if f"({key}," in words)
            yield draft.problem(("checks", index, key), words, kind="note")


def size_to_be_seen(draft: ScenarioDraft) -> Iterator[Problem]:
    """Noise that was measured of another thing is found out by a defect of known size alone."""
    for index, check in draft.checks.items():
        if isinstance(check, EquivalentCheck) and check.sees is None:
            message = (
                "does not set sees, the size of a defect that it must detect; if the reference's"
                " noise is too large, any smaller difference passes"
            )
            yield draft.problem(("checks", index), message, at_key=True, kind="note")


def something_is_split(draft: ScenarioDraft) -> Iterator[Problem]:
    """Find a pattern that matches every name: it asks for nothing."""
    for index, check in draft.checks.items():
        for number, pattern in enumerate(
            check.replicated if isinstance(check, ShardsCoverCheck) else ()
        ):
            if not pattern.strip("*?"):
                message = (
                    "matches every tensor, so no tensor has to be split; list only tensors that"
                    " are on several ranks"
                )
                yield draft.problem(("checks", index, "replicated", number), message)


# -- what a run will not show: notes, because a question may well be narrow ------------------------


def unasked(checks: Iterable[Any], size: int) -> str:
    """Which ranks of a world no check asks about what they do, in words; empty where each is asked.

    How a rank ended is not an answer to what it did. A rank that others are compared with is asked
    too.
    """
    asked: set[int] = set()
    for check in checks:
        of_the_end_alone = check.properties.of_an_end and not check.properties.needs_an_event
        if not of_the_end_alone and hasattr(check, "ranks"):
            against = getattr(check, "against", None)
            asked |= {*check.ranks.of(size), *((against,) if isinstance(against, int) else ())}
    left = [rank for rank in range(size) if rank not in asked]
    if not left:
        return ""
    does, exits = ("does", "it exits") if len(left) == 1 else ("do", "they exit")
    return (
        f"no check covers what {numbered('rank', left)} {does}, only how {exits} (world size"
        f" {size})"
    )


def ranks_that_nobody_asks(draft: ScenarioDraft) -> Iterator[Problem]:
    """Find a check that asks rank 0 alone: it says nothing about the others."""
    stated = draft.at("checks")
    for size in (
        draft.sizes() if isinstance(stated, list) and len(draft.checks) == len(stated) else ()
    ):
        try:
            words = unasked(draft.checks.values(), size)
        except ValueError:
            return  # ranks_exist has reported it
        if words:
            yield draft.problem(("checks",), words, at_key=True, kind="note")


def unsplit(checks: Iterable[Any], size: int) -> str:
    """Why a model that nobody split would pass in a world of this size, in words.

    Empty where it would not.
    """
    asked = list(checks)
    split = any(isinstance(check, InfluenceCheck | ShardsCoverCheck) for check in asked)
    if size == 1 or split or not any(isinstance(check, EquivalentCheck) for check in asked):
        return ""
    return (
        "no check tests whether the model is split (influence or shards-cover would), so a full copy of it"
        " on each rank would pass"
    )


def a_model_that_nobody_split(draft: ScenarioDraft) -> Iterator[Problem]:
    """Ranks that compute everything for themselves give the logits of the whole."""
    if words := unsplit(draft.checks.values(), max(draft.sizes(), default=1)):
        yield draft.problem(("checks",), words, at_key=True, kind="note")


def a_world_of_one(draft: ScenarioDraft) -> Iterator[Problem]:
    """One rank meets nobody, unless it is the client of a service of several processes."""
    stated = [service.processes for service in draft.services.values()]
    if max([*stated, *_numbers(draft.axes().get("processes", []))], default=1) > 1:
        return
    for index, size in enumerate(draft.axes().get("ranks", [])):
        if size == 1:
            yield draft.problem(("matrix", "ranks", index), OF_ONE, kind="note")


def _numbers(values: Iterable[object]) -> list[int]:
    return [value for value in values if isinstance(value, int)]


def faults_after_the_work(draft: ScenarioDraft) -> Iterator[Problem]:
    """Find what strikes when the subject has returned: it disturbs nothing that checks look at."""
    if any(getattr(check, "event", None) == LAST for check in draft.checks.values()):
        return
    for index, fault in draft.faults.items():
        if fault.event == LAST:
            message = (
                "takes effect after the subject returned, but no check needs a later event;"
                " use an earlier event"
            )
            yield draft.problem(("faults", index, "at"), message, kind="note")


TOLERANCE_RULES = (slack, size_to_be_seen, something_is_split)
UNSHOWN_RULES = (
    ranks_that_nobody_asks,
    a_model_that_nobody_split,
    a_world_of_one,
    faults_after_the_work,
)
