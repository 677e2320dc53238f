"""Verdicts: of a cell from its trials, of a scenario from its cells, of a run from its scenarios.

FAIL beats INCONCLUSIVE beats PASS. A skipped cell merges with nothing. Nothing here looks at a
clock, a file or a process: the same scenario, plan and events give the same verdict anywhere, which
is what verification rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import Field

from harness.checks.finding import canonical
from harness.forms.digest import fold
from harness.forms.model import Model
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import Skip, VerdictCode, VerdictReason
from harness.scenario import Cell, Measure, Scenario, reference_of
from harness.stats import outcome, provenance, shown_trial
from harness.stats import reference as references
from harness.stats.attribution import Attribution, climb
from harness.stats.cell_keepers import (
    AttributionKeeper,
    MeasureKeeper,
    SampleKeeper,
    of_checks,
)
from harness.stats.counterparts import BuiltCheckout, Source
from harness.stats.hang import LineOf
from harness.stats.measured import Measured
from harness.stats.outcome import Arm, CellFacts, CellFields, JudgedTrial, Trial, TrialKeeper
from harness.stats.tally import Tally, Watches, Word, decide, tally, tally_control
from harness.stats.teeth import Teeth
from harness.stats.unshown import PrintedTraceback, Unshown

ORDER: tuple[Word, ...] = ("FAIL", "INCONCLUSIVE", "PASS")


class CellVerdict(Model):
    """One cell: its verdict, every reason for it (none for PASS) with its code, and per arm one
    trial rank by rank.

    `hung` shows where the ranks of the first trial of an arm stood whose world had to be stopped.
    `outside` lists modules, with their sha256, that came from neither the arm's folder nor the
    environment's packages. `control_holds` is whether the control is stated to hold here: it fails
    in other cells. `attributions` say of each arm whose output was wrong what that comes from, as
    far as the run tells. `ran` is None in a cell that was skipped.
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
    outside: list[str] = Field(default_factory=list)
    hung: dict[Arm, shown_trial.HungTrial] = Field(default_factory=dict)
    ran: provenance.CodeSummary | None = None
    measured: list[Measured] = Field(default_factory=list)
    reference: references.ReferenceRuns | None = None
    control_holds: bool = False
    attributions: dict[Arm, Attribution] = Field(default_factory=dict)

    @property
    def arms(self) -> Mapping[Arm, Tally]:
        """Return the arms that ran, the candidate first."""
        tallies: dict[Arm, Tally | None] = {"candidate": self.candidate, "control": self.control}
        return {arm: counts for arm, counts in tallies.items() if counts is not None}


class Judgement(Model):
    """Scenario judged: what the record states and a verifier works out again.

    `unshown` says what this run leaves open, in sentences; `printed` are tracebacks of trials that
    passed.
    """

    verdict: Word
    as_expected: bool
    reasons: list[str]
    cells: list[CellVerdict]
    unshown: list[str] = Field(default_factory=list)
    printed: list[PrintedTraceback] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class JudgedEnvironment:
    """Environment that was made for an arm.

    Attributes:
        digest: of every file that was installed in it, wherever from.
        python: version of its interpreter.
        implementation: such as `cpython`.
        named: packages that the scenario names, by normal name, with version and digest of its
            files.
        checkouts: those of them that were built from a commit.
    """

    digest: str
    python: str
    implementation: str
    named: Mapping[str, tuple[str, str]]
    checkouts: Mapping[str, BuiltCheckout] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ArmCode:
    """Code of an arm: the sha256 of each file of its staged folder, the entry's arguments, its
    environment.

    `source` is the folder of the evidence in which its files lie.
    `origin` is what its repository holds of the code that was not staged; None where nobody asks
    which code ran.
    """

    files: Mapping[str, str]
    arguments: Mapping[str, object]
    environment: JudgedEnvironment | None = None
    source: str = ""
    origin: Source | None = None

    def lines(self, read: Callable[[str], bytes]) -> LineOf:
        """Find the text of a line of its files, without indentation, in the evidence."""
        known: dict[str, list[str]] = {}

        def line_of(file: str, line: int) -> str | None:
            if file not in self.files:
                return None
            if file not in known:
                known[file] = (
                    read(f"{self.source}/{file}").decode("utf-8", "backslashreplace").splitlines()
                )
            return known[file][line - 1].strip() if 0 < line <= len(known[file]) else None

        return line_of

    @cached_property
    def folder(self) -> str:
        """One digest of the files."""
        return fold(self.files)

    def same_as(self, other: ArmCode) -> bool:
        """Return whether both arms would run the same code in the same way."""
        digests = [code.environment.digest if code.environment else "" for code in (self, other)]
        return (
            dict(self.files) == dict(other.files)
            and canonical(dict(self.arguments)) == canonical(dict(other.arguments))
            and digests[0] == digests[1]
        )


# Seven arguments: the plan, the code and where the evidence is are known to different callers.
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
        printed=basis.unshown.printed,
    )


def _toothless(cell: CellVerdict, teeth: Teeth) -> CellVerdict:
    """Return the verdict of a cell whose checks may not have been able to fail.

    A check that failed was able to.
    """
    reasons = list(teeth.doubts(cell.id)) if cell.verdict in ("PASS", "INCONCLUSIVE") else []
    if not reasons:
        return cell
    return cell.model_copy(update={"verdict": "INCONCLUSIVE", "reasons": [*cell.reasons, *reasons]})


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
        unshown: takes the trials of all cells, one after the other; so does `teeth`.
    """

    scenario: Scenario
    arms: Mapping[str, ArmCode]
    read: Callable[[str], bytes]
    names: Collection[str]
    heard: Callable[[str, History], None]
    measures: Sequence[Measure]
    shows: bool
    unshown: Unshown
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
    code = _CodeKeeper(scenario, basis.arms, ran)
    watches = Watches(scenario, cell)
    keepers: list[TrialKeeper] = [
        watches,
        basis.teeth,
        basis.unshown,
        code,
        AttributionKeeper(scenario),
        MeasureKeeper(cell, basis.measures),
        SampleKeeper(scenario, read=basis.read, names=basis.names),
        *of_checks(scenario.checks),
    ]
    histories, summary = references.read_reference(scenario, cell, read=basis.read)
    reference = histories[0][1] if histories else None
    plan = reference_of(scenario, cell)
    if plan is not None:
        code.unproven.update(_of_reference(basis, histories, plan.arm, ran))
        basis.unshown.take_references(plan.arm, [run for _, run in histories])
        basis.teeth.take_reference(cell, histories[-1][1])

    def trials(arm: Arm, count: int) -> list[Trial]:
        judged = []
        for index in range(count):
            taken = _judge_trial(basis, cell, arm, index, reference, silence=watches.silence)
            # Before the next trial is judged: how long the candidate was silent decides how it is.
            for keeper in keepers:
                keeper.take(taken)
            judged.append(taken.trial)
        return judged

    candidate = tally(scenario, trials("candidate", facts.candidate))
    control = None
    holds = False
    if scenario.subject.control is not None:
        holds = not scenario.subject.control.must_fail.applies(cell.values)
        counted = watches.judge(trials("control", facts.control))
        control = tally_control(scenario, counted, candidate, watches.ends, holds=holds)
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
    history = History.read(basis.read(evidence), size=cell.ranks, reference=reference)
    basis.heard(evidence, history)
    trial, findings = outcome.judge(
        basis.scenario, cell, arm, index, history, silence=silence, line_of=line_of
    )
    return JudgedTrial(
        cell=cell, arm=arm, trial=trial, findings=findings, history=history, line_of=line_of
    )


class _CodeKeeper(TrialKeeper):
    """Why it is not proved that trials ran the code of their arms (rule 12), and what else ran.

    Attributes:
        unproven: reasons so far, those of the reference too.
    """

    def __init__(
        self, scenario: Scenario, arms: Mapping[str, ArmCode], ran: provenance.Ran
    ) -> None:
        self._subject = scenario.subject
        self._arms = arms
        self._ran = ran
        self.unproven: set[VerdictReason] = set(_alike(scenario, arms))

    def take(self, judged: JudgedTrial) -> None:
        code = self._arms[judged.arm]
        self.unproven.update(_unproven(self._subject.called(judged.arm), code, judged.history))
        if code.origin is not None:
            for why in self._ran.hear(judged.arm, code.origin, judged.history):
                reason = VerdictReason(VerdictCode.CODE_NOT_PROVED, _not_proved(why))
                self.unproven.add(reason)

    def reasons(self) -> Iterator[VerdictReason]:
        yield from self.unproven

    def fields(self) -> CellFields:
        is_asked = self._arms["candidate"].origin is not None
        return {
            "outside": sorted(self._ran.beside),
            "ran": self._ran.summary() if is_asked else None,
        }


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
        yield from _unproven(scenario.subject.called(arm), code, history)
        for why in ran.hear(arm, code.origin, history) if code.origin is not None else ():
            yield VerdictReason(VerdictCode.CODE_NOT_PROVED, _not_proved(why))
    if runs:
        yield from references.doubts(scenario, runs)


def _alike(scenario: Scenario, arms: Mapping[str, ArmCode]) -> Iterator[VerdictReason]:
    """Why arms that are compared could not have differed: they are the same."""
    if (other := arms.get("reference")) is not None:
        if arms["candidate"].same_as(other):
            alike = "a and b are the same code with the same arguments in the same environment"
            yield VerdictReason(VerdictCode.ARMS_ALIKE, f"nothing could differ: {alike}")
        return
    control = arms.get("control")
    struck_alike = all(fault.arm is None for fault in scenario.faults)
    if control is not None and struck_alike and arms["candidate"].same_as(control):
        alike = "both arms are the same code with the same arguments"
        yield VerdictReason(VerdictCode.ARMS_ALIKE, _not_proved(alike))


def _unproven(arm: str, code: ArmCode, history: History) -> Iterator[VerdictReason]:
    """Why it is not proved that this trial ran the arm's code (rule 12)."""
    unproved: set[str] = set()
    elsewhere: set[str] = set()
    for rank in range(history.size):
        if (executed := history.executed(rank)) is not None:
            if executed.event.values.get("folder") != code.folder:
                unproved.add(
                    f"{arm}: the folder a program was started from is not the arm's any more"
                )
            for name, digest in history.executed_files(rank):
                if code.files.get(name) != digest:
                    unproved.add(f"{arm}: {name} that was executed is not the arm's")
        # A program may emit any event, and was started from the files looked at above.
        if history.is_of_programs:
            continue
        for seen in history.said(rank, "subject.loaded"):
            values = seen.event.values
            if values.get("elsewhere"):
                unproved.add(f"{arm}: the entry came from elsewhere, not from the arm's folder")
            elsewhere.update(environment_unproven(arm, code.environment, values.get("environment")))
            strays = values.get("strays")
            for name in strays if isinstance(strays, list) else ():
                unproved.add(f"{arm}: module {name} of the arm's code came from an installed copy")
        for file, digest in provenance.loaded_files(history, rank):
            if code.files.get(file) != digest:
                unproved.add(f"{arm}: {file} that a rank loaded is not the arm's")
    yield from (VerdictReason(VerdictCode.CODE_NOT_PROVED, _not_proved(why)) for why in unproved)
    yield from (
        VerdictReason(VerdictCode.ENVIRONMENT_NOT_PROVED, _not_proved(why)) for why in elsewhere
    )


def environment_unproven(
    arm: str, environment: JudgedEnvironment | None, reported: JSON
) -> Iterator[str]:
    """Why it is not proved that a rank ran in its arm's environment.

    Args:
        arm: its name.
        environment: its environment; None is the one that Rankproof runs in.
        reported: `environment` of the rank's `subject.loaded`; None where it told nothing.
    """
    if environment is None:
        if reported is not None:
            yield f"{arm}: a rank ran in an environment of its own, and the arm has none"
        return
    if not isinstance(reported, dict) or reported.get("apart") is not True:
        yield f"{arm}: a rank did not run in the arm's environment"
        return
    if (reported.get("python"), reported.get("implementation")) != (
        environment.python,
        environment.implementation,
    ):
        there = f"{reported.get('implementation')} {reported.get('python')}"
        yield f"{arm}: a rank ran in {there}, not in Python {environment.python}"
    packages = reported.get("packages")
    for name, (version, record) in environment.named.items():
        package = packages.get(name) if isinstance(packages, dict) else None
        if not isinstance(package, dict) or (package.get("version"), package.get("record")) != (
            version,
            record,
        ):
            seen = package.get("version") if isinstance(package, dict) else "no such package"
            yield f"{arm}: {name} {version} was installed, a rank found {seen} or other files of it"


def _not_proved(why: str) -> str:
    return f"which code ran is not proved: {why}"
