"""Which file holds each tensor of a checkpoint: told where it is whole, refused where engines would
differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.engines.inference_inside import checkpoint
from harness.engines.inference_inside.engine import demand_rows
from harness.engines.models import safetensors
from harness.subjects import READY

HALVES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
ARRAYS = {name: np.full((2, 3), number, "<f4") for number, name in enumerate("abcd")}


def written(folder: Path) -> Path:
    """Four tensors in two files, with their index."""
    for number, file in enumerate(HALVES):
        held = dict(list(ARRAYS.items())[2 * number : 2 * number + 2])
        (folder / file).write_bytes(safetensors(held))
    index(folder, {name: HALVES[number // 2] for number, name in enumerate(ARRAYS)})
    return folder


def index(folder: Path, names: object) -> None:
    (folder / checkpoint.INDEX).write_text(json.dumps({"weight_map": names}))


def test_each_tensor_is_found_in_its_file(tmp_path: Path) -> None:
    """Name, shape and bytes, with an index over two files and without one in a single file."""
    found = checkpoint.stored(str(written(tmp_path)))
    assert {name: one.file.name for name, one in found.items()} == {
        "a": HALVES[0], "b": HALVES[0], "c": HALVES[1], "d": HALVES[1]
    }  # fmt: skip
    assert all(bytes(found[name].read()) == array.tobytes() for name, array in ARRAYS.items())
    single = tmp_path / "single"
    single.mkdir()
    (single / "model.safetensors").write_bytes(safetensors(ARRAYS))
    # Mistral's own format lies beside it: neither engine reads that.
    (single / "consolidated.safetensors").write_bytes(safetensors(ARRAYS))
    assert checkpoint.shapes(str(single)) == dict.fromkeys(ARRAYS, (2, 3))


def lost_file(folder: Path) -> None:
    (folder / HALVES[1]).unlink()


def cut_off(folder: Path) -> None:
    path = folder / HALVES[1]
    path.write_bytes(path.read_bytes()[:-4])


def cut_off_header(folder: Path) -> None:
    (folder / HALVES[1]).write_bytes((folder / HALVES[1]).read_bytes()[:40])


def other_shape(folder: Path) -> None:
    path = folder / HALVES[1]
    path.write_bytes(path.read_bytes().replace(b"[2,3]", b"[2,4]", 1))


def twice(folder: Path) -> None:
    """As where the single file of an earlier release was left beside the parts of the next."""
    (folder / "model.safetensors").write_bytes(safetensors(ARRAYS))


def truncated_index(folder: Path) -> None:
    index(folder, {"a": HALVES[0], "b": HALVES[0], "c": HALVES[1]})


def index_of_another_revision(folder: Path) -> None:
    index(folder, {"a": HALVES[0], "b": HALVES[0], "c": HALVES[1], "d": HALVES[0]})


def damaged_index(folder: Path) -> None:
    (folder / checkpoint.INDEX).write_text('{"weight_map": {"a"')


def index_that_leaves_the_folder(folder: Path) -> None:
    index(folder, {"a": f"../{HALVES[0]}"})


def lost_index(folder: Path) -> None:
    (folder / checkpoint.INDEX).unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lost_file, "which is missing"),
        (cut_off, "places d up to byte"),
        (cut_off_header, "is not a readable safetensors file"),
        (other_shape, "number of bytes for"),
        (twice, f"in both {HALVES[0]} and model.safetensors|in both model.safetensors and"),
        (truncated_index, "does not list d"),
        (index_of_another_revision, f"lists d in {HALVES[0]}, which does not contain it"),
        (damaged_index, "cannot be read"),
        (index_that_leaves_the_folder, "does not map tensors to files in its folder"),
        (lost_index, f"but not the index {checkpoint.INDEX}"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    """Before anything is loaded, with what is wrong and what to do."""
    damage(written(tmp_path))
    with pytest.raises(ValueError, match=says):
        checkpoint.stored(str(tmp_path))


def refusal(folder: Path, name: str, **given: object) -> str:
    """Why a ready subject does not run the model of a folder over two ranks."""
    refuses = READY[name].refuses
    assert refuses is not None
    return refuses(
        {"model": "model", "dtype": "float32", "routing": "own", **given}, {"model": folder}, 2
    )


def copied(folder: Path, *files: str) -> Path:
    """Some files of a model."""
    from harness.engines.models import cached

    for file in files:
        (folder / file).write_bytes((cached("qwen2") / file).read_bytes())
    return folder


@pytest.mark.slow
def test_a_cell_is_refused_before_a_world_is_started(tmp_path: Path) -> None:
    """A damaged checkpoint, one without the index that mlx-lm's pipeline reads, and a prompt beyond
    the last row.
    """
    folder = copied(tmp_path, "config.json", "model.safetensors", "tokenizer.json")
    assert refusal(folder, "hf-tensor") == refusal(folder, "hf-sharded", sharding="tensor") == ""
    assert refusal(folder, "mlx-tensor") == ""
    assert "reads model.safetensors.index.json" in refusal(folder, "mlx-pipeline")
    assert refusal(folder, "mlx-sharded", sharding="pipeline") == refusal(folder, "mlx-pipeline")
    assert refusal(folder, "hf-tensor", prompts=["a text", [0, 527]]) == ""
    assert "prompt 1 contains the token 528, but the model has only 528 embedding rows" in refusal(
        folder, "hf-tensor", prompts=["a text", [528]]
    )
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "is truncated: it has" in refusal(folder, "hf-tensor")


def test_a_model_without_a_tokenizer_is_asked_in_ids_alone(tmp_path: Path) -> None:
    """Texts, a warm-up, a control about tokenizers, and what mlx-lm loads with one are refused.

    Its files mend that.
    """
    folder = copied(tmp_path, "config.json", "model.safetensors")
    cases: list[tuple[str, dict[str, object]]] = [
        ("hf-tensor", {"prompts": [[1], "a text"]}),
        ("hf-pipeline", {"prompts": [[1]], "warm_up": 1}),
        ("hf-single", {"prompts": [[1]], "tokenizer": "rank-0-only"}),
        ("mlx-tensor", {"prompts": [[1]]}),
    ]
    for name in ("hf-tensor", "hf-pipeline", "hf-single", "mlx-single"):
        assert refusal(folder, name, prompts=[[1]]) == ""
    for name, given in cases:
        assert "contains no tokenizer" in refusal(folder, name, **given), name
    copied(folder, "tokenizer.json")
    assert not any(refusal(folder, name, **given) for name, given in cases)


def test_a_token_without_a_row_is_an_error() -> None:
    """MLX would read whatever lies beyond the last row, on the ranks as in the reference."""
    demand_rows([[0, 7]], 8)
    for prompt in ([8], [-1]):
        with pytest.raises(ValueError, match="prompt 1 contains the token"):
            demand_rows([[0], prompt], 8)
