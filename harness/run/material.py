"""What a run is made of: found beside its scenario, or brought along by who reproduces another
run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.record import repository
from harness.record.facts import Reproduces, Source
from harness.record.reproduced import REPRODUCED_PATH
from harness.record.results import ResultsFolder
from harness.run import inputs
from harness.run.arms import provenance, staging
from harness.run.environments import supply
from harness.run.environments.supply import Supply
from harness.scenario import LoadedScenario


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
    source: Source
    patch: bytes | None
    reproduces: Reproduces
    reproduced: bytes
    origins: Mapping[str, provenance.Origin]
    supplies: Mapping[str, Supply] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What a run is made of, found beside its scenario or brought along."""

    inputs: dict[str, inputs.ResolvedInput]
    arms: dict[str, staging.StagedArm]
    source: Source
    patch: bytes | None
    origins: Mapping[str, provenance.Origin]
    supplies: Mapping[str, Supply]

    def declared(self, arm: str, folders: Sequence[Path], code: Collection[str]) -> frozenset[str]:
        """The distributions whose files ranks of an arm tell one by one: a repository has to hold
        them.

        Args:
            arm: its name.
            folders: that its packages are imported from.
            code: the files of its folder.
        """
        built = self.supplies[arm].checkouts if arm in self.supplies else ()
        return self.origins[arm].own(folders, code) | frozenset(built)


def from_scenario(loaded: LoadedScenario, folder: ResultsFolder) -> Ingredients:
    """What lies beside a scenario; the code of its arms is laid into the results folder.

    Raises:
        InputError, ArmError, RevisionError: an input, the code of an arm or a checkout cannot be
            had.
        ScenarioError: a file of requirements that is refused.
    """
    scenario = loaded.scenario
    given = inputs.of_scenario(scenario, folder=loaded.folder)
    paths = [resolved.path for resolved in given.values()]
    staged = staging.stage_arms(scenario, folder=loaded.folder, inputs=paths, results=folder)
    source = repository.describe(loaded.folder, results=folder.root)
    return Ingredients(
        inputs=given,
        arms=staged,
        source=source,
        patch=repository.patch(loaded.folder) if source.dirty else None,
        origins=provenance.origins(scenario, loaded.folder, staged),
        supplies=supply.of_scenario(scenario, folder=loaded.folder),
    )


def from_material(material: Material, folder: ResultsFolder) -> Ingredients:
    """What a run that reproduces another was given; it is laid into the results folder."""
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
