"""What is kept over all trials of a cell: the protocol, and each keeper of our own.

`harness.stats.verdict` judges the trials one after the other and hands each to every keeper. A
keeper that is added here is one more class in the list there; a check may bring its own
(`harness.checks.check.Check.over_trials`), in the file of its kind alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.checks import KINDS, Check
from harness.checks.check import OverTrials
from harness.checks.finding import Finding
from harness.history import History
from harness.reason import VerdictCode, VerdictReason
from harness.scenario import Cell, Measure, Scenario
from harness.stats import measured, shown_trial
from harness.stats.attribution import Attribution, attribute
from harness.stats.hang import LineOf
from harness.stats.outcome import Arm, Trial
from harness.stats.stated import StatedEnd, stated_ends
from harness.stats.tally import Watches
from harness.stats.teeth import Teeth
from harness.stats.unshown import Unshown


@dataclass(frozen=True, kw_only=True)
class JudgedTrial:
    """One trial of a cell with its judgement.

    Attributes:
        cell: whose trial it is.
        arm: that ran.
        trial: how it ended.
        findings: of each check of the scenario.
        history: its events.
        line_of: the text of a line of the arm's files.
    """

    cell: Cell
    arm: Arm
    trial: Trial
    findings: Sequence[Finding]
    history: History
    line_of: LineOf


class TrialKeeper(Protocol):
    """Base of what keeps something over all trials of one cell; what it leaves out does nothing."""

    def take(self, judged: JudgedTrial) -> None:
        """Take one trial: those of the candidate in order, then those of the control."""
        raise NotImplementedError

    def reasons(self) -> Iterator[VerdictReason]:
        """Yield why the cell cannot be PASS, when all trials were taken."""
        yield from ()

    def fields(self) -> Mapping[str, Any]:
        """Return what it fills in of a `CellVerdict`, by the name of the field."""
        return {}


class HangKeeper(TrialKeeper):
    """Where worlds stood that had to be stopped, for how long, and how control trials failed as
    stated.

    Attributes:
        watches: for how long the worlds of the cell stood still.
        ends: by how ranks failed as stated, the numbers of those trials.
    """

    def __init__(self, scenario: Scenario, cell: Cell) -> None:
        self._control = scenario.subject.control
        self.watches = Watches(scenario, cell)
        self.ends: defaultdict[StatedEnd, list[int]] = defaultdict(list)
        self._hung: dict[Arm, shown_trial.HungTrial] = {}

    def take(self, judged: JudgedTrial) -> None:
        trial = judged.trial
        self.watches.take(judged.arm, trial, judged.history)
        if judged.arm not in self._hung:
            stood = shown_trial.hung_trial(
                judged.arm,
                judged.history,
                index=trial.index,
                evidence=trial.evidence,
                line_of=judged.line_of,
            )
            if stood is not None:
                self._hung[judged.arm] = stood
        if trial.as_stated and self._control is not None:
            for end in stated_ends(self._control.must_fail, judged.findings, judged.history):
                self.ends[end].append(trial.index)

    def of_control(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials of the control, without what does not count as stated."""
        return self.watches.judge(trials, self.ends, self._hung)

    def fields(self) -> Mapping[str, Any]:
        return {"hung": self._hung}


@dataclass(frozen=True)
class TeethKeeper(TrialKeeper):
    """Wrong arrays on which checks were tried, kept over all cells of a scenario."""

    teeth: Teeth

    def take(self, judged: JudgedTrial) -> None:
        self.teeth.take(judged.cell, judged.arm, judged.trial, judged.findings, judged.history)


@dataclass(frozen=True)
class UnshownKeeper(TrialKeeper):
    """What trials leave open, kept over all cells of a scenario."""

    unshown: Unshown
    read: Callable[[str], bytes]
    names: Collection[str]

    def take(self, judged: JudgedTrial) -> None:
        self.unshown.take(
            judged.cell,
            judged.arm,
            judged.trial,
            judged.findings,
            judged.history,
            read=self.read,
            names=self.names,
        )


class AttributionKeeper(TrialKeeper):
    """What the wrong output of the first failed trial of each arm comes from."""

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

    def fields(self) -> Mapping[str, Any]:
        return {"attributions": self._attributed}


class MeasureKeeper(TrialKeeper):
    """What was measured, by arm, row and rank."""

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

    def fields(self) -> Mapping[str, Any]:
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

    def fields(self) -> Mapping[str, Any]:
        return {"samples": self._samples}


class CheckKeeper(TrialKeeper):
    """What a check keeps over all trials by itself.

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
