"""Record worked out from the evidence: by the run that made it, and again by whoever verifies it.

Pure: evidence in, record out. The plan is derived from the scenario once more, so a record cannot
leave out a trial, a cell or a seed that its scenario asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import get_args

from harness.checks.finding import canonical
from harness.events import EventError
from harness.forms.digest import sha256
from harness.history import History
from harness.plugins import PluginFailed
from harness.record import facts as facts_module
from harness.record import sources
from harness.record.arms import (
    arm_environments,
    changed_environment,
    changed_services,
    compared,
    demand_lists,
    demand_releases,
    differing,
    repositories,
)
from harness.record.artefacts import FOLDER as ARTEFACT_FOLDER
from harness.record.artefacts import Arrays
from harness.record.changed import ChangedCode
from harness.record.defect import SCRIPT_FOLDER, finding_of, script_files
from harness.record.facts import (
    ENVIRONMENT_FOLDER,
    HOME_INPUT,
    PATCH_FOLDER,
    SCENARIO_PATH,
    SOURCE_FOLDER,
    RevisionFacts,
    RunFacts,
)
from harness.record.farmed import demand_farmed, demand_over_machines
from harness.record.hangs import Frames, Hangs
from harness.record.libraries import FOLDER as LIBRARY_FOLDER
from harness.record.libraries import Libraries
from harness.record.model import (
    ArmSummary,
    Record,
    RecordError,
    Unknown,
    read_model,
)
from harness.record.planned import demand_strikes, planned_cells, summary
from harness.record.plugins import demand_installed, demand_named, unknown_kinds
from harness.record.recomputed import Accounts, Ledgers
from harness.record.reproduced import REPRODUCED_PATH, ReproducedRun, RunComparison, compare
from harness.record.served import Served, names_of, service_files
from harness.record.sources import recipe
from harness.record.trial_reader import TrialReader
from harness.record.witness import Witness, demand_own, demand_planned
from harness.scenario import Arm as ScenarioArm
from harness.scenario import Cell, Scenario, ScenarioError, parse_scenario
from harness.stats.arm_code import ArmCode
from harness.stats.outcome import Arm, CellFacts, reference_folders, trial_folder
from harness.stats.profile import profile
from harness.stats.provenance import FOLDER as LOADED_FOLDER
from harness.stats.shown_trial import without_payload
from harness.stats.verdict import Judgement, judge

Read = Callable[[str], bytes]
PATCH_PATH = "evidence/source.patch"
OWN = {facts_module.PATH, SCENARIO_PATH, PATCH_PATH, REPRODUCED_PATH, sources.PATH}
LISTED = (SOURCE_FOLDER, LOADED_FOLDER, ARTEFACT_FOLDER, LIBRARY_FOLDER, ENVIRONMENT_FOLDER)
PATCHES = {f"{PATCH_FOLDER}/{arm}.patch" for arm in (*get_args(Arm), "reference")}
TRIAL_FILE = re.compile(r"events\.jsonl|rank-(0|[1-9]\d*)\.(log|stacks\.txt)")


def assemble(
    read: Read, names: Collection[str], *, described: Callable[[str], None] = lambda _text: None
) -> Record:
    """Work out the record.

    Args:
        read: gives the bytes of a file by its path in the results folder.
        names: the paths there are.
        described: called with what was compared again of what the ranks kept, if there is anything.

    Raises:
        Contradiction: evidence that cannot all be true.
        Unknown: a kind that this version cannot judge.
        RecordError: evidence that is missing, unreadable, or not what the scenario plans.
    """
    names = frozenset(names)
    run = read_model(RunFacts, read(facts_module.PATH), name=facts_module.PATH)
    text = read(SCENARIO_PATH)
    # First, because it changes what kinds the scenario may name.
    demand_installed(run)
    scenario = _scenario(run, text)
    demand_named(scenario, run)
    arms = _arms(scenario, run, read, names)
    _demand_listed(arms, read, names)
    planned = planned_cells(scenario, run, names)
    _demand_all_used(scenario, run, planned, names)
    environments = arm_environments(scenario, run, read, names)
    recipes = {
        arm: recipe(
            scenario=text,
            overrides=run.overrides,
            files=summary.files,
            arguments=run.arguments[arm],
            inputs={given.name: given.digest for given in run.inputs},
            environment=run.environments[arm].digest if arm in environments else None,
        )
        for arm, summary in arms.items()
    }
    _demand_consistent(scenario, run, names)
    demand_own(scenario, run, planned, recipes, read)
    origins = repositories(
        scenario, run, environments, {arm: summary.files for arm, summary in arms.items()}
    )
    codes = {
        arm: ArmCode(
            files=summary.files,
            arguments=run.arguments[arm],
            environment=environments.get(arm),
            source=f"{SOURCE_FOLDER}/{arm}",
            origin=origins.get(arm),
        )
        for arm, summary in arms.items()
    }
    others = differing(
        scenario, run.environments, {arm: one.named for arm, one in environments.items()}
    )
    libraries = Libraries(run, others, read, arms=compared(arms))
    changed = ChangedCode(arms, read)
    # In this order a contradiction is found by the reader that names it best.
    readers: tuple[TrialReader, ...] = (
        Witness(run, read),
        _PlannedTrials(scenario, run, read),
        Arrays(scenario, read),
        Ledgers(scenario, read),
        Accounts(scenario, read),
        Frames(arms, read),
        Hangs(scenario, arms, read),
        _WirePayload(),
        _Strikes(scenario),
        Served(scenario, {cell.id: cell for cell, _ in planned}, read, names),
        libraries,
        changed,
    )
    heard: set[str] = set()

    def hear(evidence: str, history: History) -> None:
        if evidence not in heard:  # cells may share a reference
            heard.add(evidence)
            for reader in readers:
                reader.hear(evidence, history)

    try:
        about = summary(scenario, text)
        judgement = judge(
            scenario,
            planned,
            arms=codes,
            read=read,
            names=names,
            heard=hear,
            measures=run.farm is None,
        )
    except PluginFailed as error:
        raise Unknown(f"it cannot be judged again: {error}") from None
    except EventError as error:
        raise RecordError(f"a trial's events cannot be read: {error}") from None
    for reader in readers:
        reader.demand(judgement, names)
    if again := ", ".join(reader.description for reader in readers if reader.description):
        described(again)
    try:
        finding = finding_of(scenario, run, read, names)
    except ValueError as error:
        raise RecordError(str(error)) from None
    return Record(
        run=run,
        scenario=about,
        arms=arms,
        changed=changed.lines([*changed_services(scenario), *changed_environment(scenario, run)]),
        libraries=libraries.changes(names),
        judgement=judgement,
        finding=finding,
        comparison=_comparison(scenario, run, arms, judgement, read, names),
    )


def _scenario(run: RunFacts, text: bytes) -> Scenario:
    try:
        return parse_scenario(text, name=SCENARIO_PATH, overrides=run.overrides)
    except ScenarioError as error:
        if unknown := unknown_kinds(text, overrides=run.overrides):
            raise Unknown(f"this version does not support {' or '.join(unknown)}") from None
        raise RecordError(f"the scenario cannot be read again: {error}") from None


class _PlannedTrials(TrialReader):
    """Refuses trials that were not planned, and lists of what ranks had loaded that contradict the
    rest.
    """

    def __init__(self, scenario: Scenario, run: RunFacts, read: Read) -> None:
        self._scenario = scenario
        self._run = run
        self._read = read

    def demand(self, judgement: Judgement, names: Collection[str]) -> None:
        demand_planned(self._scenario, judgement)
        demand_lists(judgement, self._read, names)
        demand_releases(self._scenario, self._run, judgement, self._read)


class _WirePayload(TrialReader):
    """Refuses a trial whose wire does not count the packets that carried new payload."""

    def hear(self, evidence: str, history: History) -> None:
        if (lacking := without_payload(history)) is not None:
            raise RecordError(
                f"{evidence}, line {lacking.line}: the link between the hosts did not report"
                " how many packets carried new payload"
            )


class _Strikes(TrialReader):
    """Refuses a trial in which other faults struck than the scenario states for its arm."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def hear(self, evidence: str, history: History) -> None:
        demand_strikes(self._scenario, evidence, history)


def _comparison(
    scenario: Scenario,
    run: RunFacts,
    arms: dict[str, ArmSummary],
    judgement: Judgement,
    read: Read,
    names: Collection[str],
) -> RunComparison | None:
    """How the run compares with the one it reproduces: of the same scenario, the same inputs and
    the same code.
    """
    if run.reproduces is None:
        if REPRODUCED_PATH in names:
            raise RecordError(
                f"the run does not reproduce another run, but {REPRODUCED_PATH} exists"
            )
        return None
    if REPRODUCED_PATH not in names:
        raise RecordError(f"the run reproduces another run, but {REPRODUCED_PATH} is missing")
    reproduced = read_model(ReproducedRun, read(REPRODUCED_PATH), name=REPRODUCED_PATH)
    if run.reproduces.report != f"sha256:{reproduced.report}":
        raise RecordError(f"{REPRODUCED_PATH} is not the report that the run reproduces")
    if reproduced.scenario != sha256(read(SCENARIO_PATH)):
        raise RecordError("the run has a different scenario from the run that it reproduces")
    if reproduced.inputs != {given.name: given.digest for given in run.inputs}:
        raise RecordError("the run had different inputs from the run that it reproduces")
    for name, arm in arms.items():
        if arm.files != reproduced.arms.get(name) and not (
            name == "candidate" and run.reproduces.candidate
        ):
            raise RecordError(
                f"the code of the {name} differs from its code in the run that was reproduced, but"
                " this run does not record the difference"
            )
    return compare(scenario, reproduced, run, profile(scenario, judgement.cells, read=read))


def _arms(
    scenario: Scenario, run: RunFacts, read: Read, names: Collection[str]
) -> dict[str, ArmSummary]:
    subject = scenario.subject
    expected = list(scenario.subject.arms)
    if sorted(run.arguments) != sorted(expected):
        raise RecordError(
            f"the run has the arms {sorted(run.arguments)}, but the scenario has {sorted(expected)}"
        )
    summaries = {}
    for arm in expected:
        prefix = f"{SOURCE_FOLDER}/{arm}/"
        files = {
            name[len(prefix) :]: sha256(read(name))
            for name in sorted(names)
            if name.startswith(prefix)
        }
        given = subject.arms[arm]
        if canonical(given.with_) != canonical(run.arguments[arm]):
            raise RecordError(f"the arguments of {subject.named(arm)} do not match the scenario")
        revision = _revision(arm, given, run, read, names)
        summaries[arm] = ArmSummary(
            files=files, arguments=canonical(run.arguments[arm]), revision=revision
        )
    if subject.compare is not None and summaries["control"].files != summaries["candidate"].files:
        raise RecordError("the defect was injected into code other than b's")
    return summaries


def _demand_listed(arms: dict[str, ArmSummary], read: Read, names: Collection[str]) -> None:
    """Demand that the list of tested files, whose digest the statement names, is that of the files
    that are there.
    """
    digests = {
        f"{SOURCE_FOLDER}/{arm}/{file}": digest
        for arm, summary in arms.items()
        for file, digest in summary.files.items()
    }
    if sources.PATH not in names or read(sources.PATH) != sources.listing(digests):
        raise RecordError(
            f"{sources.PATH} is missing or does not match the files in {SOURCE_FOLDER}"
        )


def _revision(
    name: str, arm: ScenarioArm, run: RunFacts, read: Read, names: Collection[str]
) -> RevisionFacts | None:
    """Where an arm was laid out from: it must be what the scenario asks for, and the patch the one
    that is kept.
    """
    revision = run.revisions.get(name)
    file = f"{PATCH_FOLDER}/{name}.patch"
    if (revision is not None) != arm.is_laid_out:
        raise RecordError(f"the {name}'s code is not from the source that the scenario specifies")
    if revision is None:
        if file in names:
            raise RecordError(f"the {name} has no patch, but the run contains a patch file: {file}")
        return None
    kept = sha256(read(file)) if file in names else None
    if (
        revision.rev != (arm.rev or "HEAD")
        or revision.patch != kept
        or (kept is not None) != (arm.patch is not None)
    ):
        raise RecordError(f"the {name}'s revision or patch does not match the scenario")
    return revision


def _demand_all_used(
    scenario: Scenario,
    run: RunFacts,
    planned: Sequence[tuple[Cell, CellFacts]],
    names: Collection[str],
) -> None:
    """No trial may lie there that the record does not count, and nothing else that the run did not
    write.
    """
    # Each with the number of ranks that it had: no other rank printed anything.
    folders = {
        trial_folder(cell.slug, arm, index): cell.ranks
        for cell, fact in planned
        for arm, count in fact.trials.items()
        for index in range(count)
    }
    folders |= {
        place: cell.ranks
        for cell, fact in planned
        if not fact.skipped
        for place in reference_folders(scenario, cell)
    }
    folders |= script_files(scenario, run) if any(not fact.skipped for _, fact in planned) else {}
    of_services = {
        path
        for folder, service, size in service_files(scenario, planned)
        for path in names_of(folder, service, size)
    }
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        # Which arm has a patch is checked where its revision is; so are the files of the folders.
        known = (
            name in OWN
            or name in PATCHES
            or name in of_services
            or (
                scenario.finding is not None
                and name == f"{SCRIPT_FOLDER}/{scenario.finding.script}"
            )
            or name.startswith(tuple(f"{listed}/" for listed in LISTED))
        )
        of_trial = TRIAL_FILE.fullmatch(file) if folder in folders else None
        is_of_rank = of_trial is not None and int(of_trial[1] or 0) < folders[folder]
        if not known and not is_of_rank:
            raise RecordError(f"this run does not account for the file {name}")


def _demand_consistent(scenario: Scenario, run: RunFacts, names: Collection[str]) -> None:
    """Demand that what the run says of itself is what its scenario and its files say."""
    demand_farmed(scenario, run)
    demand_over_machines(scenario, run)
    home = scenario.world.home_is
    if sorted(given.name for given in run.inputs) != sorted(
        [*scenario.inputs, *([HOME_INPUT] if home == "copy" else [])]
    ):
        raise RecordError("the run's inputs do not match the scenario")
    if run.room.home != home:
        raise RecordError("the home folder of the run's ranks does not match the scenario")
    moment = run.made.replace("-", "").replace(":", "")
    if not run.id.startswith(f"{moment}-"):
        raise RecordError(
            f"the name of the run {run.id} does not contain its start time, {run.made}"
        )
    if run.source.dirty is False and PATCH_PATH in names:
        raise RecordError("the run states that its tree was clean, but it contains a patch")


def difference(stated: bytes, worked_out: bytes) -> str | None:
    """Return the first line in which two records differ, or None."""
    if stated == worked_out:
        return None
    left = stated.decode(errors="replace").splitlines()
    right = worked_out.decode(errors="replace").splitlines()
    for number, (one, other) in enumerate(zip(left, right, strict=False), start=1):
        if one != other:
            return (
                f"line {number} of results.json is {one.strip()[:120]!r}, but the evidence leads"
                f" to {other.strip()[:120]!r}"
            )
    return f"results.json has {len(left)} lines, but the evidence leads to {len(right)}"
