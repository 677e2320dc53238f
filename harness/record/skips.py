"""Whether a cell can have been skipped for the reason it states, after what else the same run did.

A failing cell that is deleted and called skipped is the cheapest way to a PASS. A reason holds for all that it depends
on: where one of these cells ran, the reason is contradicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from harness.reason import Skip, SkipCode
from harness.record.facts import RunFacts
from harness.record.needs import unmet
from harness.scenario import Cell, Scenario


class Holds(StrEnum):
    """Which other cells of the run a reason to skip a cell must hold for as well."""

    ALL = "every cell"
    BACKEND = "every cell of this backend"
    SMALLER = "every cell of this backend with as many ranks or fewer"
    LARGER = "every cell of this backend with as many ranks or more"


def holds(code: SkipCode) -> Holds:
    """What a reason depends on."""
    match code:
        case SkipCode.CELL_TOO_SMALL:
            return Holds.SMALLER
        case SkipCode.CELL_GPUS | SkipCode.CELL_LIMIT:
            return Holds.LARGER
        case _:
            return Holds.BACKEND if code.depends_on == "backend" else Holds.ALL


def contradiction(scenario: Scenario, run: RunFacts, cell: Cell, skipped: Skip, *, ran: Iterable[Cell]) -> str:
    """What contradicts that a cell was skipped for this reason; empty where nothing does.

    Args:
        scenario: what it asks for.
        run: what the run says of its machine.
        cell: the cell.
        skipped: why it was skipped, as the run states it.
        ran: the cells that were not skipped.
    """
    lacking = unmet(scenario.needs, run.environment)
    if lacking is not None and skipped != lacking:
        return f"its machine lacks what every cell needs: {lacking}"
    here = holds(skipped.code)
    for other in ran:
        if _is_meant(here, cell, other):
            return f"cell {other.id} ran: the reason holds for {here}"
    installed = {package.name for package in run.environment.packages}
    if here is Holds.BACKEND and cell.backend == "gloo" and not run.environments and "torch" in installed:
        return "all that gloo needs is torch, which is among the packages of the run"
    return ""


def _is_meant(here: Holds, cell: Cell, other: Cell) -> bool:
    match here:
        case Holds.ALL:
            return True
        case Holds.BACKEND:
            return other.backend == cell.backend
        case Holds.SMALLER:
            return other.backend == cell.backend and other.ranks <= cell.ranks
        case Holds.LARGER:
            return other.backend == cell.backend and other.ranks >= cell.ranks
