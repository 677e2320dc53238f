"""Everything that a run needs before its first trial, and which of its cells can run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.reason import Skip
from harness.record import environment
from harness.record.facts import Environment
from harness.run import needs
from harness.run.arms.staging import StagedArm
from harness.run.environments import cache
from harness.run.environments.cache import ArmEnvironment
from harness.run.inputs import ResolvedInput
from harness.run.progress import Progress
from harness.scenario import Cell, Scenario, cells


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
    scenario: Scenario, *, arms: Mapping[str, StagedArm], inputs: Mapping[str, ResolvedInput], progress: Progress
) -> Preparation:
    """Look at the machine, and make the environments of the arms.

    Raises:
        EnvironmentProblem: an environment cannot be made as the scenario asks.
    """
    machine = environment.capture()
    made, unavailable = cache.of_arms(scenario, says=progress.says)
    folders = [arm.folder for arm in arms.values()]
    matrix = cells(scenario)
    refusals = {
        cell.id: needs.refused(scenario, cell, machine, staged=folders, environments=made, unavailable=unavailable)
        for cell in matrix
    }
    return Preparation(
        arms=arms,
        inputs=inputs,
        machine=machine,
        environments=made,
        cells=matrix,
        skipped={cell: why for cell, why in refusals.items() if why is not None},
    )
