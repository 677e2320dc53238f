"""Verdicts: of a cell from its trials, of a scenario from its cells, of a run from its scenarios.

FAIL beats INCONCLUSIVE beats PASS. A skipped cell merges with nothing. Nothing here looks at a clock, a file or a
process: the same scenario, plan and events give the same verdict anywhere, which is what verification rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field

from harness.checks.finding import canonical
from harness.forms.digest import fold
from harness.forms.model import Model
from harness.history import History
from harness.history.silence import longest_silence
from harness.reason import DeviationCode, Skip, VerdictCode, VerdictReason
from harness.scenario import SIGNIFICANT, Cell, Scenario
from harness.stats import environment, measured, outcome, provenance, shown_trial
from harness.stats.environment import ArmEnvironment
from harness.stats.hang import LineOf
from harness.stats.intervals import fisher, upper_bound
from harness.stats.measured import Measured
from harness.stats.outcome import Arm, Trial
from harness.stats.standing import HungTrial, hung_trial
from harness.stats.unshown import Printed, Unshown

Word = Literal["PASS", "FAIL", "INCONCLUSIVE", "SKIPPED"]
ORDER: tuple[Word, ...] = ("FAIL", "INCONCLUSIVE", "PASS")


class Instead(Model):
    """What a control did instead of failing as stated, and in how many trials."""

    code: DeviationCode = Field(strict=False)
    text: str
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
    otherwise: list[Instead] = Field(default_factory=list)
    p_value: float | None = None


class CellVerdict(Model):
    """One cell: its verdict, every reason for it (none for PASS) with its code, and per arm one trial rank by rank.

    `hung` shows where the ranks of the first trial of an arm stood whose world had to be stopped.
    `outside` lists modules, with their sha256, that came from neither the arm's folder nor the environment's packages.
    `ran` is None in a record from before ranks told what they had loaded.
    """

    id: str
    slug: str
    ranks: int
    backend: str
    verdict: Word
    reasons: list[VerdictReason | Skip]
    candidate: Tally | None = None
    control: Tally | None = None
    samples: dict[Arm, shown_trial.ShownTrial] = Field(default_factory=dict)
    outside: list[str] = Field(default_factory=list)
    hung: dict[Arm, HungTrial] = Field(default_factory=dict)
    ran: provenance.Summary | None = None
    measured: list[Measured] = Field(default_factory=list)


class Judgement(Model):
    """A scenario judged: what the record states and a verifier works out again.

    `unshown` says what this run leaves open, in sentences; `printed` are tracebacks of trials that passed.
    """

    verdict: Word
    as_expected: bool
    reasons: list[str]
    cells: list[CellVerdict]
    unshown: list[str] = Field(default_factory=list)
    printed: list[Printed] = Field(default_factory=list)


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
    skipped: Skip | None
    candidate: Sequence[TrialFile] = ()
    control: Sequence[TrialFile] = ()


@dataclass(frozen=True, kw_only=True)
class ArmCode:
    """What an arm is made of: the sha256 of each file of its staged folder, the entry's arguments, its environment.

    `source` is the folder of the evidence in which its files lie.
    `origin` is what its repository holds of the code that was not staged; None in a record that does not tell.
    """

    files: Mapping[str, str]
    arguments: Mapping[str, object]
    environment: ArmEnvironment | None = None
    source: str = ""
    origin: provenance.Source | None = None

    def lines(self, read: Callable[[str], bytes]) -> LineOf:
        """Find the text of a line of its files, without indentation, in the evidence."""
        known: dict[str, list[str]] = {}

        def line_of(file: str, line: int) -> str | None:
            if file not in self.files:
                return None
            if file not in known:
                known[file] = read(f"{self.source}/{file}").decode("utf-8", "backslashreplace").splitlines()
            return known[file][line - 1].strip() if 0 < line <= len(known[file]) else None

        return line_of

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
    heard: Callable[[str, History], None] = lambda _evidence, _history: None,
) -> Judgement:
    """Judge a scenario from its evidence.

    Args:
        scenario: the scenario, with its overrides.
        cells: every cell of its matrix, in order.
        arms: `candidate`, and `control` if there is one.
        read: gives the bytes of an evidence file by its path.
        names: the paths there are.
        heard: called with each trial, by the path of its events.

    Raises:
        EventError: an `events.jsonl` cannot be read.
    """
    unshown = Unshown(scenario)
    verdicts = [
        _judge_cell(scenario, cell, arms=arms, read=read, names=names, unshown=unshown, heard=heard) for cell in cells
    ]
    word = merge(cell.verdict for cell in verdicts)
    reasons = [f"{cell.id}: {reason}" for cell in verdicts for reason in cell.reasons]
    expected = scenario.expects or "PASS"
    return Judgement(
        verdict=word,
        as_expected=(scenario.role == "upstream" and scenario.expects is None) or word == expected,
        reasons=reasons,
        cells=verdicts,
        unshown=unshown.sentences(),
        printed=unshown.printed,
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
    unshown: Unshown,
    heard: Callable[[str, History], None],
) -> CellVerdict:
    cell = files.cell
    common = {"id": cell.id, "slug": cell.slug, "ranks": cell.ranks, "backend": cell.backend}
    if files.skipped is not None:
        return CellVerdict.model_validate({**common, "verdict": "SKIPPED", "reasons": [files.skipped]})
    silence = 0.0
    unproven: set[VerdictReason] = set()

    def trials(arm: Arm, planned: Sequence[TrialFile]) -> list[Trial]:
        nonlocal silence
        line_of = arms[arm].lines(read)
        judged = []
        for file in planned:
            history = History.read(read(file.evidence), size=cell.ranks)
            heard(file.evidence, history)
            trial, findings = outcome.judge(
                scenario,
                arm,
                index=file.index,
                seed=file.seed,
                evidence=file.evidence,
                history=history,
                silence=silence,
                line_of=line_of,
            )
            judged.append(trial)
            if hangs and arm == "candidate" and trial.outcome == "pass":
                silence = max(silence, longest_silence(history))
            if arm not in hung:
                stood = hung_trial(arm, history, index=file.index, evidence=file.evidence, line_of=line_of)
                hung.update({arm: stood} if stood is not None else {})
            unshown.take(cell, arm, trial, findings, history, read=read, names=names)
            unproven.update(_unproven(arm, arms[arm], history))
            if (origin := arms[arm].origin) is not None:
                unproven.update(
                    VerdictReason(VerdictCode.CODE_NOT_PROVED, _not_proved(why))
                    for why in ran.hear(arm, origin, history)
                )
            outside.update(_outside(history))
            if trial.outcome != "void":
                for key, value in measured.values(scenario.measure, history).items():
                    found[arm].setdefault(key, []).append(value)
            typical = "fail" if arm == "control" else "pass"
            if trial.outcome != "void" and (arm not in samples or trial.outcome == typical != samples[arm].outcome):
                samples[arm] = shown_trial.make(trial, findings, read=read, names=names)
        return judged

    samples: dict[str, shown_trial.ShownTrial] = {}
    outside: set[str] = set()
    hung: dict[Arm, HungTrial] = {}
    hangs = scenario.subject.control is not None and scenario.subject.control.must_fail.hang is not None
    ran = provenance.Ran(read=read, names=names)
    found: dict[Arm, dict[tuple[str, int], list[float]]] = {"candidate": {}, "control": {}}
    candidate = _tally(scenario, trials("candidate", files.candidate))
    control = None
    if scenario.subject.control is not None:
        control = _tally_control(scenario, trials("control", files.control), candidate)
        struck_alike = all(fault.arm is None for fault in scenario.faults)
        if struck_alike and arms["candidate"].same_as(arms["control"]):
            alike = "both arms are the same code with the same arguments"
            unproven.add(VerdictReason(VerdictCode.ARMS_ALIKE, _not_proved(alike)))
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
            "hung": hung,
            "ran": ran.summary() if arms["candidate"].origin is not None else None,
            "measured": measured.rows(scenario.measure, size=cell.ranks, arms=found),
        }
    )


def _unproven(arm: Arm, code: ArmCode, history: History) -> Iterator[VerdictReason]:
    """Why it is not proved that this trial ran the arm's code (rule 12)."""
    found: set[str] = set()
    elsewhere: set[str] = set()
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
            elsewhere.update(environment.unproven(arm, code.environment, values.get("environment")))
            strays = values.get("strays")
            for name in strays if isinstance(strays, list) else ():
                found.add(f"{arm}: module {name} of the arm's code came from an installed copy")
            modules = values.get("modules")
            for module in modules if isinstance(modules, list) else ():
                file, digest = module.get("file"), module.get("sha256")
                if code.files.get(file) != digest:
                    found.add(f"{arm}: {file} that a rank loaded is not the arm's")
    yield from (VerdictReason(VerdictCode.CODE_NOT_PROVED, _not_proved(why)) for why in found)
    yield from (VerdictReason(VerdictCode.ENVIRONMENT_NOT_PROVED, _not_proved(why)) for why in elsewhere)


def _not_proved(why: str) -> str:
    return f"which code ran is not proved: {why}"


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
    counted = Counter(trial.otherwise for trial in trials if trial.otherwise is not None)
    otherwise = [
        Instead(code=what.code, text=what.text, count=count)
        for what, count in sorted(counted.items(), key=lambda item: item[0].text)
    ]
    p_value = fisher(as_stated, tally.counted, candidate.failed, candidate.counted)
    return tally.model_copy(update={"as_stated": as_stated, "otherwise": otherwise, "p_value": p_value})


def _decide(
    scenario: Scenario, candidate: Tally, control: Tally | None, unproven: Collection[VerdictReason]
) -> tuple[Word, list[VerdictReason]]:
    """The rules of design §5, in their order."""
    if unproven:
        return "INCONCLUSIVE", sorted(unproven, key=str)
    accept = scenario.trials.accept
    limit = accept.failure_rate_below
    if candidate.failed and candidate.upper >= limit:
        reason = (
            f"{candidate.failed} of {candidate.counted} trials failed: the failure rate may be as high as "
            f"{candidate.upper:.1%}, and less than {limit:.1%} is asked"
        )
        return "FAIL", [VerdictReason(VerdictCode.FAILURE_RATE, reason)]
    reasons: list[VerdictReason] = []
    if candidate.upper >= limit:
        reason = (
            f"{candidate.counted} trials without a failure leave the failure rate below {candidate.upper:.1%} only, "
            f"and less than {limit:.1%} is asked"
        )
        reasons.append(VerdictReason(VerdictCode.TOO_FEW_TRIALS, reason))
    if candidate.counted < scenario.trials.candidate:
        reason = f"{candidate.counted} of {scenario.trials.candidate} candidate trials counted{_why_void(candidate)}"
        reasons.append(VerdictReason(VerdictCode.TRIALS_VOID, reason))
    reasons += _doubt(scenario, control)
    return ("INCONCLUSIVE", reasons) if reasons else ("PASS", [])


def _why_void(tally: Tally) -> str:
    usual = Counter(trial.void for trial in tally.trials if trial.void is not None).most_common(1)
    return f"; void: {usual[0][0]} ({usual[0][1]} times)" if usual else ""


def _doubt(scenario: Scenario, control: Tally | None) -> Iterator[VerdictReason]:
    """Why the control does not show that the checks can fail."""
    if control is None or scenario.subject.control is None:
        reason = "there is not a control: nothing shows that these checks can fail"
        yield VerdictReason(VerdictCode.NO_CONTROL, reason)
        return
    as_stated, share = control.as_stated or 0, scenario.subject.control.must_fail.share
    if control.counted < scenario.trials.control:
        reason = f"{control.counted} of {scenario.trials.control} control trials counted{_why_void(control)}"
        yield VerdictReason(VerdictCode.CONTROL_TRIALS_VOID, reason)
    if control.counted and not control.failed:
        reason = "no trial of the control failed any check: nothing shows that these checks can fail"
        yield VerdictReason(VerdictCode.CONTROL_NEVER_FAILED, reason)
    instead = "; ".join(f"instead, in {what.count}: {what.text}" for what in control.otherwise)
    if share.every and as_stated < control.counted:
        reason = f"the control failed as stated in {as_stated} of {control.counted} trials: {instead}"
        yield VerdictReason(VerdictCode.CONTROL_NOT_AS_STATED, reason)
    elif not share.every and (as_stated == 0 or as_stated < share.at_least * control.counted):
        reason = (
            f"the control failed as stated in {as_stated} of {control.counted} trials, at least "
            f"{share.at_least:.0%} is asked: {instead}"
        )
        yield VerdictReason(VerdictCode.CONTROL_NOT_AS_STATED, reason)
    elif control.p_value is None or control.p_value >= SIGNIFICANT:
        reason = (
            "the control's failures do not set it apart from the candidate "
            f"(Fisher's one-sided p = {control.p_value:.3f})"
        )
        yield VerdictReason(VerdictCode.CONTROL_NOT_APART, reason)
