"""Whether a cell can have been skipped for the reason it states, after what else the same run did.

A failing cell that is deleted and called skipped is the cheapest way to a PASS. A reason holds for all that it depends
on: where one of these cells ran, the reason is contradicted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from harness.record.facts import RunFacts
from harness.record.needs import unmet
from harness.scenario import Cell, Scenario


class Holds(StrEnum):
    """Which cells of a run a reason to skip holds for, if it holds for one."""

    EVERYWHERE = "every cell"
    BACKEND = "every cell of this backend"
    SIZE = "every cell of this backend with as many ranks or more"
    ALONE = "this cell"


ALONE = re.compile(r"backend mlx-ring: an MLX ring has at least 2 ranks")
GPUS = re.compile(r"backend nccl: nccl needs a GPU per rank: (\d+) ranks, (\d+|no) NVIDIA GPU")
TORCH = re.compile(r"backend (gloo|nccl): torch is not installed here$")


def holds(reason: str) -> Holds:
    """What a reason depends on. One that is not known is taken for the widest it can be, by how it begins."""
    if ALONE.match(reason):
        return Holds.ALONE
    if GPUS.match(reason):
        return Holds.SIZE
    return Holds.BACKEND if reason.startswith("backend ") else Holds.EVERYWHERE


def contradiction(scenario: Scenario, run: RunFacts, cell: Cell, reason: str, *, ran: Iterable[Cell]) -> str:
    """What contradicts that a cell was skipped for this reason; empty where nothing does.

    Args:
        scenario: what it asks for.
        run: what the run says of its machine.
        cell: the cell.
        reason: why it was skipped, as the run states it.
        ran: the cells that were not skipped.
    """
    if reason != (missing := unmet(scenario.needs, run.environment)) and missing:
        return f"the machine lacks something else: {missing}"
    here = holds(reason)
    for other in ran:
        alike = other.backend == cell.backend
        if (
            here is Holds.EVERYWHERE
            or (alike and here is Holds.BACKEND)
            or (alike and here is Holds.SIZE and other.ranks >= cell.ranks)
        ):
            return f"cell {other.id} ran, and the reason holds for {here}"
    if here is Holds.ALONE and cell.ranks > 1:
        return f"it has {cell.ranks} ranks"
    if found := GPUS.match(reason):
        asked, there = int(found[1]), 0 if found[2] == "no" else int(found[2])
        if asked != cell.ranks or there >= asked:
            return f"it has {cell.ranks} ranks"
    if TORCH.match(reason) and any(package.name == "torch" for package in run.environment.packages):
        return "torch is among the packages of the run"
    return ""
