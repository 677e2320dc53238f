"""Verdicts: of a cell from its trials, of a scenario from its cells, of a run from its scenarios.

FAIL beats INCONCLUSIVE beats PASS. A skipped cell merges with nothing. Nothing here looks at a
clock, a file or a process: the same scenario, plan and events give the same verdict anywhere, which
is what verification rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from harness.forms.model import Model
from harness.forms.text import plural
from harness.history import History
from harness.reason import Skip, VerdictCode, VerdictReason
from harness.scenario import SIGNIFICANT, Cell, Measure, Scenario, reference_of
from harness.stats import outcome, provenance, shown_trial
from harness.stats import reference as references
from harness.stats.arm_code import ArmCode, CodeKeeper, not_proved, unproven_reasons
from harness.stats.attribution import Attribution, climb
from harness.stats.cell_keepers import (
    AttributionKeeper,
    MeasureKeeper,
    SampleKeeper,
    WorstKeeper,
    of_checks,
)
from harness.stats.hang import LineOf
from harness.stats.measured import Measured
from harness.stats.notices import Notice, Notices, PrintedTraceback
from harness.stats.outcome import Arm, CellFacts, JudgedTrial, Trial, TrialKeeper
from harness.stats.services import ServiceKeeper, ServiceSummary
from harness.stats.tally import Tally, Watches, Word, tally, tally_control
from harness.stats.teeth import Teeth
from harness.stats.unshown import Unshown

ORDER: tuple[Word, ...] = ("FAIL", "INCONCLUSIVE", "PASS")


class CellVerdict(Model):
    """One cell: its verdict, every reason for it (none for PASS) with its code, and per arm one
    trial rank by rank.

    `hung` shows where the ranks of the first trial of an arm stood whose world had to be stopped.
    `outside` lists modules, with their sha256, that came from neither the arm's folder nor the
    environment's packages. `control_holds` is whether the control is stated to hold here: it fails
    in other cells. `attributions` say of each arm whose output was wrong what that comes from, as
    far as the run tells. `services` are the scenario's services, arm by arm. `ran` is None in a
    cell that was skipped. `worst` has, of each check, what it saw over all trials of the candidate.
    `hosts` is on how many machines its ranks are meant to be; None where the scenario does not say.
    """

    id: str
    slug: str
    ranks: int
    backend: str
    hosts: int | None = None
    verdict: Word
    reasons: list[VerdictReason | Skip]
    candidate: Tally | None = None
    control: Tally | None = None
    samples: dict[Arm, shown_trial.ShownTrial] = Field(default_factory=dict)
    worst: list[shown_trial.WorstFinding] = Field(default_factory=list)
    outside: list[str] = Field(default_factory=list)
    hung: dict[Arm, shown_trial.HungTrial] = Field(default_factory=dict)
    ran: provenance.CodeSummary | None = None
    measured: list[Measured] = Field(default_factory=list)
    reference: references.ReferenceRuns | None = None
    control_holds: bool = False
    attributions: dict[Arm, Attribution] = Field(default_factory=dict)
    services: list[ServiceSummary] = Field(
        default_factory=list[ServiceSummary], exclude_if=lambda services: not services
    )

    @property
    def arms(self) -> Mapping[Arm, Tally]:
        """Return the arms that ran, the candidate first."""
        tallies: dict[Arm, Tally | None] = {"candidate": self.candidate, "control": self.control}
        return {arm: counts for arm, counts in tallies.items() if counts is not None}


class Judgement(Model):
    """Scenario judged: what the record states and a verifier works out again.

    `unshown` says what this run leaves open, in sentences; `notices` are what it noticed beside its
    question; `printed` are tracebacks of trials that passed.
    """

    verdict: Word
    as_expected: bool
    reasons: list[str]
    cells: list[CellVerdict]
    unshown: list[str] = Field(default_factory=list)
    notices: list[Notice] = Field(default_factory=list)
    printed: list[PrintedTraceback] = Field(default_factory=list)


# What is judged, and how its evidence is read: the run and a verifier call it alike.
def judge(
    scenario: Scenario,
    cells: Iterable[tuple[Cell, CellFacts]],
    *,
    arms: Mapping[str, ArmCode],
    read: Callable[[str], bytes],
    names: Collection[str],
    heard: Callable[[str, History], None] = lambda _evidence, _history: None,
    measures: bool = True,
) -> Judgement:
    """Judge a scenario from its evidence.

    Args:
        scenario: the scenario, with its overrides.
        cells: every cell of its matrix, in order, with its trials.
        arms: `candidate`, and `control` if there is one; of a comparison `reference` too, its a.
        read: gives the bytes of an evidence file by its path.
        names: the paths there are.
        heard: called with each trial, by the path of its events.
        measures: whether the trials were made where times and memory of one can be set beside
            another's.

    Raises:
        EventError: an `events.jsonl` cannot be read.
    """
    cells = list(cells)
    basis = _Basis(
        scenario=scenario,
        arms=arms,
        read=read,
        names=names,
        heard=heard,
        measures=scenario.measure if measures else (),
        shows=control_must_fail(scenario, (cell for cell, facts in cells if facts.skipped is None)),
        unshown=Unshown(scenario, read=read, names=names),
        notices=Notices(scenario, read=read, names=names),
        teeth=Teeth(scenario),
    )
    verdicts = [_judge_cell(basis, cell, facts) for cell, facts in cells]
    attributions = climb(
        [cell for cell, _ in cells],
        [verdict.attributions for verdict in verdicts],
        [verdict.arms for verdict in verdicts],
    )
    verdicts = [
        verdict.model_copy(update={"attributions": attributed})
        for verdict, attributed in zip(verdicts, attributions, strict=True)
    ]
    verdicts = [_toothless(verdict, basis.teeth) for verdict in verdicts]
    tolerances = {verdict.id: basis.teeth.left_open(verdict.id) for verdict in verdicts}
    word = merge(cell.verdict for cell in verdicts)
    reasons = [f"{cell.id}: {reason}" for cell in verdicts for reason in cell.reasons]
    expected = scenario.expects or "PASS"
    return Judgement(
        verdict=word,
        as_expected=(scenario.role == "upstream" and scenario.expects is None) or word == expected,
        reasons=reasons,
        cells=verdicts,
        unshown=basis.unshown.sentences(tolerances),
        notices=basis.notices.all,
        printed=basis.notices.printed,
    )


def _toothless(cell: CellVerdict, teeth: Teeth) -> CellVerdict:
    """Return the verdict of a cell whose checks may not have been able to fail.

    A check that failed was able to.
    """
    reasons = list(teeth.doubts(cell.id)) if cell.verdict in ("PASS", "INCONCLUSIVE") else []
    if not reasons:
        return cell
    return cell.model_copy(update={"verdict": "INCONCLUSIVE", "reasons": [*cell.reasons, *reasons]})


def decide(
    scenario: Scenario,
    candidate: Tally,
    control: Tally | None,
    unproven: Collection[VerdictReason],
    *,
    holds: bool = False,
    shows: bool = True,
) -> tuple[Word, list[VerdictReason]]:
    """Return the verdict and its reasons, by the rules of docs/architecture.md#verdicts in their
    order.

    `holds` is whether the control is stated to hold in this cell, `shows` whether a cell ran in
    which it must fail.
    """
    if unproven:
        return "INCONCLUSIVE", sorted(unproven, key=str)
    accept = scenario.trials.accept
    limit = accept.failure_rate_below
    over = candidate.starts
    # A start may have failed without a trial that did: its server ended between two.
    has_failed = bool(candidate.failed) or (over is not None and bool(over.failed))
    if has_failed and candidate.upper >= limit:
        found = f"{candidate.failed} of {plural(candidate.counted, 'trial')} failed"
        if over is not None:
            found += f", and {over.failed} of {plural(over.counted, 'start')} of the services"
        reason = (
            f"{found}, so the failure rate may be as high as {candidate.upper:.1%}; required: below"
            f" {limit:.1%}"
        )
        return "FAIL", [VerdictReason(VerdictCode.FAILURE_RATE, reason)]
    reasons: list[VerdictReason] = []
    if candidate.upper >= limit:
        trials = plural(candidate.counted, "trial")
        if candidate.starts is not None:
            trials += f" over {plural(candidate.starts.counted, 'start')} of the services"
        reason = (
            f"no failure in {trials} only shows a failure rate below {candidate.upper:.1%};"
            f" required: below {limit:.1%}"
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
        reason = "the scenario has no control, so this run does not show that its checks can fail"
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
        reason = f"{who} never failed a check, so this run does not show that the checks can fail"
        yield VerdictReason(VerdictCode.CONTROL_NEVER_FAILED, reason)
    if holds and not shows:
        reason = (
            f"no cell ran in which {who} must fail, so this run does not show that the checks can"
            " fail"
        )
        yield VerdictReason(VerdictCode.CONTROL_NEVER_FAILED, reason)
    instead = "; ".join(f"instead, in {what.count}: {what.text}" for what in control.otherwise)
    if (share.every or holds) and as_stated < control.counted:
        word = "held" if holds else "failed"
        reason = f"{who} {word} as required in {as_stated} of {control.counted} trials: {instead}"
        yield VerdictReason(VerdictCode.CONTROL_NOT_AS_STATED, reason)
    elif holds:
        return
    elif not share.every and (as_stated == 0 or as_stated < share.at_least * control.counted):
        reason = (
            f"{who} failed as required in {as_stated} of {control.counted} trials, but at least "
            f"{share.at_least:.0%} is required: {instead}"
        )
        yield VerdictReason(VerdictCode.CONTROL_NOT_AS_STATED, reason)
    elif control.p_value is None or control.p_value >= SIGNIFICANT:
        reason = (
            f"the failures of {who} do not distinguish it from"
            f" {scenario.subject.named('candidate')} (Fisher's one-sided p ="
            f" {control.p_value:.3f})"
        )
        yield VerdictReason(VerdictCode.CONTROL_NOT_APART, reason)


def merge(words: Iterable[Word]) -> Word:
    """FAIL beats INCONCLUSIVE beats PASS.

    What was skipped says nothing, and nothing at all is INCONCLUSIVE.
    """
    given = set(words)
    return next((word for word in ORDER if word in given), "INCONCLUSIVE")


def control_must_fail(scenario: Scenario, ran: Iterable[Cell]) -> bool:
    """Return whether the control must fail in a cell that ran: where it only holds, nothing shows
    that checks can fail.
    """
    control = scenario.subject.control
    return control is not None and any(control.must_fail.applies(cell.values) for cell in ran)


@dataclass(frozen=True, kw_only=True)
class _Basis:
    """All that the cells of a scenario are judged from, as `judge` was given it.

    Attributes:
        measures: what is measured of each trial.
        shows: whether a cell ran in which the control must fail.
        unshown: takes the trials of all cells, one after the other; so do `notices` and `teeth`.
    """

    scenario: Scenario
    arms: Mapping[str, ArmCode]
    read: Callable[[str], bytes]
    names: Collection[str]
    heard: Callable[[str, History], None]
    measures: Sequence[Measure]
    shows: bool
    unshown: Unshown
    notices: Notices
    teeth: Teeth

    @cached_property
    def lines_of(self) -> Mapping[str, LineOf]:
        """By arm, what finds the text of a line of its files; each file is read once."""
        return {arm: code.lines(self.read) for arm, code in self.arms.items()}


def _judge_cell(basis: _Basis, cell: Cell, facts: CellFacts) -> CellVerdict:
    scenario = basis.scenario
    common = {
        "id": cell.id,
        "slug": cell.slug,
        "ranks": cell.ranks,
        "backend": cell.backend,
        "hosts": cell.hosts,
    }
    if facts.skipped is not None:
        return CellVerdict.model_validate(
            {**common, "verdict": "SKIPPED", "reasons": [facts.skipped]}
        )
    ran = provenance.Ran(read=basis.read, names=basis.names)
    code = CodeKeeper(scenario, basis.arms, ran)
    watches = Watches(scenario, cell)
    services = ServiceKeeper(scenario, cell)
    keepers: list[TrialKeeper] = [
        watches,
        basis.teeth,
        basis.unshown,
        basis.notices,
        code,
        AttributionKeeper(scenario),
        MeasureKeeper(cell, basis.measures),
        SampleKeeper(scenario, read=basis.read, names=basis.names),
        WorstKeeper(scenario),
        services,
        *of_checks(scenario.checks),
    ]
    histories, summary = references.read_reference(scenario, cell, read=basis.read)
    reference = histories[0][1] if histories else None
    plan = reference_of(scenario, cell)
    if plan is not None:
        code.unproven.update(_of_reference(basis, histories, plan.arm, ran))
        basis.unshown.take_references(plan.arm, [run for _, run in histories])
        basis.teeth.take_reference(cell, histories[-1][1])
        for path, run in histories:
            basis.notices.take_reference(path, run)

    def trials(arm: Arm, count: int) -> list[Trial]:
        judged = []
        for index in range(count):
            taken = _judge_trial(basis, cell, arm, index, reference, silence=watches.silence)
            # Before the next trial is judged: how long the candidate was silent decides how it is.
            for keeper in keepers:
                keeper.take(taken)
            judged.append(taken.trial)
        return judged

    candidate = tally(scenario, trials("candidate", facts.candidate), services.starts("candidate"))
    control = None
    holds = False
    if scenario.subject.control is not None:
        holds = not scenario.subject.control.must_fail.applies(cell.values)
        counted = watches.judge(trials("control", facts.control))
        control = tally_control(
            scenario,
            counted,
            candidate,
            watches.ends,
            starts=services.starts("control"),
            holds=holds,
        )
    unproven = {reason for keeper in keepers for reason in keeper.reasons()}
    word, reasons = decide(scenario, candidate, control, unproven, holds=holds, shows=basis.shows)
    fields = {name: value for keeper in keepers for name, value in keeper.fields().items()}
    return CellVerdict.model_validate(
        {
            **common,
            **fields,
            "verdict": word,
            "reasons": reasons,
            "candidate": candidate,
            "control": control,
            "reference": summary,
            "control_holds": holds,
        }
    )


def _judge_trial(
    basis: _Basis, cell: Cell, arm: Arm, index: int, reference: History | None, *, silence: float
) -> JudgedTrial:
    line_of = basis.lines_of[arm]
    evidence = f"{outcome.trial_folder(cell.slug, arm, index)}/{outcome.EVENTS}"
    history = outcome.read_history(
        basis.scenario, cell, arm, index, read=basis.read, reference=reference
    )
    basis.heard(evidence, history)
    trial, findings = outcome.judge(
        basis.scenario, cell, arm, index, history, silence=silence, line_of=line_of
    )
    return JudgedTrial(
        cell=cell, arm=arm, trial=trial, findings=findings, history=history, line_of=line_of
    )


def _of_reference(
    basis: _Basis, histories: Iterable[tuple[str, History]], arm: str, ran: provenance.Ran
) -> Iterator[VerdictReason]:
    """Why nothing can be compared with the reference, or it is not proved that it ran the code of
    its arm.
    """
    scenario = basis.scenario
    code = basis.arms[arm]
    runs = []
    for evidence, history in histories:
        basis.heard(evidence, history)
        runs.append(history)
        yield from unproven_reasons(scenario.subject.called(arm), code, history)
        for why in ran.hear(arm, code.origin, history) if code.origin is not None else ():
            yield VerdictReason(VerdictCode.CODE_NOT_PROVED, not_proved(why))
    if runs:
        yield from references.doubts(scenario, runs)
