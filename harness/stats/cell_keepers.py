"""Keepers of what all trials of a cell have in common: shown or counted with its verdict.

`harness.stats.verdict` judges the trials one after the other and hands each to every keeper. A
keeper that is added here is one more class in the list there; a check may bring its own
(`harness.checks.check.Check.over_trials`), in the file of its kind alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from harness.checks import KINDS, Check
from harness.checks.check import OverTrials
from harness.checks.finding import Finding
from harness.reason import VerdictCode, VerdictReason
from harness.scenario import Cell, Measure, Scenario
from harness.stats import measured, shown_trial
from harness.stats.attribution import Attribution, attribute
from harness.stats.outcome import Arm, CellFields, JudgedTrial, TrialKeeper


class AttributionKeeper(TrialKeeper):
    """Causes of the wrong output of the first failed trial of each arm."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._attributed: dict[Arm, Attribution] = {}

    def take(self, judged: JudgedTrial) -> None:
        trial = judged.trial
        if judged.arm in self._attributed or trial.outcome != "fail":
            return
        attribution = attribute(
            self._scenario, trial.index, trial.evidence, judged.findings, judged.history
        )
        if attribution is not None:
            self._attributed[judged.arm] = attribution

    def fields(self) -> CellFields:
        return {"attributions": self._attributed}


class MeasureKeeper(TrialKeeper):
    """Measured values, by arm, row and rank."""

    def __init__(self, cell: Cell, measures: Sequence[Measure]) -> None:
        self._cell = cell
        self._measures = measures
        self._values: dict[Arm, dict[tuple[str, int], list[float]]] = {
            "candidate": {},
            "control": {},
        }

    def take(self, judged: JudgedTrial) -> None:
        if judged.trial.outcome == "void":
            return
        for key, value in measured.values(self._measures, judged.history).items():
            self._values[judged.arm].setdefault(key, []).append(value)

    def fields(self) -> CellFields:
        rows = measured.rows(self._measures, size=self._cell.ranks, arms=self._values)
        return {"measured": rows}


class SampleKeeper(TrialKeeper):
    """One trial of each arm that is shown rank by rank: the first that failed, else the first."""

    def __init__(
        self, scenario: Scenario, *, read: Callable[[str], bytes], names: Collection[str]
    ) -> None:
        self._show = scenario.show
        self._read = read
        self._names = names
        self._samples: dict[str, shown_trial.ShownTrial] = {}

    def take(self, judged: JudgedTrial) -> None:
        trial = judged.trial
        if trial.outcome == "void":
            return
        known = self._samples.get(judged.arm)
        # A trial that failed shows more than one that passed.
        if known is None or trial.outcome == "fail" != known.outcome:
            self._samples[judged.arm] = shown_trial.make(
                trial,
                judged.findings,
                judged.history,
                values=self._show,
                read=self._read,
                names=self._names,
            )

    def fields(self) -> CellFields:
        return {"samples": self._samples}


class WorstKeeper(TrialKeeper):
    """What each check of the scenario saw over all trials of the candidate that counted."""

    def __init__(self, scenario: Scenario) -> None:
        self._checks = {check.id: check for check in scenario.checks}
        self._worst: dict[str, shown_trial.WorstFinding | None] = dict.fromkeys(self._checks)

    def take(self, judged: JudgedTrial) -> None:
        if judged.arm != "candidate" or judged.trial.outcome == "void":
            return
        for finding in judged.findings:
            if finding.check not in self._worst:
                continue
            known = self._worst[finding.check]
            if known is None or (known.passed and _is_worse(finding, known)):
                self._worst[finding.check] = shown_trial.worst_finding(
                    judged.trial,
                    finding,
                    is_value=self._checks[finding.check].properties.reports_a_value,
                )

    def fields(self) -> CellFields:
        return {"worst": [found for found in self._worst.values() if found is not None]}


def _is_worse(finding: Finding, known: shown_trial.WorstFinding) -> bool:
    """Tell whether a finding failed, or used more of what its check allows than one that passed."""
    if not finding.passed:
        return True
    used = known.share or 0.0
    return any(part.share is not None and part.share > used for part in finding.ranks)


class CheckKeeper(TrialKeeper):
    """Keeper that a check brings by itself.

    Its check may be a plug-in's, so whatever is called of it raises `PluginFailed`.
    """

    def __init__(self, check: Check, over_trials: OverTrials) -> None:
        self._check = check
        self._over_trials = over_trials

    def take(self, judged: JudgedTrial) -> None:
        if judged.trial.outcome == "void":
            return
        for finding in judged.findings:
            if finding.check == self._check.id:
                with KINDS.guarded(self._check.kind):
                    self._over_trials.take(judged.arm, finding, judged.history)

    def reasons(self) -> Iterator[VerdictReason]:
        with KINDS.guarded(self._check.kind):
            doubts = [str(doubt) for doubt in self._over_trials.doubts()]
        for doubt in doubts:
            yield VerdictReason(VerdictCode.OVER_TRIALS, f"check {self._check.id}: {doubt}")


def of_checks(checks: Iterable[Check]) -> Iterator[CheckKeeper]:
    """Yield the keepers that the checks of a scenario bring."""
    for check in checks:
        with KINDS.guarded(check.kind):
            over_trials = check.over_trials()
        if over_trials is not None:
            yield CheckKeeper(check, over_trials)
