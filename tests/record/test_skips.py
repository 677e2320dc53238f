"""A reason to skip a cell, against what else the run did."""

from __future__ import annotations

import pytest

from harness.record.facts import Environment
from harness.record.needs import unmet
from harness.record.skips import contradiction
from harness.scenario import Cell, Scenario, parse_scenario
from tests.records import record

TEXT = """
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
needs: {cores: 4}
subject:
  entry: subject:meet
  control: {with: {broken: true}, must_fail: {check: met, ranks: every}}
matrix: {ranks: [2]}
checks: [{id: met, kind: event, ranks: every, event: met}]
"""
RING = "backend mlx-ring: an MLX ring has at least 2 ranks: alone, a rank would wait for itself"
GPUS = "backend nccl: nccl needs a GPU per rank: 4 ranks, 2 NVIDIA GPUs here"
MLX = "backend mlx-ring: MLX is not installed here: pip install 'mlx[cpu]'"


def cell(ranks: int, backend: str) -> Cell:
    return Cell(f"ranks={ranks},backend={backend}", "x", ranks, backend)


@pytest.fixture
def scenario() -> Scenario:
    return parse_scenario(TEXT.encode(), name="x")


@pytest.mark.parametrize(
    ("skipped", "reason", "ran", "told"),
    [
        (cell(1, "mlx-ring"), RING, cell(2, "mlx-ring"), ""),
        (cell(2, "mlx-ring"), RING, cell(2, "mlx-ring"), "as many ranks or fewer"),
        (cell(4, "nccl"), GPUS, cell(2, "nccl"), ""),
        (cell(4, "nccl"), GPUS, cell(8, "nccl"), "as many ranks or more"),
        (cell(4, "nccl"), GPUS, cell(8, "gloo"), ""),
        (cell(2, "mlx-ring"), MLX, cell(2, "gloo"), ""),
        (cell(4, "mlx-ring"), MLX, cell(2, "mlx-ring"), "every cell of this backend"),
        (cell(2, "none"), "program sh: it is not in PATH", cell(4, "none"), "every cell"),
        (cell(2, "gloo"), "fault late: this system has no SIGSTOP", cell(2, "none"), "every cell"),
        (cell(2, "gloo"), "backend gloo: torch is not installed here", cell(2, "none"), "among the packages"),
    ],
)
def test_what_ran_contradicts_a_reason(scenario: Scenario, skipped: Cell, reason: str, ran: Cell, told: str) -> None:
    """A reason must hold for every cell that shares what it depends on, and for no other."""
    run = record(environment={"cores": 8}).run
    found = contradiction(scenario, run, skipped, reason, ran=[ran])
    assert told in found
    assert bool(found) is bool(told)


def test_a_machine_that_lacks_what_is_needed_skips_for_that(scenario: Scenario) -> None:
    """Where the machine is too small for the scenario, no other reason is stated, and nothing can have run."""
    run = record(environment={"cores": 2}).run
    here: Environment = run.environment
    lacking = unmet(scenario.needs, here)
    assert lacking
    assert contradiction(scenario, run, cell(2, "gloo"), lacking, ran=[]) == ""
    assert "every cell" in contradiction(scenario, run, cell(2, "gloo"), lacking, ran=[cell(2, "none")])
    assert lacking in contradiction(scenario, run, cell(2, "mlx-ring"), MLX, ran=[])
