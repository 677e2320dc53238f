"""What a run makes, of what, where and for whom: decided before its first trial, and handed down
unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.record import sources
from harness.record.arms import differing
from harness.record.assemble import PATCH_PATH
from harness.record.facts import ENVIRONMENT_FOLDER, REQUIREMENTS, SCENARIO_PATH
from harness.record.results import ResultsFolder
from harness.run import inputs
from harness.run.arms.packages import search_path
from harness.run.arms.staging import shown_repo
from harness.run.machines import over_machines
from harness.run.machines.over_machines import Hostfile
from harness.run.preparation import (
    Ingredients,
    Material,
    Preparation,
    from_material,
    from_scenario,
    prepare,
    recipes_of,
)
from harness.run.progress import Progress, RunOutline
from harness.scenario import Cell, LoadedScenario, Scenario, override
from harness.trust.key import Signer

QUOTES = "\"'"


@dataclass(frozen=True, kw_only=True)
class RayNodes:
    """The nodes of a cluster on which whole trials are made.

    Attributes:
        address: `ray`, or `ray://HEAD:PORT`.
        jobs: worlds at the same time on each node; None is half the processors that Ray deals out
            there.
        named: whether the record names the hosts.
    """

    address: str
    jobs: int | None = None
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How somebody wants runs to be made, whatever their scenarios are.

    Attributes:
        results: the folder of all results.
        signer: signs the report; None leaves it unsigned.
        jobs: worlds at the same time.
        where: the cluster whose nodes make the trials, or the machines on which the ranks of each
            are; None is this machine.
        challenge: text that is signed into the report, for a gate that asks for it.
    """

    results: Path
    signer: Signer | None
    jobs: int = 1
    where: RayNodes | Hostfile | None = None
    challenge: str | None = None

    @property
    def hostfile(self) -> Hostfile | None:
        """Machines on which the ranks are; None where they are not on several."""
        return self.where if isinstance(self.where, Hostfile) else None

    @property
    def nodes(self) -> RayNodes | None:
        """Nodes on which whole trials are made; None where their worlds are started from here."""
        return self.where if isinstance(self.where, RayNodes) else None


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """What the trials of a scenario are made of, on whichever machine they are made.

    Attributes:
        scenario: the question, with the seed from which each trial's is derived.
        preparation: arms, inputs, environments and cells.
        results: takes the evidence.
        recipes: per arm, the digest of what its trials are made of.
        declared: per arm, normal names of the distributions that its repository declares.
        differing: normal names of the distributions that the arms have in different releases.
        node: number of the cluster's node that makes them; None on the machine where the run was
            started.
        watches: whether one trial of a hang is watched for all of `within`; otherwise a window
            alone proves it.
    """

    scenario: Scenario
    preparation: Preparation
    results: ResultsFolder
    recipes: Mapping[str, str]
    declared: Mapping[str, Collection[str]] = field(default_factory=dict)
    differing: Collection[str] = ()
    node: int | None = None
    watches: bool = True


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One run: made once by `planned`, read by everything that makes the run.

    Attributes:
        loaded: the scenario with the file it came from.
        settings: what whoever started the run asked for.
        ingredients: what its arms are made of.
        trials: what its trials are made of.
        overrides: of the command line, as the record shows them.
    """

    loaded: LoadedScenario
    settings: RunSettings
    ingredients: Ingredients
    trials: TrialPlan
    overrides: tuple[str, ...]

    @property
    def scenario(self) -> Scenario:
        """Question that the run asks."""
        return self.trials.scenario

    @property
    def preparation(self) -> Preparation:
        """Return what the trials are made of, ready to be started."""
        return self.trials.preparation

    @property
    def folder(self) -> ResultsFolder:
        """Folder of this run, which takes the evidence."""
        return self.trials.results

    @property
    def runnable(self) -> list[Cell]:
        """Cells that can run."""
        return self.preparation.runnable

    @property
    def jobs(self) -> int:
        """Worlds at the same time, before anything is known about what this machine can bear.

        Worlds beside each other would measure each other, a hub has one world at a time, servers
        take the cores, and machines have one world at a time.
        """
        scenario = self.scenario
        needs_the_machine = scenario.measure or scenario.hub or scenario.services
        alone = self.settings.where is None and needs_the_machine
        return 1 if alone or self.settings.hostfile is not None else self.settings.jobs

    def files(self, arm: str) -> dict[str, str]:
        """Path to sha256 of an arm's code."""
        return sources.of_arm(self.folder.digests, arm)

    def counts(self) -> RunOutline:
        """How many trials there will be, for whoever follows the run."""
        trials = self.scenario.trials
        return RunOutline(
            candidate=trials.candidate,
            control=trials.control if "control" in self.preparation.arms else 0,
            cells=self.preparation.cells,
            skipped=self.preparation.skipped,
        )


def planned(
    loaded: LoadedScenario,
    settings: RunSettings,
    *,
    material: Material | None,
    folder: ResultsFolder,
    progress: Progress,
) -> RunPlan:
    """Decide everything about a run; its sources and environments are evidence from here on.

    Args:
        loaded: the scenario.
        settings: what whoever started the run asked for.
        material: what a run that reproduces another is made of; None takes what is beside the
            scenario.
        folder: of the run.
        progress: hears what takes long.

    Raises:
        InputError, ArmError, RevisionError: an input, the code of an arm or a checkout cannot be
            had.
        EnvironmentProblem: an environment cannot be made as the scenario asks.
        ScenarioError: a file of requirements is refused.
    """
    scenario = loaded.scenario
    folder.write(SCENARIO_PATH, loaded.text)
    ingredients = (
        from_scenario(loaded, folder) if material is None else from_material(material, folder)
    )
    folder.write(sources.PATH, sources.listing(folder.digests))
    if ingredients.patch:
        folder.write(PATCH_PATH, ingredients.patch)
    preparation = _prepared(
        scenario, ingredients, folder, progress, over=settings.hostfile is not None
    )
    if settings.hostfile is not None:
        over_machines.skip(preparation, settings.hostfile, faults=scenario.faults)
    overrides = tuple(_without_folders(given, folder=loaded.folder) for given in loaded.overrides)
    environments = preparation.environments
    declared = {}
    for arm in ingredients.origins:
        environment = environments.get(arm)
        folders = search_path(environment.python if environment is not None else None)
        declared[arm] = ingredients.declared(arm, folders, sources.of_arm(folder.digests, arm))
    trials = TrialPlan(
        scenario=scenario,
        preparation=preparation,
        results=folder,
        recipes=recipes_of(loaded.text, overrides, preparation, folder.digests),
        declared=declared,
        differing=differing(
            scenario,
            {arm: environment.facts for arm, environment in environments.items()},
            {arm: environment.named for arm, environment in environments.items()},
        ),
    )
    return RunPlan(
        loaded=loaded,
        settings=settings,
        ingredients=ingredients,
        trials=trials,
        overrides=overrides,
    )


def _prepared(
    scenario: Scenario,
    ingredients: Ingredients,
    folder: ResultsFolder,
    progress: Progress,
    *,
    over: bool,
) -> Preparation:
    """Make the environments; what they were made from beside an index becomes evidence."""
    for arm, supply in ingredients.supplies.items():
        if supply.text is not None:
            folder.write(f"{ENVIRONMENT_FOLDER}/{arm}/{REQUIREMENTS}", supply.text)
    preparation = prepare(
        scenario,
        arms=ingredients.arms,
        inputs=ingredients.inputs,
        supplies=ingredients.supplies,
        progress=progress,
        over=over,
    )
    for arm, environment in preparation.environments.items():
        for wheel in environment.wheels:
            folder.write(f"{ENVIRONMENT_FOLDER}/{arm}/{wheel.name}", wheel.read_bytes())
    return preparation


def _without_folders(given: str, *, folder: Path) -> str:
    """Return an override as the record keeps it: of a path that leaves the scenario's folder, only
    the last part.

    The path says nothing on another machine; the input's digest, and the commit's id, do.
    """
    key, _, value = given.partition("=")
    if override.is_repo(key):
        return f"{key}={shown_repo(value.strip(QUOTES), folder=folder)}"
    if key.startswith("inputs.") and inputs.leaves(value):
        return f"{key}=./{Path(value).name}"
    return given
