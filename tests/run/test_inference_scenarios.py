"""Warm-up and generation over ranks: a small part of the folder runs here, and a model that no
engine splits.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.reason import SkipCode
from harness.scenario import load_scenario, scenario_files
from tests.kit.commands import ROOT, Ran

FOLDER = ROOT / "scenarios" / "warm-up-and-generate"
SMALL = ("--unsigned", "--set", "trials.candidate=4", "--set", "trials.control=4", "--set")
LOOSE = "trials.accept.failure_rate_below=60%"


def test_both_engines_are_asked_the_same_on_demand() -> None:
    """transformers and mlx-lm answer the same checks, with the same control, and neither runs
    unless it is named.
    """
    one, other = (load_scenario(file).scenario for file in scenario_files(FOLDER))
    assert one.tags == other.tags == ("on-demand",)
    assert one.checks == other.checks
    assert (one.subject.control, one.subject.reference) == (
        other.subject.control,
        other.subject.reference,
    )
    assert {one.subject.use, other.subject.use} == {"hf-pipeline", "mlx-tensor"}


@pytest.mark.long
def test_a_tokenizer_on_each_rank_warms_up_and_generates(rankproof: Callable[..., Ran]) -> None:
    """Two ranks give the whole model's tokens and text.

    With a tokenizer on rank 0 alone the other dies as required.
    """
    ran = rankproof(
        "run", str(FOLDER / "scenario.yaml"), *SMALL, LOOSE, "--set", "matrix.ranks=[2]"
    )
    assert (ran.code, ran.record.judgement.verdict) == (0, "PASS"), ran.out + ran.err


@pytest.mark.whole
def test_a_model_that_cannot_be_split_skips_its_cells(rankproof: Callable[..., Ran]) -> None:
    """Two KV heads over three ranks: no world is started, the reason names them, and nothing
    passes.
    """
    file = str(FOLDER / "scenario.yaml")
    given = (
        "--set",
        "subject.use=hf-tensor",
        "--set",
        "inputs.model={made: llama-2-kv}",
        "--set",
        "matrix.ranks=[3]",
    )
    ran = rankproof("run", file, *SMALL, LOOSE, *given)
    (cell,) = ran.record.judgement.cells
    assert (cell.verdict, [why.code for why in cell.reasons]) == (
        "SKIPPED",
        [SkipCode.CELL_MODEL],
    ), ran.out + ran.err
    assert "2 KV heads cannot be split over 3 ranks" in ran.out
    assert ran.code == 2
