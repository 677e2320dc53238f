"""Verdicts: of a cell from its trials, of a scenario from its cells, of a run from its scenarios.

FAIL beats INCONCLUSIVE beats PASS. A skipped cell merges with nothing. Nothing here looks at a clock, a file or a
process: the same scenario, plan and events give the same verdict anywhere, which is what verification rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from harness.checks import History
from harness.checks.finding import canonical
from harness.digest import fold
from harness.scenario import SIGNIFICANT, Cell, Scenario
from harness.stats import environment, measured, outcome, provenance, sample
from harness.stats.environment import ArmEnvironment
from harness.stats.intervals import fisher, upper_bound
from harness.stats.measured import Measured
from harness.stats.outcome import Arm, Frozen, Trial

Word = Literal["PASS", "FAIL", "INCONCLUSIVE", "SKIPPED"]
ORDER: tuple[Word, ...] = ("FAIL", "INCONCLUSIVE", "PASS")


class Tally(Frozen):
    """One arm of a cell, counted.

    Attributes:
        trials: every trial that ran, in order.
        counted: those that are not void.
        failed: counted trials in which a check failed.
        voids: trials that are void.
        upper: upper bound of the failure rate at the scenario's confidence.
        upper_with_voids: the same if every void trial had been a failure.
        as_stated: for a control, counted trials that failed as stated.
        otherwise: for a control, what the others did instead, with how often.
        p_value: for a control, Fisher's one-sided p against the candidate.
    """

    trials: list[Trial]
    counted: int
    failed: int
    voids: int
    upper: float
    upper_with_voids: float
    as_stated: int | None = None
    otherwise: dict[str, int] = Field(default_factory=dict)
    p_value: float | None = None


class CellVerdict(Frozen):
    """One cell: its verdict, every reason for it (none for PASS), and per arm one trial rank by rank.

    `outside` lists modules, with their sha256, that came from neither the arm's folder nor the environment's packages.
    `ran` is None in a record from before ranks told what they had loaded.
    """

    id: str
    slug: str
    ranks: int
    backend: str
    verdict: Word
    reasons: list[str]
    candidate: Tally | None = None
    control: Tally | None = None
    samples: dict[Arm, sample.Sample] = Field(default_factory=dict)
    outside: list[str] = Field(default_factory=list)
    ran: provenance.Summary | None = None
    measured: list[Measured] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_ran(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `ran` out where there is none: records from before it stay what they are, byte for byte."""
        found: dict[str, Any] = dump(self)
        if self.ran is None:
            del found["ran"]
        return found


class Judgement(Frozen):
    """A scenario judged: what the record states and a verifier works out again."""

    verdict: Word
    as_expected: bool
    reasons: list[str]
    cells: list[CellVerdict]


@dataclass(frozen=True, kw_only=True)
class TrialFile:
    """Where a trial's events are, before anybody has read them."""

    index: int
    seed: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class CellFiles:
    """A cell's trials, or why it was skipped."""

    cell: Cell
    skipped: str
    candidate: Sequence[TrialFile] = ()
    control: Sequence[TrialFile] = ()


@dataclass(frozen=True, kw_only=True)
class ArmCode:
    """What an arm is made of: the sha256 of each file of its staged folder, the entry's arguments, its environment.

    `source` is what its repository holds of the code that was not staged; None in a record that does not tell.
    """

    files: Mapping[str, str]
    arguments: Mapping[str, object]
    environment: ArmEnvironment | None = None
    source: provenance.Source | None = None

    @cached_property
    def folder(self) -> str:
        """One digest of the files."""
        return fold(self.files)

    def same_as(self, other: ArmCode) -> bool:
        """Whether both arms would run the same code in the same way."""
        digests = [code.environment.digest if code.environment else "" for code in (self, other)]
        return (
            dict(self.files) == dict(other.files)
            and canonical(dict(self.arguments)) == canonical(dict(other.arguments))
            and digests[0] == digests[1]
        )


def judge(
    scenario: Scenario,
    cells: Iterable[CellFiles],
    *,
    arms: Mapping[str, ArmCode],
    read: Callable[[str], bytes],
    names: Collection[str],
) -> Judgement:
    """Judge a scenario from its evidence.

    Args:
        scenario: the scenario, with its overrides.
        cells: every cell of its matrix, in order.
        arms: `candidate`, and `control` if there is one.
        read: gives the bytes of an evidence file by its path.
        names: the paths there are.

    Raises:
        EventError: an `events.jsonl` cannot be read.
    """
    verdicts = [_judge_cell(scenario, cell, arms=arms, read=read, names=names) for cell in cells]
    word = merge(cell.verdict for cell in verdicts)
    reasons = [f"{cell.id}: {reason}" for cell in verdicts for reason in cell.reasons]
    expected = scenario.expects or "PASS"
    return Judgement(
        verdict=word,
        as_expected=(scenario.role == "upstream" and scenario.expects is None) or word == expected,
        reasons=reasons,
        cells=verdicts,
    )


def merge(words: Iterable[Word]) -> Word:
    """FAIL beats INCONCLUSIVE beats PASS; what was skipped says nothing, and nothing at all is INCONCLUSIVE."""
    found = set(words)
    return next((word for word in ORDER if word in found), "INCONCLUSIVE")


def _judge_cell(
    scenario: Scenario,
    files: CellFiles,
    *,
    arms: Mapping[str, ArmCode],
    read: Callable[[str], bytes],
    names: Collection[str],
) -> CellVerdict:
    cell = files.cell
    common = {"id": cell.id, "slug": cell.slug, "ranks": cell.ranks, "backend": cell.backend}
    if files.skipped:
        return CellVerdict.model_validate({**common, "verdict": "SKIPPED", "reasons": [files.skipped]})
    unproven: Counter[str] = Counter()

    def trials(arm: Arm, planned: Sequence[TrialFile]) -> list[Trial]:
        judged = []
        for file in planned:
            history = History.read(read(file.evidence), size=cell.ranks)
            trial, findings = outcome.judge(
                scenario,
                arm,
                index=file.index,
                seed=file.seed,
                evidence=file.evidence,
                history=history,
            )
            judged.append(trial)
            unproven.update(_unproven(arm, arms[arm], history))
            if (source := arms[arm].source) is not None:
                unproven.update(ran.hear(arm, source, history))
            outside.update(_outside(history))
            if trial.outcome != "void":
                for key, value in measured.values(scenario.measure, history).items():
                    found[arm].setdefault(key, []).append(value)
            typical = "fail" if arm == "control" else "pass"
            if trial.outcome != "void" and (arm not in samples or trial.outcome == typical != samples[arm].outcome):
                samples[arm] = sample.make(trial, findings, read=read, names=names)
        return judged

    samples: dict[str, sample.Sample] = {}
    outside: set[str] = set()
    ran = provenance.Ran(read=read, names=names)
    found: dict[Arm, dict[tuple[str, int], list[float]]] = {"candidate": {}, "control": {}}
    candidate = _tally(scenario, trials("candidate", files.candidate))
    control = None
    if scenario.subject.control is not None:
        control = _tally_control(scenario, trials("control", files.control), candidate)
        struck_alike = all(fault.arm is None for fault in scenario.faults)
        if struck_alike and arms["candidate"].same_as(arms["control"]):
            unproven["both arms are the same code with the same arguments"] += 1
    word, reasons = _decide(scenario, candidate, control, unproven)
    return CellVerdict.model_validate(
        {
            **common,
            "verdict": word,
            "reasons": reasons,
            "candidate": candidate,
            "control": control,
            "samples": samples,
            "outside": sorted(outside | ran.beside),
            "ran": ran.summary() if arms["candidate"].source is not None else None,
            "measured": measured.rows(scenario.measure, size=cell.ranks, arms=found),
        }
    )


def _unproven(arm: Arm, code: ArmCode, history: History) -> set[str]:
    """Why it is not proved that this trial ran the arm's code (rule 12)."""
    found: set[str] = set()
    for rank in range(history.size):
        if (executed := history.executed(rank)) is not None:
            if executed.event.values.get("folder") != code.folder:
                found.add(f"{arm}: the folder a program was started from is not the arm's any more")
            for name, digest in history.executed_files(rank):
                if code.files.get(name) != digest:
                    found.add(f"{arm}: {name} that was executed is not the arm's")
        for seen in history.said(rank, "subject.loaded") if not history.is_of_programs else ():
            values = seen.event.values
            if values.get("elsewhere"):
                found.add(f"{arm}: the entry came from elsewhere, not from the arm's folder")
            found.update(environment.unproven(arm, code.environment, values.get("environment")))
            strays = values.get("strays")
            for name in strays if isinstance(strays, list) else ():
                found.add(f"{arm}: module {name} of the arm's code came from an installed copy")
            modules = values.get("modules")
            for module in modules if isinstance(modules, list) else ():
                file, digest = module.get("file"), module.get("sha256")
                if code.files.get(file) != digest:
                    found.add(f"{arm}: {file} that a rank loaded is not the arm's")
    return found


def _outside(history: History) -> set[str]:
    found: set[str] = set()
    for rank in range(history.size):
        for seen in history.said(rank, "subject.loaded"):
            modules = seen.event.values.get("outside")
            for module in modules if isinstance(modules, list) else ():
                found.add(f"{module.get('module')} ({module.get('file')}, sha256 {module.get('sha256')})")
    return found


def _tally(scenario: Scenario, trials: list[Trial]) -> Tally:
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


def _tally_control(scenario: Scenario, trials: list[Trial], candidate: Tally) -> Tally:
    tally = _tally(scenario, trials)
    as_stated = sum(bool(trial.as_stated) for trial in trials)
    otherwise = Counter(trial.otherwise for trial in trials if trial.otherwise)
    p_value = fisher(as_stated, tally.counted, candidate.failed, candidate.counted)
    return tally.model_copy(update={"as_stated": as_stated, "otherwise": dict(otherwise), "p_value": p_value})


def _decide(
    scenario: Scenario, candidate: Tally, control: Tally | None, unproven: Mapping[str, int]
) -> tuple[Word, list[str]]:
    """The rules of design §5, in their order."""
    if unproven:
        return "INCONCLUSIVE", [f"which code ran is not proved: {why}" for why in sorted(unproven)]
    accept = scenario.trials.accept
    limit = accept.failure_rate_below
    if candidate.failed and candidate.upper >= limit:
        return "FAIL", [
            (
                f"{candidate.failed} of {candidate.counted} trials failed: the failure rate may be as high as "
                f"{candidate.upper:.1%}, and less than {limit:.1%} is asked"
            )
        ]
    reasons: list[str] = []
    if candidate.upper >= limit:
        reasons.append(
            f"{candidate.counted} trials without a failure leave the failure rate below {candidate.upper:.1%} only, "
            f"and less than {limit:.1%} is asked"
        )
    if candidate.counted < scenario.trials.candidate:
        reasons.append(
            f"{candidate.counted} of {scenario.trials.candidate} candidate trials counted{_why_void(candidate)}"
        )
    reasons += _doubt(scenario, control)
    return ("INCONCLUSIVE", reasons) if reasons else ("PASS", [])


def _why_void(tally: Tally) -> str:
    usual = Counter(trial.void for trial in tally.trials if trial.void).most_common(1)
    return f"; void: {usual[0][0]} ({usual[0][1]} times)" if usual else ""


def _doubt(scenario: Scenario, control: Tally | None) -> list[str]:
    """Why the control does not show that the checks can fail."""
    if control is None or scenario.subject.control is None:
        return ["there is no control: nothing shows that these checks can fail"]
    reasons = []
    as_stated, share = control.as_stated or 0, scenario.subject.control.must_fail.share
    if control.counted < scenario.trials.control:
        reasons.append(f"{control.counted} of {scenario.trials.control} control trials counted{_why_void(control)}")
    instead = "; ".join(f"instead, in {count}: {what}" for what, count in sorted(control.otherwise.items()))
    if share.every and as_stated < control.counted:
        reasons.append(f"the control failed as stated in {as_stated} of {control.counted} trials: {instead}")
    elif not share.every and (as_stated == 0 or as_stated < share.at_least * control.counted):
        reasons.append(
            f"the control failed as stated in {as_stated} of {control.counted} trials, at least "
            f"{share.at_least:.0%} is asked: {instead}"
        )
    elif control.p_value is None or control.p_value >= SIGNIFICANT:
        reasons.append(
            "the control's failures do not set it apart from the candidate "
            f"(Fisher's one-sided p = {control.p_value:.3f})"
        )
    return reasons
