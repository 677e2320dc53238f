"""Everything that a run needs before its first trial, found beside its scenario or brought along by
who reproduces another run, and which of its cells can run here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import backends, faults
from harness.backends import KINDS as BACKENDS
from harness.checks.accounted import accounted
from harness.checks.arrays import compares_arrays
from harness.forms.distribution import missing
from harness.reason import Skip, SkipCode
from harness.record import environment, repository, sources
from harness.record.facts import EnvironmentFacts, RepositoryFacts, Reproduces
from harness.record.reproduced import REPRODUCED_PATH
from harness.record.results import ResultsFolder
from harness.record.skips import unmet
from harness.record.sources import recipe
from harness.run import inputs
from harness.run.arms import provenance, staging
from harness.run.arms.staging import StagedArm
from harness.run.environments import cache, supply
from harness.run.environments.cache import ReadyEnvironment
from harness.run.environments.supply import Supply
from harness.run.inputs import ResolvedInput
from harness.run.progress import Progress
from harness.scenario import Cell, LoadedScenario, Scenario, cells
from harness.subjects import READY
from harness.world.control import capacity, program
from harness.world.hosts import host as hosts


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run that reproduces another brings along instead of finding it beside the scenario.

    Attributes:
        lay_arms: lays the code of the arms into the results folder.
        inputs: every input, by name.
        source: where the code comes from.
        patch: the changes since that commit.
        reproduces: which report.
        reproduced: the content of `evidence/original.json`.
        origins: where the code of each arm comes from, as far as it is not staged.
        supplies: what the environments of its arms are made of beside what pip finds.
    """

    lay_arms: Callable[[ResultsFolder], dict[str, staging.StagedArm]]
    inputs: dict[str, inputs.ResolvedInput]
    source: RepositoryFacts
    patch: bytes | None
    reproduces: Reproduces
    reproduced: bytes
    origins: Mapping[str, provenance.CodeOrigin]
    supplies: Mapping[str, Supply] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What a run is made of, found beside its scenario or brought along."""

    inputs: dict[str, inputs.ResolvedInput]
    arms: dict[str, staging.StagedArm]
    source: RepositoryFacts
    patch: bytes | None
    origins: Mapping[str, provenance.CodeOrigin]
    supplies: Mapping[str, Supply]

    def declared(self, arm: str, folders: Sequence[Path], code: Collection[str]) -> frozenset[str]:
        """Return the distributions whose files ranks of an arm tell one by one: a repository has to
        hold them.

        Args:
            arm: its name.
            folders: that its packages are imported from.
            code: the files of its folder.
        """
        built = self.supplies[arm].checkouts if arm in self.supplies else ()
        return self.origins[arm].own(folders, code) | frozenset(built)


def from_scenario(loaded: LoadedScenario, folder: ResultsFolder) -> Ingredients:
    """Return what lies beside a scenario; the code of its arms is laid into the results folder.

    Raises:
        InputError, ArmError, RevisionError: an input, the code of an arm or a checkout cannot be
            had.
        ScenarioError: a file of requirements that is refused.
    """
    scenario = loaded.scenario
    given = inputs.of_scenario(scenario, folder=loaded.folder)
    paths = [resolved.path for resolved in given.values()]
    staged = staging.stage_arms(scenario, folder=loaded.folder, inputs=paths, results=folder)
    source = repository.describe(loaded.folder, results=folder.root, file=loaded.path.name)
    if scenario.subject.use is None:
        # Of arms that are laid out from a commit, what ran is proved in another way.
        as_it_is = [arm for arm in staged.values() if arm.revision is None and arm.patch is None]
        source = repository.with_files(
            source, loaded.folder, (file for arm in as_it_is for file in arm.files)
        )
    return Ingredients(
        inputs=given,
        arms=staged,
        source=source,
        patch=repository.patch(loaded.folder) if source.dirty else None,
        origins=provenance.origins(scenario, loaded.folder, staged),
        supplies=supply.of_scenario(scenario, folder=loaded.folder),
    )


def from_material(material: Material, folder: ResultsFolder) -> Ingredients:
    """Return what a run that reproduces another was given; it is laid into the results folder."""
    ingredients = Ingredients(
        inputs=material.inputs,
        arms=material.lay_arms(folder),
        source=material.source,
        patch=material.patch,
        origins=material.origins,
        supplies=material.supplies,
    )
    folder.write(REPRODUCED_PATH, material.reproduced)
    return ingredients


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
    machine: EnvironmentFacts
    environments: Mapping[str, ReadyEnvironment]
    cells: Sequence[Cell]
    skipped: dict[str, Skip]

    @property
    def runnable(self) -> list[Cell]:
        """Cells that can run here."""
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
    """Return what the trials of each arm are made of, as one digest each.

    Args:
        text: the scenario's file.
        overrides: given beside it, as the record keeps them.
        preparation: code, inputs and environments.
        digests: path in the results folder to sha256.
    """
    environments = preparation.environments
    return {
        name: recipe(
            scenario=text,
            overrides=overrides,
            files=sources.of_arm(digests, name),
            arguments=arm.arguments,
            inputs={
                resolved.facts.name: resolved.facts.digest
                for resolved in preparation.inputs.values()
            },
            environment=environments[name].facts.digest if name in environments else None,
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
    """Return the cells that cannot run on this machine, by id, and why.

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
        lacks = f"its ranks need {cell.hosts} machines; pass a hostfile with --hosts"
        return Skip(SkipCode.CELL_HOSTS, lacks)
    if not over and (lacking := faults.for_test_machines(scenario.faults)):
        return Skip(SkipCode.MACHINE_FAULT, lacking)
    if impossible := faults.refusal(scenario.faults):
        return Skip(SkipCode.MACHINE_FAULT, impossible)
    if (compares_arrays(scenario.checks) or accounted(scenario.checks)) and (
        absent := missing("numpy")
    ):
        return Skip(SkipCode.MACHINE_NUMERIC, f"its checks compare arrays: {absent}")
    if unavailable:
        return unavailable
    on_hosts = max([scenario.world.hosts, *(one.hosts for one in scenario.services.values())])
    if on_hosts > 1 and (forbidden := hosts.refusal()):
        return forbidden
    # What a program takes is known of none.
    if lacking := capacity.shortage(
        cell.ranks, memory=1 if scenario.subject.program else capacity.LEAST_MEMORY
    ):
        return Skip(SkipCode.CELL_LIMIT, lacking)
    if lacking := _service_refusal(scenario, preparation):
        return Skip(SkipCode.MACHINE_PROGRAM, lacking)
    if (words := scenario.subject.program) is not None:
        staged = [arm.folder for arm in preparation.arms.values()]
        why = program.refusal(words[0], staged=staged)
        return Skip(SkipCode.MACHINE_PROGRAM, f"program {words[0]}: {why}") if why else None
    refusal = _backend_refusal(scenario, cell, preparation.environments)
    if refusal is None and scenario.world.hosts > 1:
        refusal = backends.hosts_refusal(cell.backend)
    return Skip(refusal.code, f"backend {cell.backend}: {refusal}") if refusal else None


def _service_refusal(scenario: Scenario, preparation: Preparation) -> str:
    """Say why a service cannot be started here; empty where nothing is known against it."""
    for arm, staged in preparation.arms.items():
        environment = preparation.environments.get(arm)
        python = environment.python if environment is not None else Path(sys.executable)
        for name, service in scenario.services_of(arm).items():
            word = service.program[0]
            if (python.parent / word).is_file():
                continue
            if why := program.refusal(word, staged=[staged.folder]):
                return f"service {name}: program {word}: {why}"
    return ""


def _engine_refusal(scenario: Scenario, cell: Cell, preparation: Preparation) -> Skip | None:
    """Return what a ready subject's engine cannot do with the model of an arm, before a world is
    started for it.
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
    scenario: Scenario, cell: Cell, environments: Mapping[str, ReadyEnvironment]
) -> Skip | None:
    backend = BACKENDS[cell.backend]
    arms = scenario.subject.arms
    for arm in arms:
        environment = environments.get(arm)
        needed = (*backend.properties.libraries, *(["xxhash"] if scenario.digests else []))
        for library in needed if environment is not None else ():
            if environment is not None and library not in environment.facts.versions:
                where = f"the environment of {scenario.subject.named(arm)}"
                lacking = f"{library} is not in {where}; add it to environment.packages"
                return Skip(SkipCode.BACKEND_LIBRARY, lacking)
    if (
        scenario.digests
        and not all(arm in environments for arm in arms)
        and (absent := missing("xxhash"))
    ):
        return Skip(SkipCode.BACKEND_LIBRARY, f"observe: digests: {absent}")
    # What the machine lacks beside the library (a GPU, a compiler) is told by the harness' own.
    if all(arm in environments for arm in arms) and backend.properties.portable:
        return None
    reference = scenario.subject.reference
    refusal = backends.refusal(reference.backend, size=1) if reference is not None else None
    return refusal or backends.refusal(cell.backend, size=cell.ranks)
