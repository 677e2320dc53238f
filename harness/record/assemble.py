"""The record worked out from the evidence: by the run that made it, and again by whoever verifies it.

Pure: evidence in, record out. The plan is derived from the scenario once more, so a record cannot leave out a trial, a
cell or a seed that its scenario asks for.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from typing import get_args

from harness import faults
from harness.checks.finding import canonical
from harness.events import Event, EventError, parse_lines
from harness.record import facts as facts_module
from harness.record import provenance, sources
from harness.record.arm_environment import arm_environments, changed_environment, missing
from harness.record.facts import PATCH_FOLDER, SCENARIO_PATH, SOURCE_FOLDER, CellFacts, RevisionFacts, RunFacts
from harness.record.model import ArmSummary, FaultSummary, Record, RecordError, ScenarioSummary, read_model
from harness.record.needs import unmet
from harness.record.original import ORIGINAL_PATH, Comparison, Original, compare
from harness.scenario import Arm as ScenarioArm
from harness.scenario import Cell, Scenario, ScenarioError, cells, derive_seed, parse_scenario
from harness.stats.outcome import Arm
from harness.stats.profile import profile
from harness.stats.provenance import FOLDER as LOADED_FOLDER
from harness.stats.verdict import ArmCode, CellFiles, Judgement, TrialFile, judge

Read = Callable[[str], bytes]
EVENTS = "events.jsonl"
PATCH_PATH = "evidence/source.patch"
OWN = {facts_module.PATH, SCENARIO_PATH, PATCH_PATH, ORIGINAL_PATH, sources.PATH}
PATCHES = {f"{PATCH_FOLDER}/{arm}.patch" for arm in get_args(Arm)}
TRIAL_FILE = re.compile(r"events\.jsonl|rank-\d+\.log|rank-\d+\.stacks\.txt")
DIFF_LINES = 200


def trial_folder(slug: str, arm: str, index: int) -> str:
    """Where a trial's evidence lies."""
    return f"evidence/{slug}/{arm}-{index:05d}"


def assemble(read: Read, names: Collection[str]) -> Record:
    """Work out the record.

    Args:
        read: gives the bytes of a file by its path in the results folder.
        names: the paths there are.

    Raises:
        RecordError: evidence that is missing, unreadable, or not what the scenario plans.
    """
    names = frozenset(names)
    run = read_model(RunFacts, read(facts_module.PATH), name=facts_module.PATH)
    text = read(SCENARIO_PATH)
    try:
        scenario = parse_scenario(text, name=SCENARIO_PATH, overrides=run.overrides)
    except ScenarioError as error:
        raise RecordError(f"the scenario cannot be read again: {error}") from None
    arms = _arms(scenario, run, read, names)
    _demand_listed(arms, read, names)
    planned = _cell_files(scenario, run, names)
    _demand_all_used(planned, names)
    _demand_consistent(scenario, run, planned, read, names)
    environments = arm_environments(scenario, run)
    origins = provenance.sources(scenario, run, environments)
    codes = {
        arm: ArmCode(
            files=summary.files,
            arguments=run.arguments[arm],
            environment=environments.get(arm),
            source=origins.get(arm),
        )
        for arm, summary in arms.items()
    }
    try:
        judgement = judge(scenario, planned, arms=codes, read=read, names=names)
    except EventError as error:
        raise RecordError(f"a trial's events cannot be read: {error}") from None
    provenance.demand_lists(judgement, read, names)
    return Record(
        run=run,
        scenario=_summary(scenario, text),
        arms=arms,
        changed=_changed(arms, changed_environment(scenario, run), read),
        judgement=judgement,
        comparison=_comparison(scenario, run, arms, judgement, read, names),
    )


def _comparison(
    scenario: Scenario,
    run: RunFacts,
    arms: dict[str, ArmSummary],
    judgement: Judgement,
    read: Read,
    names: Collection[str],
) -> Comparison | None:
    """How the run compares with the one it reproduces: of the same scenario, the same inputs and the same code."""
    if run.reproduces is None:
        if ORIGINAL_PATH in names:
            raise RecordError(f"the run reproduces nothing, and there is {ORIGINAL_PATH}")
        return None
    if ORIGINAL_PATH not in names:
        raise RecordError(f"the run reproduces another, and {ORIGINAL_PATH} is missing")
    original = read_model(Original, read(ORIGINAL_PATH), name=ORIGINAL_PATH)
    if run.reproduces.report != f"sha256:{original.report}":
        raise RecordError(f"{ORIGINAL_PATH} is of another report than the run reproduces")
    if original.scenario != hashlib.sha256(read(SCENARIO_PATH)).hexdigest():
        raise RecordError("the run is of another scenario than the one it reproduces")
    if original.inputs != {one.name: one.digest for one in run.inputs}:
        raise RecordError("the run had other inputs than the one it reproduces")
    for name, arm in arms.items():
        if arm.files != original.arms.get(name) and not (name == "candidate" and run.reproduces.candidate):
            raise RecordError(
                f"the {name} is other code than that of the run it reproduces, and the run does not say so"
            )
    return compare(scenario, original, run, profile(scenario, judgement.cells, read=read))


def _arms(scenario: Scenario, run: RunFacts, read: Read, names: Collection[str]) -> dict[str, ArmSummary]:
    expected = ["candidate"] + (["control"] if scenario.subject.control else [])
    if sorted(run.arguments) != sorted(expected):
        raise RecordError(f"the run has the arms {sorted(run.arguments)}, the scenario {sorted(expected)}")
    found = {}
    for arm in expected:
        prefix = f"{SOURCE_FOLDER}/{arm}/"
        files = {
            name[len(prefix) :]: hashlib.sha256(read(name)).hexdigest()
            for name in sorted(names)
            if name.startswith(prefix)
        }
        given = scenario.subject.candidate if arm == "candidate" else scenario.subject.control
        if given is None or canonical(given.with_) != canonical(run.arguments[arm]):
            raise RecordError(f"the arguments of the {arm} are not the scenario's")
        revision = _revision(arm, given, run, read, names)
        found[arm] = ArmSummary(files=files, arguments=canonical(run.arguments[arm]), revision=revision)
    return found


def _demand_listed(arms: dict[str, ArmSummary], read: Read, names: Collection[str]) -> None:
    """The list of tested files, whose digest the statement names, is that of the files that are there."""
    digests = {
        f"{SOURCE_FOLDER}/{arm}/{file}": digest for arm, found in arms.items() for file, digest in found.files.items()
    }
    if sources.PATH not in names or read(sources.PATH) != sources.listing(digests):
        raise RecordError(f"{sources.PATH} is not the list of the files in {SOURCE_FOLDER}")


def _revision(name: str, arm: ScenarioArm, run: RunFacts, read: Read, names: Collection[str]) -> RevisionFacts | None:
    """Where an arm was laid out from: it must be what the scenario asks for, and the patch the one that is kept."""
    found, file = run.revisions.get(name), f"{PATCH_FOLDER}/{name}.patch"
    if (found is not None) != arm.is_laid_out:
        raise RecordError(f"the {name}'s code is not from where the scenario says")
    if found is None:
        if file in names:
            raise RecordError(f"the {name} has no patch, and there is one: {file}")
        return None
    kept = hashlib.sha256(read(file)).hexdigest() if file in names else None
    if found.rev != (arm.rev or "HEAD") or found.patch != kept or (kept is not None) != (arm.patch is not None):
        raise RecordError(f"the {name}'s revision or patch is not the scenario's")
    return found


def _cell_files(scenario: Scenario, run: RunFacts, names: Collection[str]) -> list[CellFiles]:
    planned = cells(scenario)
    if [cell.id for cell in planned] != [fact.id for fact in run.cells]:
        raise RecordError("the run's cells are not the scenario's matrix")
    return [_files(scenario, run, cell, fact, names) for cell, fact in zip(planned, run.cells, strict=True)]


def _files(scenario: Scenario, run: RunFacts, cell: Cell, fact: CellFacts, names: Collection[str]) -> CellFiles:
    if fact.skipped:
        if fact.candidate or fact.control:
            raise RecordError(f"cell {cell.id} is skipped and has trials")
        reason = unmet(scenario.needs, run.environment)
        words = scenario.subject.program
        lacking = f"backend {cell.backend}: " if words is None else f"program {words[0]}: "
        made = (f"environment of the {arm}: " for arm in missing(scenario, run))
        machines_own = (lacking, *made, *(f"fault {fault.id}: " for fault in scenario.faults))
        if fact.skipped != reason and not fact.skipped.startswith(machines_own):
            raise RecordError(f"cell {cell.id} is skipped for a reason that its run does not bear out: {fact.skipped}")
        return CellFiles(cell=cell, skipped=fact.skipped)
    for arm in missing(scenario, run):
        raise RecordError(f"cell {cell.id} ran, and the {arm}'s environment was not made")
    counts: dict[Arm, tuple[int, int]] = {
        "candidate": (fact.candidate, scenario.trials.candidate),
        "control": (fact.control, scenario.trials.control if scenario.subject.control else 0),
    }
    found: dict[Arm, Sequence[TrialFile]] = {}
    for arm in get_args(Arm):
        count, asked = counts[arm]
        if not asked <= count <= asked + scenario.trials.max_voids:
            raise RecordError(f"cell {cell.id} has {count} {arm} trials, its scenario plans {asked}")
        found[arm] = [_file(scenario, cell, arm, index) for index in range(count)]
        for file in found[arm]:
            if file.evidence not in names:
                raise RecordError(f"the events of a planned trial are missing: {file.evidence}")
    return CellFiles(cell=cell, skipped="", candidate=found["candidate"], control=found["control"])


def _file(scenario: Scenario, cell: Cell, arm: Arm, index: int) -> TrialFile:
    seed = derive_seed(scenario.seed, scenario.id, cell.id, index)
    return TrialFile(index=index, seed=str(seed), evidence=f"{trial_folder(cell.slug, arm, index)}/{EVENTS}")


def _demand_all_used(planned: Sequence[CellFiles], names: Collection[str]) -> None:
    """No trial may lie there that the record does not count, and nothing else that the run did not write."""
    folders = {file.evidence.rpartition("/")[0] for cell in planned for file in (*cell.candidate, *cell.control)}
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        # Which arm has a patch is checked where its revision is.
        known = name in OWN or name in PATCHES or name.startswith((f"{SOURCE_FOLDER}/", f"{LOADED_FOLDER}/"))
        if not known and not (folder in folders and TRIAL_FILE.fullmatch(file)):
            raise RecordError(f"a file that this run does not account for: {name}")


def _demand_consistent(
    scenario: Scenario, run: RunFacts, planned: Sequence[CellFiles], read: Read, names: Collection[str]
) -> None:
    """What the run says of itself, its trials must say too."""
    if sorted(one.name for one in run.inputs) != sorted(scenario.inputs):
        raise RecordError("the run's inputs are not the scenario's")
    made = run.made.replace("-", "").replace(":", "")
    if not run.id.startswith(f"{made}-"):
        raise RecordError(f"the run {run.id} does not bear the time it says it was made at, {run.made}")
    if run.source.dirty is False and PATCH_PATH in names:
        raise RecordError("the run says that its tree was clean, and there is a patch")
    begun: dict[int, str] = {}
    for cell in planned:
        for arm in get_args(Arm):
            for file in cell.candidate if arm == "candidate" else cell.control:
                begin = _first_event(read(file.evidence), file.evidence)
                told = {
                    "scenario": scenario.id,
                    "cell": cell.cell.id,
                    "arm": arm,
                    "trial": file.index,
                    "seed": file.seed,
                    "start": run.start,
                    "host": run.environment.host,
                    "size": cell.cell.ranks,
                    "backend": cell.cell.backend,
                    "harness_pid": run.harness_pid,
                    "program": True if scenario.subject.program is not None else None,
                }
                for key, value in told.items():
                    if begin.values.get(key) != value:
                        raise RecordError(
                            f"{file.evidence} is of another trial: its {key} is {begin.values.get(key)!r}"
                        )
                if begin.ns in begun:
                    raise RecordError(f"{file.evidence} is a copy of {begun[begin.ns]}")
                begun[begin.ns] = file.evidence


def _first_event(text: bytes, name: str) -> Event:
    try:
        event = parse_lines(text.partition(b"\n")[0] + b"\n")[0]
    except EventError as error:
        raise RecordError(f"{name}: {error}") from None
    if (event.by, event.name) != ("harness", "world.begin"):
        raise RecordError(f"{name} does not begin with its world")
    return event


def _summary(scenario: Scenario, text: bytes) -> ScenarioSummary:
    control = scenario.subject.control
    return ScenarioSummary(
        id=scenario.id,
        title=scenario.title,
        question=scenario.question,
        role=scenario.role,
        expects=scenario.expects,
        tags=list(scenario.tags),
        sha256=hashlib.sha256(text).hexdigest(),
        seed=scenario.seed,
        entry=scenario.subject.function,
        use=scenario.subject.use,
        of=scenario.subject.of,
        program=list(scenario.subject.program or ()),
        accept_rate=scenario.trials.accept.failure_rate_below,
        accept_confidence=scenario.trials.accept.confidence,
        candidate_trials=scenario.trials.candidate,
        control_trials=scenario.trials.control if control else 0,
        must_fail=_must_fail(scenario) if control else None,
        unmeasured=[],
        faults=[
            FaultSummary(id=fault.id, kind=fault.kind, arm=fault.arm, told=faults.told(fault))
            for fault in scenario.faults
        ],
    )


def _must_fail(scenario: Scenario) -> str:
    control = scenario.subject.control
    assert control is not None
    stated = control.must_fail
    parts = [f"check {stated.check} fails", f"on ranks: {stated.ranks}"]
    kind = next(check.kind for check in scenario.checks if check.id == stated.check)
    if stated.error is not None:
        parts.append(f"with {stated.error}")
    elif stated.source is None and kind in ("event", "exit") and scenario.subject.program is None:
        parts.append("by whatever error")
    if stated.source is not None:
        parts.append(f"at {stated.source!r}")
    return (
        f"{', '.join(parts)}, in {stated.share} of the trials"
        if stated.share.every is False
        else (f"{', '.join(parts)}, in every trial")
    )


def _changed(arms: dict[str, ArmSummary], environment: list[str], read: Read) -> list[str]:
    """What differs between the arms: a unified diff from control to candidate, the arguments, the environments."""
    if "control" not in arms:
        return []
    before, after = arms["control"], arms["candidate"]
    lines: list[str] = []
    if before.arguments != after.arguments:
        lines += [f"-with: {before.arguments}", f"+with: {after.arguments}"]
    lines += environment
    for file in sorted(before.files.keys() | after.files.keys()):
        if before.files.get(file) == after.files.get(file):
            continue
        old, new = (
            read(f"{SOURCE_FOLDER}/{arm}/{file}").decode("utf-8", "backslashreplace").splitlines()
            if file in arms[arm].files
            else []
            for arm in ("control", "candidate")
        )
        lines += difflib.unified_diff(old, new, f"control/{file}", f"candidate/{file}", lineterm="", n=3)
    if len(lines) > DIFF_LINES:
        lines = [
            *lines[:DIFF_LINES],
            f"... ({len(lines) - DIFF_LINES} more lines: compare the folders in {SOURCE_FOLDER})",
        ]
    return lines


def difference(stated: bytes, worked_out: bytes) -> str | None:
    """The first line in which two records differ, or None."""
    if stated == worked_out:
        return None
    left, right = stated.decode(errors="replace").splitlines(), worked_out.decode(errors="replace").splitlines()
    for number, (one, other) in enumerate(zip(left, right, strict=False), start=1):
        if one != other:
            return (
                f"line {number} of results.json says {one.strip()[:120]!r}, the evidence says {other.strip()[:120]!r}"
            )
    return f"results.json has {len(left)} lines, the evidence makes {len(right)}"
