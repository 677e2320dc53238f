"""Inference over ranks gives what the whole model gives, and tells truly what each rank holds."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engines.inference_inside.checkpoint import blocks, whole_shape
from harness.engines.models import cached, write
from harness.history import History
from harness.subjects import READY
from harness.subjects.subject import Argument
from tests.engines.worlds import Worlds

# Each way of splitting, with experts that are stacked, a tied head, fused matrices and norms that
# are split.
CASES = [
    ("hf-tensor", "qwen3-moe", 3),
    ("hf-pipeline", "gpt2", 3),
    ("hf-pipeline", "qwen2", 2),
    ("mlx-tensor", "minimax", 2),
    ("mlx-pipeline", "qwen2", 3),
]
NEAR = 1e-4
"""Of logits that deviate by 3: the envelope of these models in float32 is 3e-5 at most."""


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """One pool for all."""
    with Worlds() as found:
        yield found


def said(history: History, event: str, key: str) -> list[list[Any]]:
    """What each rank said."""
    return [
        [value for value, _ in history.values(rank, event, key)] for rank in range(history.size)
    ]


def arrays(worlds: Worlds) -> dict[tuple[int, str], Any]:
    """What the ranks of the last world kept."""
    import numpy as np

    return {name: np.load(path) for name, path in worlds.kept.items()}


def demand_true_shards(history: History, folder: Path) -> dict[str, int]:
    """Demand that each slice has the digest of that slice of the file.

    Tensor to how many elements the ranks hold.
    """
    from safetensors.numpy import load_file

    whole, held = load_file(folder / "model.safetensors"), dict[str, int]()
    for rank in range(history.size):
        for event in (one.event for one in history.said(rank, "shard")):
            tensor, slices = event.values["tensor"], event.values["slices"]
            part = whole[str(tensor)][tuple(slice(*one) for one in slices)]  # type: ignore[arg-type, union-attr, misc]
            assert hashlib.sha256(part.tobytes()).hexdigest() == event.values["sha256"], (
                rank,
                tensor,
            )
            held[str(tensor)] = held.get(str(tensor), 0) + part.size
    assert held.keys() == whole.keys()
    return {name: count - math.prod(whole[name].shape) for name, count in held.items()}


@pytest.mark.whole
@pytest.mark.parametrize(("engine", "model", "size"), CASES)
def test_ranks_compute_what_the_whole_model_computes(
    worlds: Worlds, engine: str, model: str, size: int
) -> None:
    """Logits, what leaves each layer and its parts, tokens on every rank, and slices that make up
    the checkpoint.
    """
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    import numpy as np

    folder = cached(model)
    asked = {
        "prompts": [[40, 41, 42, 43, 44, 45, 46], [50, 51]],
        "max_new_tokens": 5,
        "hidden": "parts",
    }
    one = worlds.run(f"{engine.partition('-')[0]}-single", size=1, model=folder, **asked)
    reference = arrays(worlds)
    assert set(demand_true_shards(one, folder).values()) == {0}
    history = worlds.run(engine, size=size, model=folder, prefill_chunk=3, **asked)
    found = arrays(worlds)
    assert said(history, "generated", "ids") == said(one, "generated", "ids") * size
    assert said(history, "engine.ready", "whole") == [[False]] * size
    ranks = [size - 1] if engine == "hf-pipeline" else list(range(size))
    names = [f"{kind}.logits.{prompt}" for kind in ("prefill", "decode") for prompt in (0, 1)]
    assert {place for place in found if "logits" in place[1]} == {
        (rank, name) for rank in ranks for name in names
    }
    parts = {name for _, name in reference if name.startswith("hidden.2.")}
    assert len(parts) == 6  # attention, feed-forward part and layer, of both prompts
    assert "hidden.2.attention.1" in parts
    assert {name for _, name in found if name.startswith("hidden")} == {
        name for _, name in reference if name.startswith("hidden")
    }
    for (_, name), values in found.items():
        expected = reference[0, name]
        assert (values.shape, values.dtype) == (expected.shape, expected.dtype)
        assert float(np.abs(values - expected).max()) < NEAR
    spare = demand_true_shards(history, folder)
    assert min(spare.values()) == 0  # nothing is missing, and something is split
    bytes_ = [one[0] for one in said(history, "shards", "bytes")]
    assert max(bytes_) < said(one, "shards", "bytes")[0][0]
    assert said(history, "shards", "dtypes") == [[["F32"]]] * size


@pytest.mark.whole
@pytest.mark.parametrize(
    ("engine", "defect"), [("hf-pipeline", "boundary-position"), ("mlx-tensor", "boundary-token")]
)
def test_a_defect_at_a_boundary_is_seen_from_there_on(
    worlds: Worlds, engine: str, defect: str
) -> None:
    """Logits before the second chunk are what they were, those of the chunk are not, and the
    boundary is told.
    """
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    import numpy as np

    asked = {"prompts": [[40, 41, 42, 43, 44]], "max_new_tokens": 1, "prefill_chunk": 3}
    found = []
    for given in ("none", defect):
        history = worlds.run(engine, size=2, model=cached("llama"), defect=given, **asked)
        assert said(history, "prefill.boundary", "at") == [[3]] * 2
        found.append(arrays(worlds)[1, "prefill.logits.0"])
    off = np.abs(found[1] - found[0]).max(-1)
    assert off[:3].max() == 0
    assert off[3:].min() > 100 * NEAR


@pytest.mark.whole
def test_tokens_go_through_the_experts_that_the_reference_took(
    worlds: Worlds, tmp_path: Path
) -> None:
    """Told others, a stage's logits are others, and what its routers would have chosen stays the
    same before that.
    """
    import numpy as np

    asked: dict[str, Any] = {
        "prompts": [[40, 41, 42]],
        "teacher": [[7, 8]],
        "dtype": "bfloat16",
        "routing": "reference",
    }
    worlds.run("hf-single", size=1, model=cached("qwen3-moe"), envelope="unchunked", **asked)
    reference = arrays(worlds)
    taken = reference[0, "routing.0"]
    # Three of the prompt and one that is fed; layers; experts for each.
    assert taken.shape == (4, 4, 2)
    assert not [name for _, name in reference if name.endswith("prefill.router.0")]
    found = []
    for number, given in enumerate((taken, (taken + 1) % 12)):
        (tmp_path / str(number)).mkdir()
        np.save(tmp_path / str(number) / "routing.0.npy", given)
        worlds.run(
            "hf-pipeline",
            size=2,
            model=cached("qwen3-moe"),
            inputs={"reference": str(tmp_path / str(number))},
            **asked,
        )
        found.append(arrays(worlds))
    right, other = found
    assert (right[0, "hidden.0.router.0"] == other[0, "hidden.0.router.0"]).all()
    assert (right[1, "hidden.3.router.0"] != other[1, "hidden.3.router.0"]).any()
    assert (right[1, "prefill.logits.0"] != other[1, "prefill.logits.0"]).all(-1).any()


@pytest.mark.whole
def test_what_is_fed_follows_the_request(worlds: Worlds, tmp_path: Path) -> None:
    """A teacher's tokens, or the reference's, are fed whatever is chosen.

    Sampling follows its seed on every rank.
    """
    folder = cached("llama")
    asked: dict[str, Any] = {"prompts": [[40, 41, 42]], "max_new_tokens": 4}
    free = worlds.run("hf-single", size=1, model=folder, envelope="keep", hidden="keep", **asked)
    ((ids,),) = said(free, "generated", "ids")
    kept = arrays(worlds)
    assert {name for _, name in kept if name.startswith("hidden")} == {
        f"hidden.{layer}.0" for layer in range(4)
    }
    orders = said(free, "envelope", "order")[0]
    assert len(orders) == len(set(orders)) >= 6
    shapes = {kept[0, f"envelope.{number}.decode.logits.0"].shape for number in range(len(orders))}
    assert shapes == {kept[0, "decode.logits.0"].shape} == {(3, 528)}
    (tmp_path / "values.json").write_text(json.dumps({"generated.ids": [ids]}))
    for how in ({"teacher": [ids]}, {"follow": "reference"}):
        worlds.run(
            "hf-single", size=1, model=folder, inputs={"reference": str(tmp_path)}, **asked, **how
        )
        assert (arrays(worlds)[0, "decode.logits.0"] == kept[0, "decode.logits.0"]).all()
    other = worlds.run("hf-single", size=1, model=folder, teacher=[[60, 61, 62, 63]], **asked)
    assert said(other, "generated", "ids")[0][0][0] == ids[0]
    assert (arrays(worlds)[0, "decode.logits.0"] != kept[0, "decode.logits.0"]).any()
    drawn = [
        said(
            worlds.run("hf-pipeline", size=2, model=folder, sampling="seeded", seed=seed, **asked),
            "generated",
            "ids",
        )
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] == drawn[0][1]


@pytest.mark.whole
@pytest.mark.parametrize("engine", ["hf-single", "mlx-single"])
def test_each_order_keeps_what_left_the_layers(worlds: Worlds, engine: str) -> None:
    """In a batch too the hidden states are those of the prompt, at each position and near the first
    answer's.
    """
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    import numpy as np

    asked: dict[str, Any] = {
        "prompts": [[40, 41, 42, 43, 44]],
        "max_new_tokens": 3,
        "envelope": "keep",
    }
    history = worlds.run(engine, size=1, model=cached("llama"), hidden="parts", **asked)
    kept = arrays(worlds)
    orders = said(history, "envelope", "order")[0]
    places = [f"{layer}{part}" for layer in range(4) for part in ("", ".attention", ".mlp")]
    assert {name for _, name in kept if name.startswith("hidden")} == {
        f"hidden.{place}.0" for place in places
    }
    assert "in a batch of two" in str(orders[-1])
    for number in range(len(orders)):
        for place in places:
            plain, other = (
                kept[0, f"hidden.{place}.0"],
                kept[0, f"envelope.{number}.hidden.{place}.0"],
            )
            assert plain.shape == other.shape == (5, 96)
            assert float(np.abs(plain - other).max()) < NEAR


@pytest.mark.whole
@pytest.mark.parametrize("engine", ["hf-single", "hf-pipeline", "mlx-tensor"])
def test_a_tensor_that_is_missing_is_an_error(worlds: Worlds, tmp_path: Path, engine: str) -> None:
    """No engine goes on with numbers that are in no checkpoint."""
    from safetensors.numpy import load_file, save_file

    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    folder = write("llama", tmp_path / "llama")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    # An index that named it still would be refused for that.
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    del listed["weight_map"]["model.layers.1.mlp.up_proj.weight"]
    index.write_text(json.dumps(listed))
    history = worlds.run(engine, size=1 if engine == "hf-single" else 2, model=folder)
    error = history.error(0)
    assert error is not None
    assert "lacks" in str(error.event.values["message"]) or "issing" in str(
        error.event.values["message"]
    )


@pytest.mark.whole
def test_a_tokenizer_on_rank_0_only_ends_the_others(worlds: Worlds) -> None:
    """The broken variant dies of a bare assert on every rank but 0, before anything was sent."""
    history = worlds.run("hf-pipeline", size=2, model=cached("llama"), tokenizer="rank-0-only")
    error = history.error(1)
    assert error is not None
    assert (error.event.values["type"], error.event.values["source"]) == (
        "AssertionError",
        "assert tokenizer is not None",
    )
    assert not history.said(1, "tokenizer.ready")
    assert history.said(0, "tokenizer.ready")


@pytest.mark.whole
def test_a_stage_counts_its_layers_from_its_first_whatever_they_call_their_place(
    worlds: Worlds, tmp_path: Path
) -> None:
    """GPT-Neo's layers, half of which see a window alone, name it otherwise than those of other
    decoders.
    """
    import torch
    import transformers

    of_all: Any = transformers
    torch.manual_seed(3)
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_heads": 4, "num_layers": 4, "window_size": 4}
    kinds = [[["global", "local"], 2]]
    of_all.GPTNeoForCausalLM(of_all.GPTNeoConfig(**sizes, attention_types=kinds)).save_pretrained(
        tmp_path
    )
    asked: dict[str, Any] = {"prompts": [list(range(9))], "max_new_tokens": 3, "prefill_chunk": 4}
    worlds.run("hf-single", size=1, model=tmp_path, **asked)
    whole = {name: array for (_, name), array in arrays(worlds).items()}
    worlds.run("hf-pipeline", size=2, model=tmp_path, **asked)
    split = {name: array for (rank, name), array in arrays(worlds).items() if rank == 1}
    assert split.keys() == whole.keys() == {"prefill.logits.0", "decode.logits.0"}
    assert all(abs(split[name] - whole[name]).max() < NEAR for name in whole)


@pytest.mark.whole
def test_a_model_without_a_tokenizer_answers_in_ids(worlds: Worlds, tmp_path: Path) -> None:
    """Its logits and tokens are those that it has beside its tokenizer, and no text is made up for
    them.
    """
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((cached("llama") / file).read_bytes())
    asked: dict[str, Any] = {"prompts": [[40, 41, 42]], "max_new_tokens": 3}
    beside = worlds.run("hf-pipeline", size=2, model=cached("llama"), **asked)
    kept = arrays(worlds)
    history = worlds.run("hf-pipeline", size=2, model=tmp_path, **asked)
    assert said(history, "generated", "ids") == said(beside, "generated", "ids")
    assert said(history, "generated", "ids") != [[], []]
    assert {name: array.tolist() for name, array in arrays(worlds).items()} == {
        name: array.tolist() for name, array in kept.items()
    }
    assert said(beside, "detokenized", "text") != [[], []] == said(history, "detokenized", "text")


@pytest.mark.whole
def test_a_row_without_a_token_that_is_generated_is_named(worlds: Worlds, tmp_path: Path) -> None:
    """A head with a loud row behind the last token: what was generated of it is no text, and is
    said to be unknown.
    """
    import numpy as np
    from safetensors.numpy import load_file, save_file

    folder = write("llama", tmp_path / "llama")
    config = json.loads((folder / "config.json").read_text())
    rows = config["vocab_size"]
    tensors = load_file(folder / "model.safetensors")
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        tensors[name] = np.concatenate([tensors[name], 3 * tensors[name][:12]])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": rows + 12}))
    history = worlds.run(
        "hf-pipeline",
        size=2,
        model=folder,
        prompts=[[one] for one in range(40, 56)],
        max_new_tokens=1,
    )
    ids = [one[0] for one in said(history, "generated", "ids")[1]]
    found = said(history, "detokenized", "unknown")[1]
    assert found == [[one] if one >= rows else [] for one in ids]
    assert any(found)


def test_a_stack_of_experts_is_told_expert_by_expert() -> None:
    """Rows of gate and up that a rank holds of each expert are told as slices of that expert's
    matrices.
    """
    checkpoint = {
        f"m.block_sparse_moe.experts.{expert}.{matrix}.weight": (4, 6) if matrix != "w2" else (6, 4)
        for expert in (0, 1)
        for matrix in ("w1", "w2", "w3")
    }
    name = "m.mlp.experts.gate_up_proj"
    assert whole_shape(name, checkpoint) == (2, 8, 6)
    found = list(blocks(name, [[(0, 2)], [(2, 4), (6, 8)], [(0, 6)]], checkpoint))
    assert [(one.tensor.rpartition("experts.")[2], one.whole, one.local[:2]) for one in found] == [
        ("0.w1.weight", ((2, 4), (0, 6)), ((0, 1), (0, 2))),
        ("1.w1.weight", ((2, 4), (0, 6)), ((1, 2), (0, 2))),
        ("0.w3.weight", ((2, 4), (0, 6)), ((0, 1), (2, 4))),
        ("1.w3.weight", ((2, 4), (0, 6)), ((1, 2), (2, 4))),
    ]
    (unknown,) = blocks("other.weight", [[(0, 3)]], checkpoint)
    assert unknown.tensor == "other.weight"


def test_a_list_of_prompts_is_what_it_must_be() -> None:
    """Texts and lists of token ids are prompts; nothing, numbers and negative ids are not.

    A teacher has no texts.
    """
    prompts, teacher = (READY["hf-pipeline"].arguments[name] for name in ("prompts", "teacher"))
    assert isinstance(prompts, Argument)
    assert [prompts.complaint(given) for given in (["a"], [[1, 2], "b"])] == ["", ""]
    assert all(
        prompts.complaint(given) for given in ([], "a", [1], [[]], [[-1]], [""], [[True]], [[1.0]])
    )
    assert teacher.complaint([]) == ""
    assert teacher.complaint(["a"])
    misfit = READY["hf-pipeline"].misfit
    arguments = {name: one.default for name, one in READY["hf-pipeline"].arguments.items()}
    assert misfit(arguments, 2) is None
    assert misfit({**arguments, "teacher": [[1]]}, 2) == (
        "teacher",
        "must have one list per prompt (2 in total), but has 1",
    )
    assert misfit({**arguments, "teacher": [[1], [2]], "follow": "reference"}, 2) is not None


def test_only_stages_that_hand_states_on_take_integrity() -> None:
    """A sharded subject takes it as a pipeline alone, and what never is one says why it does not
    take it.
    """
    for name in ("hf-sharded", "mlx-sharded"):
        subject = READY[name]
        arguments = {argument: one.default for argument, one in subject.arguments.items()} | {
            "integrity": "full"
        }
        assert subject.misfit({**arguments, "sharding": "pipeline"}, 2) is None
        at, why = subject.misfit({**arguments, "sharding": "pipeline"}, 1) or ("", "")
        assert (at, "in a world of one" in why) == ("integrity", True)
        at, why = subject.misfit({**arguments, "sharding": "tensor"}, 2) or ("", "")
        assert at == "integrity"
        assert "transfers-intact" in why
    for name in ("hf-tensor", "mlx-tensor", "hf-single"):
        assert "integrity" not in READY[name].arguments
        assert "transfers-intact" in READY[name].lacks["integrity"]
