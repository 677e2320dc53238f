"""One arm of a cell counted, and what the counts of both arms decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from harness.forms.model import Model
from harness.reason import DeviationCode, VerdictCode, VerdictReason
from harness.scenario import SIGNIFICANT, Scenario
from harness.stats.outcome import Trial
from harness.stats.rates import fisher, upper_bound
from harness.stats.stated import StatedEnd

Word = Literal["PASS", "FAIL", "INCONCLUSIVE", "SKIPPED"]


class Instead(Model):
    """What a control did instead of failing as stated, and in how many trials."""

    code: DeviationCode = Field(strict=False)
    text: str
    count: int


class Way(Model):
    """One way in which ranks of a control failed as stated, and in how many trials those ranks did.

    Attributes:
        what: type of the error, signal, exit code, `hang`, or the check that does not hold where no
            end was stated.
        where: what joins `place` to it: `at`, `in`, `after`, `saying`; empty without a place.
        place: source line, function, event or message.
        ranks: the ranks, ascending.
        first: index of the first of these trials.
    """

    what: str
    where: str
    place: str
    ranks: list[int]
    first: int
    count: int


class Tally(Model):
    """One arm of a cell, counted.

    Attributes:
        trials: every trial that ran, in order.
        counted: those that are not void.
        failed: counted trials in which a check failed.
        voids: trials that are void.
        upper: upper bound of the failure rate at the scenario's confidence.
        upper_with_voids: the same if every void trial had been a failure.
        as_stated: for a control, counted trials that failed as stated.
        how: for a control, how those did, the most frequent way first.
        otherwise: for a control, what the others did instead, by text.
        p_value: for a control, Fisher's one-sided p against the candidate.
    """

    trials: list[Trial]
    counted: int
    failed: int
    voids: int
    upper: float
    upper_with_voids: float
    as_stated: int | None = None
    how: list[Way] = Field(default_factory=list)
    otherwise: list[Instead] = Field(default_factory=list)
    p_value: float | None = None


def tally(scenario: Scenario, trials: list[Trial]) -> Tally:
    """Count the trials of an arm."""
    counted = [trial for trial in trials if trial.outcome != "void"]
    failed = sum(trial.outcome == "fail" for trial in counted)
    voids = len(trials) - len(counted)
    confidence = scenario.trials.accept.confidence
    return Tally(
        trials=trials,
        counted=len(counted),
        failed=failed,
        voids=voids,
        upper=upper_bound(failed, len(counted), confidence=confidence),
        upper_with_voids=upper_bound(failed + voids, len(trials), confidence=confidence),
    )


def tally_control(
    scenario: Scenario,
    trials: list[Trial],
    candidate: Tally,
    ends: Mapping[StatedEnd, Sequence[int]],
    *,
    holds: bool = False,
) -> Tally:
    """Count those of the control, as stated or not, and hold them against the candidate's.

    Args:
        scenario: what is asked.
        trials: of the control.
        candidate: its counts.
        ends: how ranks of the control failed as stated, with the trials in which they did, in
            order.
        holds: whether the control is stated to hold in this cell: then nothing has to set it apart.
    """
    counts = tally(scenario, trials)
    as_stated = sum(bool(trial.as_stated) for trial in trials)
    counted = Counter(trial.otherwise for trial in trials if trial.otherwise is not None)
    otherwise = [
        Instead(code=what.code, text=what.text, count=count)
        for what, count in sorted(counted.items(), key=lambda item: item[0].text)
    ]
    how = [
        Way(
            what=end.what,
            where=end.where,
            place=end.place,
            ranks=list(end.ranks),
            first=of[0],
            count=len(of),
        )
        for end, of in sorted(ends.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    p_value = (
        None if holds else fisher(as_stated, counts.counted, candidate.failed, candidate.counted)
    )
    return counts.model_copy(
        update={"as_stated": as_stated, "how": how, "otherwise": otherwise, "p_value": p_value}
    )


def decide(
    scenario: Scenario,
    candidate: Tally,
    control: Tally | None,
    unproven: Collection[VerdictReason],
    *,
    holds: bool = False,
    shows: bool = True,
) -> tuple[Word, list[VerdictReason]]:
    """Return the rules of docs/architecture.md#verdicts, in their order.

    `holds` is whether the control is stated to hold in this cell, `shows` whether a cell ran in
    which it must fail.
    """
    if unproven:
        return "INCONCLUSIVE", sorted(unproven, key=str)
    accept = scenario.trials.accept
    limit = accept.failure_rate_below
    if candidate.failed and candidate.upper >= limit:
        reason = (
            f"{candidate.failed} of {candidate.counted} trials failed: the failure rate may be as"
            f" high as {candidate.upper:.1%}, and less than {limit:.1%} is asked"
        )
        return "FAIL", [VerdictReason(VerdictCode.FAILURE_RATE, reason)]
    reasons: list[VerdictReason] = []
    if candidate.upper >= limit:
        reason = (
            f"{candidate.counted} trials without a failure leave the failure rate below"
            f" {candidate.upper:.1%} only, and less than {limit:.1%} is asked"
        )
        reasons.append(VerdictReason(VerdictCode.TOO_FEW_TRIALS, reason))
    if candidate.counted < scenario.trials.candidate:
        whose = scenario.subject.called("candidate")
        reason = (
            f"{candidate.counted} of {scenario.trials.candidate} {whose} trials"
            f" counted{_why_void(candidate)}"
        )
        reasons.append(VerdictReason(VerdictCode.TRIALS_VOID, reason))
    reasons += _doubt(scenario, control, holds=holds, shows=shows)
    return ("INCONCLUSIVE", reasons) if reasons else ("PASS", [])


def _why_void(tally: Tally) -> str:
    usual = Counter(trial.void for trial in tally.trials if trial.void is not None).most_common(1)
    return f"; void: {usual[0][0]} ({usual[0][1]} times)" if usual else ""


def _doubt(
    scenario: Scenario, control: Tally | None, *, holds: bool, shows: bool
) -> Iterator[VerdictReason]:
    """Why the control does not show that the checks can fail."""
    if control is None or scenario.subject.control is None:
        reason = "the scenario has no control: nothing shows that these checks can fail"
        yield VerdictReason(VerdictCode.NO_CONTROL, reason)
        return
    as_stated = control.as_stated or 0
    share = scenario.subject.control.must_fail.share
    who = scenario.subject.named("control")
    if control.counted < scenario.trials.control:
        counted = (
            f"{control.counted} of {scenario.trials.control} {scenario.subject.called('control')}"
            " trials counted"
        )
        reason = f"{counted}{_why_void(control)}"
        yield VerdictReason(VerdictCode.CONTROL_TRIALS_VOID, reason)
    if control.counted and not control.failed and not holds:
        reason = f"no trial of {who} failed any check: nothing shows that these checks can fail"
        yield VerdictReason(VerdictCode.CONTROL_NEVER_FAILED, reason)
    if holds and not shows:
        reason = f"no cell ran in which {who} must fail: nothing shows that these checks can fail"
        yield VerdictReason(VerdictCode.CONTROL_NEVER_FAILED, reason)
    instead = "; ".join(f"instead, in {what.count}: {what.text}" for what in control.otherwise)
    if (share.every or holds) and as_stated < control.counted:
        word = "held" if holds else "failed"
        reason = f"{who} {word} as stated in {as_stated} of {control.counted} trials: {instead}"
        yield VerdictReason(VerdictCode.CONTROL_NOT_AS_STATED, reason)
    elif holds:
        return
    elif not share.every and (as_stated == 0 or as_stated < share.at_least * control.counted):
        reason = (
            f"{who} failed as stated in {as_stated} of {control.counted} trials, at least "
            f"{share.at_least:.0%} is asked: {instead}"
        )
        yield VerdictReason(VerdictCode.CONTROL_NOT_AS_STATED, reason)
    elif control.p_value is None or control.p_value >= SIGNIFICANT:
        reason = (
            f"{who}'s failures do not set it apart from {scenario.subject.named('candidate')} "
            f"(Fisher's one-sided p = {control.p_value:.3f})"
        )
        yield VerdictReason(VerdictCode.CONTROL_NOT_APART, reason)
