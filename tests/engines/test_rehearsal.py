"""What an engine would fail in is refused before anything runs, and what is refused does fail."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.engines import rehearsal
from harness.engines.models import MODELS, safetensors, write
from harness.subjects import READY
from tests.engines.rehearsals import Rehearsals
from tests.engines.worlds import Worlds

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 96,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
}
SIZES |= {
    "intermediate_size": 192,
    "vocab_size": 528,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
EXPERTS = {
    "moe_intermediate_size": 48,
    "n_routed_experts": 12,
    "num_local_experts": 12,
    "num_experts_per_tok": 2,
}
LATENT = {
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
GROUPS = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}
WIDE = {"head_dim": 16}
# Engine, architecture, what its configuration has besides; what the reason says, and what a rank
# raises.
FAILING: list[tuple[str, str, dict[str, Any], str]] = [
    ("mlx-single", "cohere", WIDE, "but received shape"),
    ("mlx-single", "mixtral", {**WIDE, **EXPERTS}, "but received shape"),
    ("mlx-single", "phi3", WIDE, "but received shape"),
    ("mlx-single", "starcoder2", WIDE, "but received shape"),
    (
        "mlx-single",
        "deepseek_v2",
        {**EXPERTS, **LATENT, **GROUPS},
        "'NoneType' object has no attribute 'get'",
    ),
    (
        "mlx-single",
        "deepseek_v3",
        {**EXPERTS, **LATENT, **GROUPS},
        "the checkpoint lacks model.layers.0.self_attn.emb",
    ),
    (
        "mlx-single",
        "gpt_oss",
        {**EXPERTS, "head_dim": 8},
        "parameters not in model: model.layers.0.mlp.experts",
    ),
    ("mlx-single", "gemma3_text", {"head_dim": 8}, "list index out of range"),
    (
        "hf-single",
        "minimax",
        {**EXPERTS, "head_dim": 8, "block_size": 8},
        "MiniMax uses cache of its own",
    ),
    (
        "hf-pipeline",
        "longcat_flash",
        {**EXPERTS, **LATENT, "num_layers": 2},
        "has 2 layers, but num_hidden_layers of its configuration is 4",
    ),
]
# Of these it is not the library that raises.
OURS = {"deepseek_v2", "deepseek_v3", "longcat_flash"}


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """One pool for all."""
    with Worlds() as found:
        yield found


@pytest.fixture(scope="module")
def rehearsals() -> Iterator[Rehearsals]:
    """One process for all but those tests that ask for one of their own."""
    with Rehearsals() as found:
        yield found


@pytest.fixture
def forked(rehearsals: Rehearsals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever rehearses does it in a fork."""
    monkeypatch.setattr(rehearsal, "ask", rehearsals.ask)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test rests on what another found."""
    monkeypatch.setenv(rehearsal.VARIABLE, str(tmp_path / "rehearsals"))
    return tmp_path / "rehearsals"


def saved(kind: str, place: Path, **sizes: Any) -> Path:
    """A model as `save_pretrained` of transformers writes it, with random numbers and no
    tokenizer.
    """
    transformers: Any = pytest.importorskip("transformers")
    if kind.startswith("longcat"):
        sizes = {key: value for key, value in sizes.items() if key != "num_hidden_layers"}
    config = transformers.CONFIG_MAPPING[kind](**sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(place / kind)
    return place / kind


def arguments(**given: Any) -> dict[str, Any]:
    """Of a session in token ids."""
    defaults = {key: argument.default for key, argument in READY["hf-single"].arguments.items()}
    return {**defaults, "prompts": [[20, 21, 22]], "max_new_tokens": 2, **given}


@pytest.mark.long
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("engine", "kind", "sizes", "says"), FAILING, ids=[f"{one[0]}-{one[1]}" for one in FAILING]
)
def test_what_is_refused_fails_in_a_rank(
    worlds: Worlds, engine: str, kind: str, sizes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """The reason is what every rank raises where nobody refuses."""
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    folder = saved(kind, tmp_path, **SIZES | sizes)
    refuses = READY[engine].refuses
    assert refuses is not None
    why = refuses(arguments(), {"model": folder}, 1)
    assert says in why
    assert (
        "refuses" if kind in OURS else "fails on"
    ) + " this model (tested without weights)" in why
    error = worlds.run(engine, size=1, model=folder, **asked()).error(0)
    assert error is not None
    assert says in " ".join(str(error.event.values["message"]).split())


# Of each whether the plan fails.
PLANS = [
    ("doge", {}, True),
    ("arcee", {}, False),
    ("qwen2_moe", {**EXPERTS, "num_experts": 12}, False),
]


@pytest.mark.long
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("kind", "sizes", "fails"), PLANS, ids=[one[0] for one in PLANS])
def test_a_plan_by_which_a_model_cannot_be_shared_out_is_refused(
    worlds: Worlds, kind: str, sizes: dict[str, Any], fails: bool, tmp_path: Path
) -> None:
    """transformers' plan for Doge leaves what its mask is made of whole, and every rank raises.

    Other plans hold.
    """
    folder = saved(kind, tmp_path, **SIZES | sizes)
    refuses = READY["hf-tensor"].refuses
    assert refuses is not None
    why = refuses(arguments(), {"model": folder}, 2)
    assert bool(why) == fails
    assert ("(modeling_doge.py: " in why) == fails
    history = worlds.run("hf-tensor", size=2, model=folder, **asked())
    assert [history.error(rank) is not None for rank in range(2)] == [fails, fails]


BASES = {"layer_rope_theta": [1e4, 1e4, 1e6, 1e6], "sliding_window": 8}


@pytest.mark.long
@pytest.mark.usefixtures("forked")
def test_each_stage_has_the_bases_of_rotation_of_its_own_layers(
    worlds: Worlds, tmp_path: Path
) -> None:
    """The second stage took those of the first layers, or its two bases for its two layers."""
    folder = saved("granite_swa", tmp_path, **SIZES | BASES)
    assert rehearsal.complaint("hf-pipeline", folder, ranks=2, dtype="float32") == ""
    found = {}
    for engine, size in (("hf-single", 1), ("hf-pipeline", 2)):
        history = worlds.run(engine, size=size, model=folder, **asked())
        assert [history.error(rank) for rank in range(size)] == [None] * size
        found[engine] = np.load(worlds.kept[size - 1, "prefill.logits.0"])
    np.testing.assert_allclose(found["hf-pipeline"], found["hf-single"], rtol=0, atol=1e-4)


@pytest.mark.whole
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("engine", "size"), [("hf-single", 1), ("hf-tensor", 2), ("hf-pipeline", 2)]
)
def test_the_decoder_of_a_model_of_text_and_images_is_run(
    worlds: Worlds, engine: str, size: int, tmp_path: Path
) -> None:
    """Qwen3.5 as it is published: the configuration of all of it was taken for that of its text,
    and refused.
    """
    transformers: Any = pytest.importorskip("transformers")
    sizes = {key: value for key, value in SIZES.items() if key != "pad_token_id"}
    linear = {"linear_num_key_heads": 4, "linear_num_value_heads": 4}
    text = {**sizes, **linear, **WIDE, "layer_types": ["linear_attention", "full_attention"] * 2}
    config = transformers.Qwen3_5Config(text_config=text)
    assert "vocab_size" not in config.to_dict()
    model = transformers.Qwen3_5ForCausalLM(config.get_text_config())
    model.save_pretrained(tmp_path)
    config.save_pretrained(tmp_path)
    refuses = READY[engine].refuses
    assert refuses is not None
    assert refuses(arguments(), {"model": tmp_path}, size) == ""
    history = worlds.run(engine, size=size, model=tmp_path, **asked())
    assert [history.error(rank) for rank in range(size)] == [None] * size


@pytest.mark.long
@pytest.mark.usefixtures("forked")
def test_heads_that_no_rank_gets_a_part_of_are_not_counted(worlds: Worlds, tmp_path: Path) -> None:
    """OLMo 2 gathers queries and keys before it norms them: 2 KV heads over 3 ranks were refused,
    and are computed.
    """
    folder = saved("olmo2", tmp_path, **SIZES | {"num_key_value_heads": 2})
    refuses = READY["hf-tensor"].refuses
    assert refuses is not None
    assert refuses(arguments(), {"model": folder}, 3) == ""
    found = []
    for engine, size in (("hf-single", 1), ("hf-tensor", 3)):
        history = worlds.run(engine, size=size, model=folder, **asked())
        assert [history.error(rank) for rank in range(size)] == [None] * size
        found.append(np.load(worlds.kept[size - 1, "prefill.logits.0"]))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-4)


HYBRID = {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
}
HYBRID |= {"num_experts": 4, "mamba_d_state": 8, "initializer_range": 0.2}


@pytest.mark.whole
@pytest.mark.usefixtures("forked")
def test_chunks_are_refused_of_a_model_that_begins_anew_with_each(
    worlds: Worlds, tmp_path: Path
) -> None:
    """transformers' Jamba leaves its states out: a world of one said another thing than the same
    prompt read whole.
    """
    folder = saved("jamba", tmp_path, **SIZES | HYBRID)
    refuses = READY["hf-single"].refuses
    assert refuses is not None
    for given, is_refused in (
        ({"prefill_chunk": 8}, True),
        ({"envelope": "keep"}, True),
        ({"envelope": "unchunked"}, False),
    ):
        why = refuses(arguments(**given), {"model": folder}, 1)
        assert (
            "the hf engines refuse to read prompts of this model in chunks" in why
        ) == is_refused
        assert ("ignores the recurrent_states of layer 0" in why) == is_refused
    found, longer = [], {"prompts": [list(range(20, 40))]}
    for chunk in (8, 0):
        assert (
            worlds.run(
                "hf-single", size=1, model=folder, **asked() | longer | {"prefill_chunk": chunk}
            ).error(0)
            is None
        )
        found.append(np.load(worlds.kept[0, "prefill.logits.0"]))
    # The same sums in another order: 1.2e-5 apart on one processor, and the defect is far beyond
    # that.
    noise = np.abs(found[0][:8] - found[1][:8]).max()
    assert noise < 1e-4
    assert np.abs(found[0][8] - found[1][8]).max() > max(1e-3, 10 * noise)


def asked() -> dict[str, Any]:
    return {"prompts": [list(range(20, 29))], "max_new_tokens": 2, "prefill_chunk": 8}


# What transformers 5.24.0 does in DeepSeek-V4's constructors and in Dory's forward pass.
ALTERED = """
import copy, json, sys
sys.path.insert(0, sys.argv[1])
from inference_inside import rehearsal
from transformers.models.llama import modeling_llama
kind = modeling_llama.LlamaMLP
made, ran = kind.__init__, kind.forward
def converted(self, config):
    made(self, config)
    self.float()
def copied(self, state):
    return ran(self, copy.deepcopy(state))
kind.__init__, kind.forward = converted, copied
print(json.dumps(rehearsal.complaints(json.load(sys.stdin))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "size"), [("hf-single", 1), ("hf-tensor", 2)])
def test_what_only_tensors_without_numbers_cannot_do_is_no_complaint(
    engine: str, size: int, tmp_path: Path
) -> None:
    """Modules that are converted in a constructor, and tensors that are copied: a rank does both,
    and the rehearsal said that transformers fails on the model.
    """
    pytest.importorskip("transformers")
    folder = str(write("llama", tmp_path / "model"))
    question = {"engine": engine, "folder": folder, "dtype": "float32", "sizes": [size]}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALTERED, str(rehearsal.INSIDE.parent)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    complaints = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])
    assert complaints == dict.fromkeys(complaints)


@pytest.mark.slow
def test_a_prompt_in_chunks_is_not_refused_for_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model that asks for numbers says nothing of chunks, which were refused."""
    pytest.importorskip("torch")
    rehearsed: Any = importlib.import_module("harness.engines.inference_inside.rehearsal_hf")

    def loaded(*_given: Any, **_named: Any) -> Any:
        raise rehearsed.fake_tensor.UnsupportedOperatorException("aten.item")

    monkeypatch.setattr(rehearsed, "_loaded", loaded)
    rehearsed.in_chunks("nowhere", dtype="float32")


@pytest.mark.whole
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    "engine", ["hf-single", "hf-tensor", "hf-pipeline", "mlx-single", "mlx-tensor", "mlx-pipeline"]
)
def test_what_an_engine_runs_is_not_refused(engine: str, tmp_path: Path) -> None:
    """One that is made here, with experts, rehearsed like any other."""
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    assert (
        rehearsal.complaint(
            engine, write("qwen3-moe", tmp_path / "model"), ranks=3, dtype="float32"
        )
        == ""
    )


@pytest.mark.whole
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("engine", ["hf-single", "mlx-single"])
@pytest.mark.parametrize("harm", ["missing", "unexpected", "mismatched"])
def test_a_checkpoint_that_does_not_fit_its_configuration_is_refused(
    engine: str, harm: str, tmp_path: Path
) -> None:
    """A tensor that is missing would be random numbers: by the header alone it is known, and no
    number is read.
    """
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    folder = spoiled(tmp_path, harm)
    refuses = READY[engine].refuses
    assert refuses is not None
    why = refuses(arguments(), {"model": folder}, 1)
    assert " this model (tested without weights)" in why


def spoiled(place: Path, harm: str) -> Path:
    """A Llama whose checkpoint is not what its configuration says."""
    folder = write("llama", place / "llama")
    shapes = {name: one.shape for name, one in MODELS["llama"].tensors().items()}
    name = "model.layers.2.mlp.up_proj.weight"
    if harm == "missing":
        del shapes[name]
    elif harm == "unexpected":
        shapes["model.layers.2.mlp.up_proj.bias"] = shapes[name][:1]
    else:
        shapes[name] = (shapes[name][0] + 8, shapes[name][1])
    arrays = {one: np.zeros(shape, np.float32) for one, shape in shapes.items()}
    (folder / "model.safetensors").write_bytes(safetensors(arrays))
    index = {"metadata": {}, "weight_map": dict.fromkeys(sorted(shapes), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.whole
def test_what_was_found_is_found_again_without_a_process(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By files, code and releases: another header is asked anew."""
    pytest.importorskip("mlx.core")
    folder = spoiled(tmp_path / "one", "missing")
    first = rehearsal.complaint("mlx-single", folder, ranks=1, dtype="float32")
    assert len(list(own_cache.glob("*.json"))) == 1
    monkeypatch.setattr(rehearsal.sys, "executable", str(tmp_path / "nowhere"))
    assert rehearsal.complaint("mlx-single", folder, ranks=4, dtype="float32") == first != ""
    other = spoiled(tmp_path / "other", "mismatched")
    assert (
        rehearsal.complaint("mlx-single", other, ranks=1, dtype="float32") == ""
    )  # nobody can be asked: the rank says
    assert len(list(own_cache.glob("*.json"))) == 1


def test_a_model_that_is_made_here_is_not_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table is tested; with a tensor more or less it is any other model."""
    monkeypatch.setattr(rehearsal, "complaint", lambda *_args, **_named: "asked")
    folder = write("llama", tmp_path / "made")
    assert rehearsal.refusal("hf-single", folder, ranks=1, dtype="float32") == ""
    assert "asked" in rehearsal.refusal(
        "hf-single", spoiled(tmp_path, "missing"), ranks=1, dtype="float32"
    )


def test_a_layer_that_is_more_than_a_matrix_stays_whole() -> None:
    """Llama 4's router is a matrix by its class, and gives two things: in parts it gave one, and
    the model failed.
    """
    torch = pytest.importorskip("torch")
    orders = importlib.import_module("harness.engines.inference_inside.torch_decoder")

    class Router(torch.nn.Linear):  # type: ignore[name-defined,misc]
        def forward(self, given: Any) -> Any:
            return super().forward(given), "more"

    model = torch.nn.ModuleList([Router(4, 4), torch.nn.Linear(4, 4)])
    with orders.split(model, 2):
        assert model[0](torch.ones(1, 4))[1] == "more"
        assert "forward" in vars(model[1])
    assert "forward" not in vars(model[1])
