"""A model of many layers through the ladder: thin, but with as many KV heads as one of 135M
parameters, and before a release with as many layers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.engines.models import catalogue, draw, safetensors
from harness.engines.models.catalogue import Shape
from harness.engines.models.vocabulary import as_json, tokenizer_files
from harness.reason import SkipCode
from harness.scenario import cells, load_scenario
from harness.stats.outcome import reference_folders
from tests.kit.commands import ROOT, Ran

SCENARIO = ROOT / "scenarios/single-vs-distributed/transformers.yaml"
PROMPTS = "[[220, 194, 171, 241, 140, 12, 220, 124, 164, 70]]"
TIED = catalogue.TIED_GAIN * catalogue.root(36)


def shape(layers: int) -> Shape:
    return Shape(layers=layers, width=36, inner=72, heads=9, kv_heads=3, tied=True, embedding=TIED)


def thin(folder: Path, layers: int) -> Path:
    """The model, in two files and an index, as a large one is saved."""
    sizes = shape(layers)
    layer = dict(catalogue.attention(sizes)) | dict(catalogue.dense(sizes))
    drawn = {
        name: draw(name, one, seed=135) for name, one in catalogue.decoder(sizes, layer).items()
    }
    names = sorted(drawn)
    shards = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    index = {
        "metadata": {},
        "weight_map": {name: file for file, held in shards.items() for name in held},
    }
    content = {
        "config.json": as_json(catalogue.common("llama", "LlamaForCausalLM", sizes)),
        "model.safetensors.index.json": as_json(index),
        **{
            file: safetensors({name: drawn[name] for name in held}) for file, held in shards.items()
        },
        **tokenizer_files(),
    }
    folder.mkdir()
    for file, data in content.items():
        (folder / file).write_bytes(data)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "layers", [pytest.param(6, marks=pytest.mark.whole), pytest.param(30, marks=pytest.mark.long)]
)
def test_many_layers_over_three_ranks(
    rankproof: Callable[..., Ran], tmp_path: Path, layers: int
) -> None:
    """All that they keep is looked at, a dropped layer is seen, and two ranks are refused for three
    KV heads.
    """
    ran = rankproof(
        "run",
        str(SCENARIO),
        "--unsigned",
        *(
            "--set",
            f"inputs.model={thin(tmp_path / 'thin', layers)}",
            "--set",
            "subject.use=hf-tensor",
        ),
        *("--set", "matrix.ranks=[2, 3]"),
        *("--set", "trials={candidate: 1, control: 1, accept: {failure_rate_below: 96%}}"),
        *(
            "--set",
            f"subject.candidate.with.prompts={PROMPTS}",
            "--set",
            f"subject.control.with.prompts={PROMPTS}",
        ),
        *("--set", f"subject.reference.with.prompts={PROMPTS}"),
    )
    two, three = ran.record.judgement.cells
    # One trial of each is too few for a verdict, and enough to see each layer compared.
    candidate, control = three.candidate, three.control
    assert control is not None
    assert (candidate.counted, candidate.failed) == (1, 0), ran.out + ran.err
    assert (control.counted, control.as_stated) == (1, 1), ran.out + ran.err
    assert f"first in layer {layers - 1}" in (ran.folder / "report.md").read_text()
    assert (two.verdict, [why.code for why in two.reasons]) == ("SKIPPED", [SkipCode.CELL_MODEL])
    assert "3 KV heads cannot be split over 2 ranks" in ran.out


def test_one_reference_answers_for_all_numbers_of_ranks() -> None:
    """A whole model that takes minutes is asked twice, not twice for each rung."""
    scenario = load_scenario(SCENARIO).scenario
    assert [cell.ranks for cell in cells(scenario)] == [2, 3, 4]
    assert len({reference_folders(scenario, cell) for cell in cells(scenario)}) == 1
