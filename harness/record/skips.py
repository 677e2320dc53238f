"""Reasons to skip a cell: what a machine lacks for a scenario, and whether a cell can have been
skipped for the reason it states. Pure.

A failing cell that is deleted and called skipped is the cheapest way to a PASS. A reason holds for
all that it depends on: where one of these cells ran, the reason is contradicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from harness.reason import Skip, SkipCode
from harness.record.facts import MachinesFacts, RunFacts
from harness.scenario import Cell, Needs, Scenario
from harness.scenario.matrix import machines_of
from harness.subjects import READY

GIB = 2**30
UNEVEN = "cannot be split over"


class Holds(StrEnum):
    """Which other cells of the run a reason to skip a cell must hold for as well."""

    ALL = "every cell"
    BACKEND = "every cell of this backend"
    NONE = "no other cell"
    SMALLER = "every cell of this backend with as many ranks or fewer"
    LARGER = "every cell of this backend with as many ranks or more"


def holds(code: SkipCode) -> Holds:
    """Return what a reason depends on."""
    match code:
        # Of this model over as many ranks, on so many machines: cells that differ in anything else
        # may well have run.
        case SkipCode.CELL_MODEL | SkipCode.CELL_HOSTS:
            return Holds.NONE
        case SkipCode.CELL_TOO_SMALL:
            return Holds.SMALLER
        case SkipCode.CELL_GPUS | SkipCode.CELL_LIMIT:
            return Holds.LARGER
        case _:
            return Holds.BACKEND if code.depends_on == "backend" else Holds.ALL


def contradiction(
    scenario: Scenario, run: RunFacts, cell: Cell, skipped: Skip, *, ran: Iterable[Cell]
) -> str:
    """Return what contradicts that a cell was skipped for this reason; empty where nothing does.

    Args:
        scenario: what it asks for.
        run: what the run says of its machine.
        cell: the cell.
        skipped: why it was skipped, as the run states it.
        ran: the cells that were not skipped.
    """
    lacking = unmet(scenario.needs, run.environment)
    if lacking is not None and skipped != lacking:
        return f"its machine does not meet the scenario's needs: {lacking}"
    if skipped.code == SkipCode.CELL_MODEL and (
        other_reason := _not_refused(scenario, cell, skipped)
    ):
        return other_reason
    here = holds(skipped.code)
    for other in ran:
        if _is_meant(here, cell, other):
            return f"cell {other.id} ran, although the reason also applies to {here}"
    installed = {package.name for package in run.environment.packages}
    if (
        here is Holds.BACKEND
        and cell.backend == "gloo"
        and not run.environments
        and "torch" in installed
    ):
        return "gloo needs only torch, which is among the packages of the run"
    return ""


def _not_refused(scenario: Scenario, cell: Cell, skipped: Skip) -> str:
    """Why no engine can have refused its model, as far as that follows from the scenario.

    Empty where one can.
    """
    use = scenario.subject.use
    if use is None or READY[use].refuses is None:
        return "its subject is not an engine, so it cannot refuse a model"
    if UNEVEN not in skipped.text:
        return ""  # what its libraries offered, only that machine knew
    named = {
        str({**arm.with_, **cell.axes}.get("model", "model"))
        for arm in scenario.subject.arms.values()
    }
    models = [
        one.made
        for name in named
        if (one := scenario.inputs.get(name)) is not None and one.made is not None
    ]
    # What makes models and reads engines takes long to import, and few records skip a cell for
    # this.
    from harness.engines.models.catalogue import MODELS
    from harness.engines.offers import uneven

    configs = [MODELS[name].config() for name in models if name in MODELS]
    if len(configs) == len(named) and not any(
        uneven(use, config, ranks=cell.ranks) for config in configs
    ):
        return f"{use} can split {', '.join(sorted(models))} over {cell.ranks} ranks"
    return ""


def _is_meant(here: Holds, cell: Cell, other: Cell) -> bool:
    match here:
        case Holds.NONE:
            return False
        case Holds.ALL:
            return True
        case Holds.BACKEND:
            return other.backend == cell.backend
        case Holds.SMALLER:
            return other.backend == cell.backend and other.ranks <= cell.ranks
        case Holds.LARGER:
            return other.backend == cell.backend and other.ranks >= cell.ranks


def lacks_machines(cell: Cell, machines: MachinesFacts | None) -> bool:
    """Return whether a run over these machines, or over none, cannot have the ranks of a cell on as
    many as it says.
    """
    if cell.hosts is None:
        return False
    if machines is None:
        return cell.hosts > 1
    slots = [machine.slots for machine in machines.machines]
    return machines_of(machines.placement, slots=slots, size=cell.ranks, hosts=cell.hosts) is None


class Offers(Protocol):
    """Machine that a scenario may need something of."""

    @property
    def system(self) -> str:
        """Return the name of its kernel."""

    @property
    def cores(self) -> int:
        """That its processes may use."""

    @property
    def memory(self) -> int:
        """Bytes."""

    @property
    def gpu(self) -> object | None:
        """None where no NVIDIA driver answers."""

    @property
    def nix(self) -> object | None:
        """None outside of Nix."""


def unmet(needs: Needs, here: Offers) -> Skip | None:
    """Why a machine cannot run a scenario: a reason to skip, never to pass. None where it can."""
    system = here.system.lower()
    if needs.os is not None and system not in needs.os:
        return Skip(SkipCode.MACHINE_SYSTEM, f"needs {' or '.join(needs.os)}, but this is {system}")
    if needs.cores is not None and here.cores < needs.cores:
        return Skip(
            SkipCode.MACHINE_CORES, f"needs {needs.cores} cores, but this machine has {here.cores}"
        )
    if needs.memory is not None and here.memory < needs.memory:
        lacking = (
            f"needs {needs.memory / GIB:.1f} GiB of memory, but this machine has"
            f" {here.memory / GIB:.1f} GiB"
        )
        return Skip(SkipCode.MACHINE_MEMORY, lacking)
    if needs.gpus and here.gpu is None:
        lacking = f"needs {needs.gpus} GPUs, but no NVIDIA driver was found"
        return Skip(SkipCode.MACHINE_GPUS, lacking)
    if needs.nix and here.nix is None:
        return Skip(SkipCode.MACHINE_NIX, "needs the Nix environment; run it inside `nix develop`")
    return None
