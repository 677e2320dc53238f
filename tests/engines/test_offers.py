"""What engines offer is what their libraries say, and what is refused does fail."""

from __future__ import annotations

import importlib
import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engines import offers as installed_offers
from harness.engines.models import MODELS, ModelError, config_of, write
from harness.engines.models.catalogue import LLAMA, Recipe, _dense
from harness.engines.offers import Offer, offers, refusal, uneven
from harness.subjects import READY
from tests.engines.worlds import Worlds


def llama(**changed: Any) -> Recipe:
    """A Llama of other sizes."""
    shape = replace(LLAMA, **changed)
    return Recipe(
        does="",
        **_dense("llama", "LlamaForCausalLM", shape, hidden_act="silu", attention_bias=False),
    )


ODD = {"two-layers": llama(layers=2), "odd-width": llama(inner=190)}
# Engine, model, ranks; what the refusal says; what is raised where nobody refuses.
REFUSED = [
    (
        "hf-tensor",
        "gpt2",
        2,
        "has no tensor-parallel plan for the layers of gpt2",
        "has no `tp_plan`",
    ),
    (
        "hf-tensor",
        "llama-2-kv",
        3,
        "2 KV heads cannot be split over 3 ranks",
        "is invalid for input of size",
    ),
    (
        "hf-tensor",
        "llama-2-kv",
        4,
        "2 KV heads cannot be split over 4 ranks",
        "is invalid for input of size",
    ),
    ("hf-pipeline", "two-layers", 3, "2 layers cannot be split over 3 ranks", ""),
    (
        "mlx-tensor",
        "gpt2",
        2,
        "cannot split the layers of gpt2",
        "does not support tensor parallelism",
    ),
    (
        "mlx-tensor",
        "llama-2-kv",
        3,
        "2 KV heads cannot be split over 3 ranks",
        "Cannot shard the output of size 16",
    ),
    (
        "mlx-tensor",
        "llama-2-kv",
        4,
        "2 KV heads cannot be split over 4 ranks",
        "Cannot infer the shape of an empty array",
    ),
    (
        "mlx-tensor",
        "odd-width",
        3,
        "intermediate_size 190 cannot be split over 3 ranks",
        "Cannot shard the output of size 190",
    ),
    (
        "mlx-tensor",
        "gemma2",
        2,
        "cannot split the layers of gemma2",
        "does not support tensor parallelism",
    ),
    (
        "mlx-tensor",
        "mixtral",
        2,
        "cannot split the layers of mixtral",
        "does not support tensor parallelism",
    ),
    ("mlx-pipeline", "llama", 2, "has no pipeline for llama", "does not support pipelining"),
    ("mlx-pipeline", "gpt2", 2, "has no pipeline for gpt2", "does not support pipelining"),
    ("mlx-pipeline", "gemma2", 2, "has no pipeline for gemma2", "does not support pipelining"),
    ("mlx-pipeline", "mixtral", 2, "has no pipeline for mixtral", "does not support pipelining"),
    ("mlx-pipeline", "minimax", 2, "has no pipeline for minimax_m2", "does not support pipelining"),
]
ALONE_IN_A_RING = """
import json, os, socket, tempfile
import mlx.core as mx
with socket.socket() as place:
    place.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % place.getsockname()[1]
with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
    json.dump([[address]], hosts)
    hosts.flush()
    os.environ |= {"MLX_HOSTFILE": hosts.name, "MLX_RANK": "0"}
    print("joining", flush=True)
    mx.distributed.init(strict=True, backend="ring")
"""
ALONE = "MLX's ring needs at least two ranks"
# The lines that refuse in a rank, without which the engine is on its own.
IN_THE_RANK = (
    ("hf.py", "            refuse_tensor(config, self.size)\n", ""),
    (
        "mlx.py",
        "            refuse(skeleton, config, sharding=self._sharding, size=self.size)\n",
        "",
    ),
    ("stages.py", "        if number < self._size:\n", "        if False:\n"),
)


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """One pool for all."""
    with Worlds() as found:
        yield found


def folder_of(model: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of the catalogue or of this file, written."""
    if model in ODD:
        monkeypatch.setitem(MODELS, model, ODD[model])
    return write(model, place / model)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "model", "ranks", "says", "raised"), REFUSED)
def test_what_is_not_offered_is_refused(
    engine: str, model: str, ranks: int, says: str, raised: str
) -> None:
    """The reason names what cannot be split, or what the library has not."""
    del raised
    config = {**MODELS, **ODD}[model].config()
    assert says in refusal(engine, config, ranks=ranks)
    assert refusal(engine.partition("-")[0] + "-single", config, ranks=ranks) == ""


@pytest.mark.slow
def test_every_refused_cell_of_the_table_is_one_that_is_shown_to_fail() -> None:
    """By its engine, architecture and reason.

    What an architecture lacks it lacks at every world size.
    """
    shown = {
        (engine, MODELS[model].config()["model_type"], says)
        for engine, model, _, says, _ in REFUSED
        if model in MODELS
    }
    for model, engine, ranks in product(MODELS, installed_offers.ENGINES, (1, 2, 3, 4)):
        config = MODELS[model].config()
        why = refusal(engine, config, ranks=ranks)
        assert (
            not why
            or ALONE in why
            or any(
                (engine, config["model_type"]) == (name, kind) and says in why
                for name, kind, says in shown
            )
        ), (model, engine, ranks, why)


@pytest.mark.whole
def test_a_ring_of_one_rank_waits_for_itself() -> None:
    """So the cells of mlx-tensor and mlx-pipeline with one rank never begin, unless they are
    refused.
    """
    pytest.importorskip("mlx.core")
    with subprocess.Popen(
        [sys.executable, "-c", ALONE_IN_A_RING], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "joining\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("engine", "kind", "says"),
    [
        (
            "hf-pipeline",
            "opt",
            (
                "has embed_positions (OPTLearnedPositionalEmbedding), whose forward takes"
                " attention_mask, "
            ),
        ),
        (
            "hf-pipeline",
            "gemma3n_text",
            "has per_layer_model_projection, a matrix outside its layers",
        ),
        ("hf-tensor", "opt", "has no tensor-parallel plan for the layers of opt; use hf-single"),
        ("hf-single", "opt", ""),
        ("hf-pipeline", "bloom", ""),
        ("hf-pipeline", "gpt2", ""),
    ],
)
def test_a_decoder_that_is_not_only_layers_is_refused_before_anything_runs(
    engine: str, kind: str, says: str
) -> None:
    """By the library's files: what stands beside the layers. Others are left alone.

    Where tensors are not split, hf-pipeline is named only if it takes the decoder.
    """
    found = refusal(engine, {"model_type": kind, "num_hidden_layers": 2}, ranks=2)
    assert says in found if says else not found


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [("llama", True), ("granitemoe", False), ("olmo2", False), ("phi3", False), ("phi", True)],
)
def test_heads_are_counted_where_a_plan_gives_each_rank_some(kind: str, is_refused: bool) -> None:
    """Plans that leave attention whole, or gather what was split, run 6 KV heads over 4 ranks."""
    config = {
        "model_type": kind,
        "num_attention_heads": 12,
        "num_key_value_heads": 6,
        "num_hidden_layers": 4,
    }
    assert ("6 KV heads cannot be split" in refusal("hf-tensor", config, ranks=4)) == is_refused
    assert refusal("hf-tensor", config, ranks=2) == ""


@pytest.mark.parametrize(("engine", "ranks"), [("hf-single", 1), ("hf-pipeline", 2)])
def test_a_number_for_each_layer_is_no_bug_of_ours(engine: str, ranks: int) -> None:
    """Some configurations give a list where others give a number."""
    config = {
        "model_type": "hunyuan_v1_moe",
        "architectures": ["HunYuanMoEV1ForCausalLM"],
        "num_experts": [8, 8],
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    assert refusal(engine, config, ranks=ranks) == ""
    assert isinstance(refusal("hf-tensor", config, ranks=2), str)


@pytest.mark.parametrize("kind", ["gpt_oss", "diffllama", "bamba", "falcon_h1", "hunyuan_v1_dense"])
def test_a_plan_for_the_head_alone_leaves_heads_and_experts_whole(kind: str) -> None:
    """transformers ran them, and they were refused.

    What is whole on every rank need not be divided by their number. In transformers 5.24.0 these
    plans split the embedding too.
    """
    config = {
        "model_type": kind,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
    }
    config |= {"num_local_experts": 4, "intermediate_size": 48}
    assert refusal("hf-tensor", config, ranks=4, dtype="bfloat16") == ""


def of_files(folder: Path, kind: str, plan: str) -> Offer:
    """What is read of a release of transformers that has one architecture, with a plan."""
    auto = folder / "models" / "auto" / "modeling_auto.py"
    auto.parent.mkdir(parents=True)
    auto.write_text(f'MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = [\n    ("{kind}", "OneForCausalLM"),\n)')
    place = folder / "models" / "one"
    place.mkdir()
    (place / "modeling_one.py").write_text("class OneForCausalLM(PreTrained):\n    pass\n")
    (place / "configuration_one.py").write_text(
        f'class One(Config):\n    model_type = "{kind}"\n    base_model_tp_plan = {plan}\n'
    )
    return dict(vars(installed_offers)["_of_transformers"](folder))[kind]


@pytest.mark.parametrize(
    ("plan", "tensor", "heads", "head"),
    [
        ("None", False, True, False),
        ('{"embed_tokens": "embedding_rowwise"}', False, True, True),
        ('{"layers.*.self_attn.q_proj": "colwise"}', True, True, False),
        ('{"embed_tokens": "embedding_rowwise", "layers.*.mlp": "rowwise"}', True, False, False),
        ("made_elsewhere()", True, True, False),
    ],
)
def test_a_plan_splits_layers_where_a_rule_names_each_layer(
    plan: str, tensor: bool, heads: bool, head: bool, tmp_path: Path
) -> None:
    """transformers 5.24.0 gave GPT-OSS a plan for the embedding alone: its experts, which are whole
    on every rank, were counted as if they were split.
    """
    found = of_files(tmp_path, "one", plan)
    assert (found.tensor, found.heads, found.head) == (tensor, heads, head)


WRAPPED = {"text_config": {"model_type": "llama", "num_attention_heads": 4}}


@pytest.mark.parametrize(
    ("engine", "kind", "says"),
    [
        (
            "hf-single",
            {"model_type": "llava", **WRAPPED},
            "no causal language model 'llava', which wraps a llama",
        ),
        ("hf-single", {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, ""),
        (
            "hf-tensor",
            {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "n_head": 4}},
            "",
        ),
        ("hf-tensor", {"model_type": "gpt2"}, "no tensor-parallel plan for the layers of gpt2"),
        (
            "mlx-single",
            {"model_type": "kosmos-2", **WRAPPED},
            "no causal language model 'kosmos-2', which wraps a llama",
        ),
        (
            "mlx-single",
            {"model_type": "qwen2_vl", "text_config": {"model_type": "qwen2_vl_text"}},
            "",
        ),
        (
            "mlx-single",
            {"model_type": "bailing_hybrid", "architectures": ["BailingMoeV3ForCausalLM"]},
            "",
        ),
        (
            "hf-single",
            {"model_type": "bert"},
            "BertLMHeadModel also attends to later tokens",
        ),
        ("hf-single", {"model_type": "bert", "is_decoder": True}, ""),
        (
            "hf-single",
            {"model_type": "rembert"},
            "RemBertForCausalLM also attends to later tokens",
        ),
        ("hf-single", {"model_type": "trocr"}, ""),
    ],
)
def test_libraries_go_by_the_kind_of_the_whole_and_by_what_makes_a_decoder(
    engine: str, kind: dict[str, Any], says: str
) -> None:
    """An inner kind that a library has is none that it loads.

    An encoder reads a prompt otherwise in chunks.
    """
    found = refusal(engine, kind, ranks=2)
    assert says in found if says else not found


def test_experts_in_16_bits_are_refused_where_mlx_has_only_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MLX has no such product on a CPU, and raises in the first layer.

    In float32, and without experts, it computes.
    """
    for is_without, says in ((True, "only in float32 on a CPU"), (False, "")):
        monkeypatch.setattr(installed_offers, "is_without_gpu", lambda found=is_without: found)
        found = refusal("mlx-tensor", MODELS["minimax"].config(), ranks=2, dtype="bfloat16")
        assert says in found if says else not found
        assert not refusal("mlx-tensor", MODELS["minimax"].config(), ranks=2)
        assert not refusal("mlx-tensor", MODELS["llama"].config(), ranks=2, dtype="bfloat16")


def test_experts_whose_rows_are_not_a_multiple_of_16_bytes_are_refused() -> None:
    """48 wide over 4 ranks is 24 bytes a row in bfloat16, in which transformers crashes, and 48 in
    float32.
    """
    config = MODELS["qwen3-moe"].config()
    found = {
        (ranks, dtype): uneven("hf-tensor", config, ranks=ranks, dtype=dtype)
        for ranks in (2, 3, 4)
        for dtype in ("float32", "bfloat16")
    }
    assert {place for place, why in found.items() if why} == {(4, "bfloat16")}
    assert "12 of an expert's 48 in bfloat16 on each of 4 ranks" in found[4, "bfloat16"]
    assert uneven("hf-pipeline", config, ranks=4, dtype="bfloat16") == ""


@pytest.mark.whole
@pytest.mark.parametrize(("engine", "model", "ranks", "says", "raised"), REFUSED)
def test_what_is_refused_fails_without_the_refusal(
    worlds: Worlds,
    engine: str,
    model: str,
    ranks: int,
    says: str,
    raised: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the refusing lines taken out ranks raise what the library raises.

    With them, what they say.
    """
    del says
    if engine.startswith("mlx"):
        pytest.importorskip("mlx.core")
    folder = folder_of(model, tmp_path, monkeypatch)
    files = READY[engine].files()
    for name, line, instead in IN_THE_RANK:
        text = files[f"inference/{name}"].decode()
        assert line in text
        files[f"inference/{name}"] = text.replace(line, instead).encode()
    alone = worlds.run(engine, size=ranks, model=folder, files=files)
    refused = worlds.run(engine, size=ranks, model=folder)
    for history, kind in ((alone, None), (refused, "ValueError")):
        errors = [history.error(rank) for rank in range(ranks)]
        ends = [one.event.values for one in errors if one is not None]
        assert ends
        assert kind is None or {end["type"] for end in ends} == {kind}
    if raised:
        # A rank may be ended before it raises, because another one has failed.
        first = [alone.error(rank) for rank in range(ranks)]
        assert any(raised in str(one.event.values["message"]) for one in first if one is not None)


@pytest.mark.parametrize("key", ["num_hidden_layers", "n_layer", "n_layers", "num_layers"])
def test_the_number_of_layers_is_read_as_an_architecture_calls_it(key: str) -> None:
    """As GPT-2, MPT and GPT-Neo do.

    By a name that nobody knows it is left to the rank, and no number is made up.
    """
    assert uneven("hf-pipeline", {key: 3}, ranks=3) == ""
    assert "3 layers cannot be split over 4 ranks" in uneven("hf-pipeline", {key: 3}, ranks=4)
    assert uneven("hf-pipeline", {"depth": 3}, ranks=4) == ""


@pytest.mark.whole
def test_what_was_read_is_what_the_libraries_say() -> None:
    """Each architecture with its plan, shard and pipeline, read from files, is what an import
    tells.
    """
    from mlx_lm.models.pipeline import PipelineMixin
    from mlx_lm.utils import MODEL_REMAPPING
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    assert offers("hf").keys() == CAUSAL.keys()
    plans = {kind: getattr(CONFIG_MAPPING[kind], "base_model_tp_plan", None) for kind in CAUSAL}
    planned = {kind for kind, plan in plans.items() if any("*" in name for name in plan or ())}
    assert {kind for kind, one in offers("hf").items() if one.tensor} == planned
    assert len(planned) > 50
    seen = 0
    for kind, one in offers("mlx").items():
        try:
            module = importlib.import_module(f"mlx_lm.models.{MODEL_REMAPPING.get(kind, kind)}")
        # One needs a package of its own, and says so by leaving.
        except (Exception, SystemExit):  # noqa: BLE001, S112
            continue
        # A model may come from another module, with the layers that are split there.
        homes = {
            sys.modules[above.__module__]
            for above in module.Model.__mro__
            if "mlx_lm" in above.__module__
        }
        here = [
            (home.__name__, found)
            for home in homes
            for found in vars(home).values()
            if inspect.isclass(found)
        ]
        classes = [found for home, found in here if found.__module__ == home]
        mixed = any(
            issubclass(found, PipelineMixin) and found is not PipelineMixin for found in classes
        )
        assert (hasattr(module.Model, "shard"), mixed) == (one.tensor, one.pipeline), kind
        seen += 1
    assert seen > 100


def test_a_library_that_is_not_understood_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a release keeps its tables elsewhere, that is said instead of refusing every model."""
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None
    assert spec.submodule_search_locations
    shutil.copy(Path(spec.submodule_search_locations[0], "utils.py"), tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "llama.py").write_text("class Model: ...\nclass ModelArgs: ...\n")
    moved = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(installed_offers.importlib.util, "find_spec", lambda _name: moved)
    offers.cache_clear()
    try:
        with pytest.raises(ModelError, match="cannot find out which models"):
            refusal("mlx-tensor", MODELS["llama"].config(), ranks=2)
    finally:
        offers.cache_clear()


@pytest.mark.whole
def test_a_key_that_mlx_lm_cannot_do_without_is_named() -> None:
    """transformers 5 writes rope_parameters, and mlx-lm's class for GLM-4.5 reads the keys of
    before.
    """
    config = MODELS["glm4-moe"].config()
    assert refusal("mlx-tensor", config, ranks=2) == ""
    del config["rope_theta"]
    assert "needs rope_theta in the config.json of glm4_moe" in refusal(
        "mlx-tensor", config, ranks=2
    )
    assert refusal("hf-tensor", config, ranks=2) == ""


def test_a_folder_without_a_configuration_is_named(tmp_path: Path) -> None:
    """What is not a model's folder is said to be none."""
    with pytest.raises(ModelError, match=r"has no readable config\.json"):
        config_of(tmp_path)
    assert Offer() == Offer(single=False, tensor=False, pipeline=False)
