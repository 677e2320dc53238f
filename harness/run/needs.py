"""Why a cell cannot run on this machine: a reason to skip, never to pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness import backends, faults
from harness.backends import KINDS as BACKENDS
from harness.reason import Skip, SkipCode
from harness.record.facts import Environment
from harness.record.needs import unmet
from harness.run.environments.cache import ArmEnvironment
from harness.scenario import Cell, Scenario
from harness.world import limits, program


def refused(
    scenario: Scenario,
    cell: Cell,
    environment: Environment,
    *,
    staged: Iterable[Path],
    environments: Mapping[str, ArmEnvironment],
    unavailable: Skip | None,
) -> Skip | None:
    """Why this cell cannot run here; None where it can.

    Args:
        scenario: what it asks for.
        cell: one of its cells.
        environment: of this machine.
        staged: the folder of each arm's code.
        environments: of the arms that have their own.
        unavailable: why an environment could not be had; None where all are there.
    """
    if missing := unmet(scenario.needs, environment):
        return missing
    if impossible := faults.refusal(scenario.faults):
        return Skip(SkipCode.MACHINE_FAULT, impossible)
    if unavailable:
        return unavailable
    # What a program takes is known of none.
    if lacking := limits.shortage(cell.ranks, memory=1 if scenario.subject.program else limits.LEAST_MEMORY):
        return Skip(SkipCode.CELL_LIMIT, lacking)
    if (words := scenario.subject.program) is not None:
        why = program.refusal(words[0], staged=list(staged))
        return Skip(SkipCode.MACHINE_PROGRAM, f"program {words[0]}: {why}") if why else None
    refusal = _backend_refusal(scenario, cell, environments)
    return Skip(refusal.code, f"backend {cell.backend}: {refusal}") if refusal else None


def _backend_refusal(scenario: Scenario, cell: Cell, environments: Mapping[str, ArmEnvironment]) -> Skip | None:
    backend = BACKENDS[cell.backend]
    arms = ["candidate"] + (["control"] if scenario.subject.control else [])
    for arm in arms:
        made = environments.get(arm)
        for library in backend.properties.libraries if made is not None else ():
            if made is not None and library not in made.facts.versions:
                lacking = f"{library} is not in the environment of the {arm}: name it in environment.packages"
                return Skip(SkipCode.BACKEND_LIBRARY, lacking)
    # What the machine lacks beside the library (a GPU, a compiler) is told by the harness' own.
    if all(arm in environments for arm in arms) and backend.properties.portable:
        return None
    return backends.refusal(cell.backend, size=cell.ranks)
