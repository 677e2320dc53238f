"""Everything that a run needs before its first trial, and which of its cells can run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness import backends, faults
from harness.backends import KINDS as BACKENDS
from harness.checks.accounted import accounted
from harness.checks.arrays import compares_arrays
from harness.forms.distribution import missing
from harness.reason import Skip, SkipCode
from harness.record import environment, sources
from harness.record.facts import Environment
from harness.record.skips import unmet
from harness.record.sources import recipe
from harness.run.arms.staging import StagedArm
from harness.run.environments import cache
from harness.run.environments.cache import ArmEnvironment
from harness.run.environments.supply import Supply
from harness.run.inputs import ResolvedInput
from harness.run.progress import Progress
from harness.scenario import Cell, Scenario, cells
from harness.subjects import READY
from harness.world.control import capacity, program
from harness.world.hosts import host as hosts


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What the trials are made of.

    Attributes:
        arms: the staged code of each arm.
        machine: this machine and the harness' own environment.
        environments: of the arms that have their own.
        cells: the whole matrix.
        skipped: cell id to why it cannot run here.
    """

    arms: Mapping[str, StagedArm]
    inputs: Mapping[str, ResolvedInput]
    machine: Environment
    environments: Mapping[str, ArmEnvironment]
    cells: Sequence[Cell]
    skipped: dict[str, Skip]

    @property
    def runnable(self) -> list[Cell]:
        """The cells that can run here."""
        return [cell for cell in self.cells if cell.id not in self.skipped]


def prepare(
    scenario: Scenario,
    *,
    arms: Mapping[str, StagedArm],
    inputs: Mapping[str, ResolvedInput],
    supplies: Mapping[str, Supply],
    progress: Progress,
    over: bool = False,
) -> Preparation:
    """Look at the machine, and make the environments of the arms from what lies beside the scenario
    and what pip finds.

    Where the ranks are `over` machines, who knows these says which cells they have room for.

    Raises:
        EnvironmentProblem: an environment cannot be made as the scenario asks.
    """
    environments, unavailable = cache.of_arms(scenario, supplies, says=progress.says)
    preparation = Preparation(
        arms=arms,
        inputs=inputs,
        machine=environment.capture(),
        environments=environments,
        cells=cells(scenario),
        skipped={},
    )
    preparation.skipped.update(refusals(scenario, preparation, unavailable=unavailable, over=over))
    return preparation


def recipes_of(
    text: bytes, overrides: Sequence[str], preparation: Preparation, digests: Mapping[str, str]
) -> dict[str, str]:
    """What the trials of each arm are made of, as one digest each.

    Args:
        text: the scenario's file.
        overrides: given beside it, as the record keeps them.
        preparation: code, inputs and environments.
        digests: path in the results folder to sha256.
    """
    made = preparation.environments
    return {
        name: recipe(
            scenario=text,
            overrides=overrides,
            files=sources.of_arm(digests, name),
            arguments=arm.arguments,
            inputs={one.facts.name: one.facts.digest for one in preparation.inputs.values()},
            environment=made[name].facts.digest if name in made else None,
        )
        for name, arm in preparation.arms.items()
    }


def refusals(
    scenario: Scenario,
    preparation: Preparation,
    *,
    unavailable: Skip | None = None,
    over: bool = False,
) -> dict[str, Skip]:
    """The cells that cannot run on this machine, by id, and why.

    Args:
        scenario: the question.
        preparation: its cells, and what their trials are made of.
        unavailable: why an environment of an arm could not be made.
        over: whether ranks are on machines of a hostfile.
    """
    refused = {}
    for cell in preparation.cells:
        skip = _refusal(scenario, cell, preparation, unavailable=unavailable, over=over)
        skip = skip or _engine_refusal(scenario, cell, preparation)
        if skip is not None:
            refused[cell.id] = skip
    return refused


def _refusal(
    scenario: Scenario,
    cell: Cell,
    preparation: Preparation,
    *,
    unavailable: Skip | None,
    over: bool,
) -> Skip | None:
    """Why this cell cannot run here, a reason to skip, never to pass; `unavailable` is why an
    environment is not.
    """
    if unfit := unmet(scenario.needs, preparation.machine):
        return unfit
    if (cell.hosts or 1) > 1 and not over:
        lacks = (
            f"its ranks are on {cell.hosts} machines, and none were named: give a hostfile with"
            " --hosts"
        )
        return Skip(SkipCode.CELL_HOSTS, lacks)
    if not over and (lacking := faults.for_test_machines(scenario.faults)):
        return Skip(SkipCode.MACHINE_FAULT, lacking)
    if impossible := faults.refusal(scenario.faults):
        return Skip(SkipCode.MACHINE_FAULT, impossible)
    if (compares_arrays(scenario.checks) or accounted(scenario.checks)) and (
        absent := missing("numpy")
    ):
        return Skip(SkipCode.MACHINE_NUMERIC, f"arrays are compared: {absent}")
    if unavailable:
        return unavailable
    if scenario.world.hosts > 1 and (forbidden := hosts.refusal()):
        return forbidden
    # What a program takes is known of none.
    if lacking := capacity.shortage(
        cell.ranks, memory=1 if scenario.subject.program else capacity.LEAST_MEMORY
    ):
        return Skip(SkipCode.CELL_LIMIT, lacking)
    if (words := scenario.subject.program) is not None:
        staged = [arm.folder for arm in preparation.arms.values()]
        why = program.refusal(words[0], staged=staged)
        return Skip(SkipCode.MACHINE_PROGRAM, f"program {words[0]}: {why}") if why else None
    refusal = _backend_refusal(scenario, cell, preparation.environments)
    if refusal is None and scenario.world.hosts > 1:
        refusal = backends.hosts_refusal(cell.backend)
    return Skip(refusal.code, f"backend {cell.backend}: {refusal}") if refusal else None


def _engine_refusal(scenario: Scenario, cell: Cell, preparation: Preparation) -> Skip | None:
    """What a ready subject's engine cannot do with the model of an arm, before a world is started
    for it.
    """
    subject = READY[scenario.subject.use] if scenario.subject.use is not None else None
    if subject is None or subject.refuses is None:
        return None
    paths = {name: resolved.path for name, resolved in preparation.inputs.items()}
    for name, arm in preparation.arms.items():
        if name in preparation.environments:
            continue  # its libraries are others than ours: the rank refuses
        defaults = {key: argument.default for key, argument in subject.arguments.items()}
        if why := subject.refuses({**defaults, **arm.arguments, **cell.axes}, paths, cell.ranks):
            return Skip(SkipCode.CELL_MODEL, f"{scenario.subject.use} refuses: {why}")
    return None


def _backend_refusal(
    scenario: Scenario, cell: Cell, environments: Mapping[str, ArmEnvironment]
) -> Skip | None:
    backend = BACKENDS[cell.backend]
    arms = scenario.subject.arms
    for arm in arms:
        made = environments.get(arm)
        needed = (*backend.properties.libraries, *(["xxhash"] if scenario.digests else []))
        for library in needed if made is not None else ():
            if made is not None and library not in made.facts.versions:
                where = f"the environment of {scenario.subject.named(arm)}"
                lacking = f"{library} is not in {where}: name it in environment.packages"
                return Skip(SkipCode.BACKEND_LIBRARY, lacking)
    if (
        scenario.digests
        and not all(arm in environments for arm in arms)
        and (absent := missing("xxhash"))
    ):
        return Skip(SkipCode.BACKEND_LIBRARY, f"what ranks send is digested: {absent}")
    # What the machine lacks beside the library (a GPU, a compiler) is told by the harness' own.
    if all(arm in environments for arm in arms) and backend.properties.portable:
        return None
    own = scenario.subject.reference
    refusal = backends.refusal(own.backend, size=1) if own is not None else None
    return refusal or backends.refusal(cell.backend, size=cell.ranks)
