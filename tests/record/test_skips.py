"""A reason to skip a cell, against what else the run did."""

from __future__ import annotations

import pytest

from harness.reason import Skip, SkipCode
from harness.record.facts import EnvironmentFacts
from harness.record.skips import contradiction, unmet
from harness.scenario import Cell, Scenario, parse_scenario
from tests.kit.records import record

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
RING = SkipCode.CELL_TOO_SMALL
GPUS = SkipCode.CELL_GPUS
MLX = SkipCode.BACKEND_LIBRARY


def cell(ranks: int, backend: str) -> Cell:
    return Cell(f"ranks={ranks},backend={backend}", "x", ranks, backend)


@pytest.fixture
def scenario() -> Scenario:
    return parse_scenario(TEXT.encode(), name="x")


@pytest.mark.parametrize(
    ("skipped", "code", "ran", "told"),
    [
        (cell(1, "mlx-ring"), RING, cell(2, "mlx-ring"), ""),
        (cell(2, "mlx-ring"), RING, cell(2, "mlx-ring"), "as many ranks or fewer"),
        (cell(4, "nccl"), GPUS, cell(2, "nccl"), ""),
        (cell(4, "nccl"), GPUS, cell(8, "nccl"), "as many ranks or more"),
        (cell(4, "nccl"), GPUS, cell(8, "gloo"), ""),
        (cell(4, "gloo"), SkipCode.CELL_LIMIT, cell(2, "gloo"), ""),
        (cell(4, "gloo"), SkipCode.CELL_LIMIT, cell(8, "gloo"), "as many ranks or more"),
        (cell(2, "mlx-ring"), MLX, cell(2, "gloo"), ""),
        (cell(4, "mlx-ring"), MLX, cell(2, "mlx-ring"), "every cell of this backend"),
        (cell(2, "none"), SkipCode.MACHINE_PROGRAM, cell(4, "none"), "every cell"),
        (cell(2, "gloo"), SkipCode.MACHINE_FAULT, cell(2, "none"), "every cell"),
        (cell(2, "gloo"), SkipCode.BACKEND_LIBRARY, cell(2, "none"), "among the packages"),
    ],
)
def test_what_ran_contradicts_a_reason(
    scenario: Scenario, skipped: Cell, code: SkipCode, ran: Cell, told: str
) -> None:
    """A reason must hold for every cell that shares what it depends on, and for no other."""
    run = record(environment={"cores": 8}).run
    found = contradiction(scenario, run, skipped, Skip(code, "why"), ran=[ran])
    assert told in found
    assert bool(found) is bool(told)


@pytest.mark.parametrize(
    ("subject", "made", "why", "told"),
    [
        (
            "use: hf-tensor",
            "llama-2-kv",
            "2 KV heads cannot be split over 3 ranks; use fewer ranks",
            "",
        ),
        (
            "use: hf-tensor",
            "llama",
            "12 KV heads cannot be split over 3 ranks; use fewer ranks",
            "can split llama",
        ),
        (
            "use: hf-tensor",
            "gpt2",
            "transformers 5.23.0 has no tensor-parallel plan for the layers of gpt2",
            "",
        ),
        (
            "use: torch-allreduce",
            "llama",
            "2 KV heads cannot be split over 3 ranks",
            "is not an engine",
        ),
        (
            "entry: subject:meet",
            "llama",
            "2 KV heads cannot be split over 3 ranks",
            "is not an engine",
        ),
    ],
)
def test_only_an_engine_refuses_a_model(subject: str, made: str, why: str, told: str) -> None:
    """A cell that was left out as refused has an engine that cannot split its model, as far as the
    scenario tells.
    """
    text = TEXT.replace("entry: subject:meet", subject).replace(
        "matrix:", f"inputs: {{model: {{made: {made}}}}}\nmatrix:"
    )
    if "use" in subject:
        event = "model.load.begin" if "hf" in subject else "collective.begin"
        broken = "{tokenizer: rank-0-only}" if "hf" in subject else "{defect: own-value}"
        text = text.replace("event: met", f"event: {event}").replace("{broken: true}", broken)
    skipped, run = (
        Skip(SkipCode.CELL_MODEL, f"refused: {why}"),
        record(environment={"cores": 8}).run,
    )
    found = contradiction(
        parse_scenario(text.encode(), name="x"), run, cell(3, "gloo"), skipped, ran=[]
    )
    assert told in found
    assert bool(found) is bool(told)


def test_a_machine_that_lacks_what_is_needed_skips_for_that(scenario: Scenario) -> None:
    """Where the machine is too small for the scenario, no other reason is stated, and nothing can
    have run.
    """
    run = record(environment={"cores": 2}).run
    here: EnvironmentFacts = run.environment
    lacking = unmet(scenario.needs, here)
    assert lacking is not None
    assert contradiction(scenario, run, cell(2, "gloo"), lacking, ran=[]) == ""
    assert "every cell" in contradiction(
        scenario, run, cell(2, "gloo"), lacking, ran=[cell(2, "none")]
    )
    other = Skip(MLX, "why")
    assert str(lacking) in contradiction(scenario, run, cell(2, "mlx-ring"), other, ran=[])
