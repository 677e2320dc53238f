"""Comparison of a second run with a first that it may reproduce: same verdict? same failure? same
numbers?

What the counts do not exclude is not called different: 3 of 59 against 0 of 59 is Fisher's p =
0.24, so nobody can tell. Cells are tested together, each at its share of the level (Bonferroni
1936), or many cells would refute any run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from harness.checks.check import ValueCheck
from harness.checks.event import WithinCheck
from harness.forms.model import Model
from harness.scenario import SIGNIFICANT, Scenario
from harness.stats.outcome import Arm
from harness.stats.profile import CellProfile, TrialProfile, same_numbers
from harness.stats.rates import fisher_two_sided, least_trials
from harness.stats.tally import Word

Answer = Literal["REPRODUCED", "SAME VERDICT, DIFFERENT FAILURE", "NOT REPRODUCED", "CANNOT TELL"]
# The first of these that any cell has is the run's.
ORDER: tuple[Answer, ...] = (
    "NOT REPRODUCED",
    "SAME VERDICT, DIFFERENT FAILURE",
    "CANNOT TELL",
    "REPRODUCED",
)


class Counts(Model):
    """One arm then and now: failed of counted trials, void ones, and Fisher's two-sided p.

    Attributes:
        unit: what is counted as failed: trials, or starts of the services that the cell keeps.
            Void ones and failures are trials.
    """

    arm: Arm
    unit: Literal["trials", "starts"] = Field("trials", exclude_if=lambda unit: unit == "trials")
    failed_then: int
    counted_then: int
    failed_now: int
    counted_now: int
    voids_now: int
    p_value: float
    failures_then: dict[str, int]
    failures_now: dict[str, int]

    @property
    def is_same_failure(self) -> bool:
        """Return whether each side's usual failure occurs on the other side too.

        A side that never failed has none.
        """
        if not self.failures_then or not self.failures_now:
            return not self.failures_then and not self.failures_now
        usual = [
            max(side.items(), key=lambda item: (item[1], item[0]))[0]
            for side in (self.failures_then, self.failures_now)
        ]
        return usual[0] in self.failures_now and usual[1] in self.failures_then


class ValueComparison(Model):
    """Values of one check in one arm: in how many of the trials with the same seed they are the
    same.
    """

    arm: Arm
    check: str
    level: str
    same: int
    compared: int


class CellAnswer(Model):
    """One cell: the answer, the three questions, and why.

    Attributes:
        more_trials: candidate's trials beyond those of this run that would settle it, if it went on
            failing at the rate seen here; None where there is nothing to settle, no number up to
            100,000 does, or starts are counted.
    """

    id: str
    answer: Answer
    then: Word
    now: Word
    same_verdict: bool
    same_failure: Literal["yes", "no", "no failure"]
    same_numbers: Literal["yes", "no", "not compared"]
    arms: list[Counts]
    numbers: list[ValueComparison]
    reasons: list[str]
    more_trials: int | None = None


class Reproduction(Model):
    """Answer of a run to another, and that of every cell."""

    answer: Answer
    cells: list[CellAnswer]


def reproduction(
    scenario: Scenario, then: Sequence[CellProfile], now: Sequence[CellProfile], *, tests: int = 1
) -> Reproduction:
    """Hold a run against the one it reproduces.

    Args:
        scenario: what both asked.
        then: the cells of the first run.
        now: the cells of the second.
        tests: how many such comparisons are made to find one that differs; they share the level.
    """
    here = {cell.id: cell for cell in now}
    level = SIGNIFICANT / max(1, len(then)) / tests
    cells = [_cell(scenario, before, here.get(before.id), level=level) for before in then]
    # What neither run could do says nothing; a reproduction of nothing is none.
    telling = [cell.answer for cell in cells if not (cell.then == cell.now == "SKIPPED")]
    answer: Answer = next((word for word in ORDER if word in telling), "CANNOT TELL")
    return Reproduction(answer=answer, cells=cells)


def _cell(
    scenario: Scenario, then: CellProfile, now: CellProfile | None, *, level: float
) -> CellAnswer:
    if now is None or "SKIPPED" in (then.verdict, now.verdict):
        reasons = (
            ["the cell was not run here"]
            if now is None
            else [f"here: {why}" for why in now.reasons]
        )
        if then.verdict == "SKIPPED":
            reasons = [f"then: {why}" for why in then.reasons]
        return CellAnswer(
            id=then.id,
            answer="CANNOT TELL",
            then=then.verdict,
            now="SKIPPED" if now is None else now.verdict,
            same_verdict=now is not None and then.verdict == now.verdict,
            same_failure="no failure",
            same_numbers="not compared",
            arms=[],
            numbers=[],
            reasons=reasons,
        )
    pairs: dict[Arm, tuple[Sequence[TrialProfile], Sequence[TrialProfile]]] = {
        "candidate": (then.candidate, now.candidate)
    }
    if then.control or now.control:
        pairs["control"] = (then.control, now.control)
    arms = [_over_starts(_counts(arm, *trials), then, now) for arm, trials in pairs.items()]
    numbers = [row for arm, trials in pairs.items() for row in _numbers(scenario, arm, *trials)]
    failing = [arm for arm in arms if arm.failures_then or arm.failures_now]
    same_failure = all(arm.is_same_failure for arm in failing)
    word: Literal["yes", "no", "no failure"] = "yes" if same_failure else "no"
    answer, reasons, more = _answer(then, now, arms, same_failure=same_failure, level=level)
    return CellAnswer(
        id=then.id,
        answer=answer,
        then=then.verdict,
        now=now.verdict,
        same_verdict=then.verdict == now.verdict,
        same_failure=word if failing else "no failure",
        same_numbers=_word([row for row in numbers if row.arm == "candidate"]),
        arms=arms,
        numbers=numbers,
        reasons=reasons,
        more_trials=more,
    )


def _answer(
    then: CellProfile, now: CellProfile, arms: Sequence[Counts], *, same_failure: bool, level: float
) -> tuple[Answer, list[str], int | None]:
    if then.verdict == now.verdict:
        voids = sum(arm.voids_now for arm in arms)
        if now.verdict == "INCONCLUSIVE" and voids:
            return "CANNOT TELL", [f"here: {why}" for why in now.reasons], None
        if same_failure:
            return "REPRODUCED", [], None
        different = next(arm for arm in arms if not arm.is_same_failure)
        if not different.failures_now or not different.failures_then:
            # Both verdicts can bear a failure that is rare, and one of the two runs did not meet
            # it.
            if different.p_value >= level:
                return (
                    "REPRODUCED",
                    [f"{_in_words(different)}: the counts do not distinguish them"],
                    None,
                )
            return "NOT REPRODUCED", [f"{_in_words(different)}, {_p(different.p_value)}"], None
        return (
            "SAME VERDICT, DIFFERENT FAILURE",
            [f"the {different.arm} fails in a different way"],
            None,
        )
    if excluded := [arm for arm in arms if arm.p_value < level]:
        return "NOT REPRODUCED", [f"{_in_words(arm)}, {_p(arm.p_value)}" for arm in excluded], None
    reasons = [
        f"{_in_words(arm)}, {_p(arm.p_value)}, not below {level:.2g}: they do not exclude each"
        " other"
        for arm in arms
    ]
    reasons += [f"here: {why}" for why in now.reasons]
    candidate = arms[0]
    return "CANNOT TELL", reasons, more_trials(candidate, level=level)


def more_trials(counts: Counts, *, level: float) -> int | None:
    """How many more trials here would tell the two rates apart, if the rate seen here goes on; None
    if none would.
    """
    if counts.unit == "starts":  # more trials of the same starts would not tell
        return None
    rate = counts.failed_now / counts.counted_now if counts.counted_now else 0.0
    if counts.counted_then == 0 or rate == counts.failed_then / counts.counted_then:
        return None

    def tells(count: int) -> bool:
        failed = round(rate * count)
        return fisher_two_sided(counts.failed_then, counts.counted_then, failed, count) < level

    least = least_trials(tells, more_than=counts.counted_now)
    return None if least is None else least - counts.counted_now


def _counts(arm: Arm, then: Sequence[TrialProfile], now: Sequence[TrialProfile]) -> Counts:
    counted_then, counted_now = (
        [trial for trial in side if trial.outcome != "void"] for side in (then, now)
    )
    failed_then, failed_now = (
        sum(trial.outcome == "fail" for trial in side) for side in (counted_then, counted_now)
    )
    return Counts(
        arm=arm,
        failed_then=failed_then,
        counted_then=len(counted_then),
        failed_now=failed_now,
        counted_now=len(counted_now),
        voids_now=len(now) - len(counted_now),
        p_value=fisher_two_sided(failed_then, len(counted_then), failed_now, len(counted_now)),
        failures_then=_failures(counted_then),
        failures_now=_failures(counted_now),
    )


def _over_starts(trials: Counts, then: CellProfile, now: CellProfile) -> Counts:
    """Return the counts over starts, where both sides keep their services."""
    before = then.starts.get(trials.arm)
    here = now.starts.get(trials.arm)
    if before is None or here is None:
        return trials
    counts = {
        "unit": "starts",
        "failed_then": before.failed,
        "counted_then": before.counted,
        "failed_now": here.failed,
        "counted_now": here.counted,
        "p_value": fisher_two_sided(before.failed, before.counted, here.failed, here.counted),
    }
    return trials.model_copy(update=counts)


def _failures(trials: Sequence[TrialProfile]) -> dict[str, int]:
    return dict(
        sorted(
            Counter(
                trial.signature.description() for trial in trials if trial.signature is not None
            ).items()
        )
    )


def _numbers(
    scenario: Scenario, arm: Arm, then: Sequence[TrialProfile], now: Sequence[TrialProfile]
) -> list[ValueComparison]:
    """Only trials with the same seed, and the same outcome: a trial that failed did not get as
    far.
    """
    before: Mapping[str, TrialProfile] = {
        trial.seed: trial for trial in then if trial.outcome != "void"
    }
    pairs = [
        (before[trial.seed], trial)
        for trial in now
        if trial.seed in before and trial.outcome == before[trial.seed].outcome
    ]
    rows = []
    for check in scenario.checks:
        if isinstance(check, WithinCheck):
            rows.append(
                ValueComparison(arm=arm, check=check.id, level="statistical", same=0, compared=0)
            )
        elif isinstance(check, ValueCheck):
            numbers = [
                (one.numbers[check.id], other.numbers[check.id])
                for one, other in pairs
                if check.id in one.numbers and check.id in other.numbers
            ]
            same = sum(same_numbers(check, *both) for both in numbers)
            rows.append(
                ValueComparison(
                    arm=arm, check=check.id, level=check.level, same=same, compared=len(numbers)
                )
            )
    return rows


def _word(rows: Sequence[ValueComparison]) -> Literal["yes", "no", "not compared"]:
    rows_compared = [row for row in rows if row.compared]
    if not rows_compared:
        return "not compared"
    return "yes" if all(row.same == row.compared for row in rows_compared) else "no"


def _in_words(arm: Counts) -> str:
    starts = " starts of its services" if arm.unit == "starts" else ""
    return (
        f"{arm.arm}: {arm.failed_then} of {arm.counted_then}{starts} failed then,"
        f" {arm.failed_now} of {arm.counted_now} here"
    )


def _p(value: float) -> str:
    if value >= 1e-4:
        return f"Fisher's two-sided p = {value:.2g}"
    exponent = math.ceil(math.log10(value)) if value > 0 else -300
    return f"Fisher's two-sided p < 1e{exponent}"
