"""The models that are made by rule: name to configuration and tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.engines.models import families
from harness.engines.models.families import EXPERTS, HEAD, HEADS, KV_HEADS, Shape
from harness.engines.models.vocabulary import SIZE
from harness.engines.models.weights import DrawnTensor


class ModelError(Exception):
    """A model that cannot be made, found or described.

    The message says what, where and what to do.
    """


MIXTRAL = ("w1", "w3", "w2")
QWEN = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model that can be made.

    Attributes:
        does: what it has that others have not, in words.
        seed: what its numbers are drawn from, with each tensor's name.
        config: makes what stands in config.json.
        tensors: makes name to tensor of the checkpoint.
        pinned: of a trained model the file of its weights, compressed by xz, and the sha256 of what
            is in it.
    """

    does: str
    config: Callable[[], dict[str, Any]]
    tensors: Callable[[], dict[str, DrawnTensor]]
    seed: int = 1
    pinned: tuple[Path, str] | None = None


def _dense(model_type: str, architecture: str, shape: Shape, **further: Any) -> dict[str, Any]:
    return {
        "config": lambda: families.common(model_type, architecture, shape) | further,
        "tensors": lambda: families.decoder(
            shape, dict(families.attention(shape)) | dict(families.dense(shape))
        ),
    }


def _sparse(
    model_type: str,
    architecture: str,
    shape: Shape,
    *,
    prefix: str,
    names: tuple[str, str, str],
    bias: str = "",
    **further: Any,
) -> dict[str, Any]:
    def tensors() -> dict[str, DrawnTensor]:
        layer = dict(families.attention(shape)) | dict(families.experts(prefix, names, shape))
        if bias:
            layer[bias] = DrawnTensor(shape=(EXPERTS,), deviation=0.05)
        return families.decoder(shape, layer)

    return {
        "config": lambda: families.common(model_type, architecture, shape) | further,
        "tensors": tensors,
    }


def _first_dense(
    model_type: str, architecture: str, shape: Shape, *, inner: int, **further: Any
) -> dict[str, Any]:
    """Return a first layer without experts, and in the others one that every token takes beside
    those that are chosen.
    """

    def tensors() -> dict[str, DrawnTensor]:
        sparse = dict(families.attention(shape)) | dict(families.experts("mlp", QWEN, shape))
        sparse |= dict(families.gated("mlp.shared_experts", QWEN, shape))
        sparse["mlp.gate.e_score_correction_bias"] = DrawnTensor(shape=(EXPERTS,), deviation=0.05)
        first = dict(families.attention(shape)) | dict(families.dense(replace(shape, inner=inner)))
        return families.decoder(shape, sparse, first=first)

    config = families.common(model_type, architecture, shape)
    return {"config": lambda: config | {"intermediate_size": inner} | further, "tensors": tensors}


def _gpt2() -> dict[str, Any]:
    shape = Shape(tied=True, heads=12, kv_heads=12)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "dtype": "float32",
        "activation_function": "gelu_new",
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "layer_norm_epsilon": 1e-5,
        "n_ctx": families.LONGEST,
        "n_positions": families.LONGEST,
        "n_embd": shape.width,
        "n_head": shape.heads,
        "n_layer": shape.layers,
        "vocab_size": SIZE,
        "tie_word_embeddings": True,
        **families.SPECIALS,
    }
    return {"config": lambda: config, "tensors": lambda: families.gpt2(shape)}


LLAMA = Shape()
# mlx-lm divides the width by the heads where Qwen2 and Mixtral are concerned, and does not look at
# head_dim.
WIDE = Shape(width=HEADS * HEAD)
TIED = replace(LLAMA, tied=True, embedding=families.TIED * families.root(LLAMA.width))
SPARSE = Shape(inner=48)
UNEVEN = replace(LLAMA, layers=5)
YARN = {
    "rope_type": "yarn",
    "type": "yarn",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}

MODELS: dict[str, Recipe] = {
    "llama": Recipe(
        does="grouped KV heads, untied head",
        **_dense(
            "llama",
            "LlamaForCausalLM",
            LLAMA,
            hidden_act="silu",
            attention_bias=False,
            mlp_bias=False,
        ),
    ),
    "llama-tied": Recipe(
        does="the same with a tied head",
        **_dense("llama", "LlamaForCausalLM", TIED, hidden_act="silu", attention_bias=False),
    ),
    "llama-2-kv": Recipe(
        does="two KV heads, which cannot be split over 3 or 4 ranks: refused there",
        **_dense(
            "llama",
            "LlamaForCausalLM",
            replace(LLAMA, kv_heads=2),
            hidden_act="silu",
            attention_bias=False,
        ),
    ),
    "gpt2": Recipe(
        does="biases everywhere, learned positions, fused queries, keys and values, tied head",
        **_gpt2(),
    ),
    "qwen2": Recipe(
        does="biases of queries, keys and values, tied head",
        **_dense(
            "qwen2",
            "Qwen2ForCausalLM",
            replace(
                WIDE, tied=True, bias=True, embedding=families.TIED * families.root(WIDE.width)
            ),
            hidden_act="silu",
        ),
    ),
    "gemma2": Recipe(
        does="soft caps, a sliding window in every other layer, four norms a layer, tied head",
        **_dense(
            "gemma2",
            "Gemma2ForCausalLM",
            # Gemma multiplies embeddings by the root of the width, and adds 1 to the weights of
            # every norm.
            replace(
                TIED,
                embedding=0.5 * families.root(LLAMA.width),
                norm_middle=1.0,
                last_norm_middle=4.0,
                norms=(
                    "input_layernorm",
                    "post_attention_layernorm",
                    "pre_feedforward_layernorm",
                    "post_feedforward_layernorm",
                ),
            ),
            hidden_activation="gelu_pytorch_tanh",
            sliding_window=16,
            query_pre_attn_scalar=HEAD,
            attn_logit_softcapping=20.0,
            final_logit_softcapping=30.0,
        ),
    ),
    "mixtral": Recipe(
        does="12 experts, two for each token",
        **_sparse(
            "mixtral",
            "MixtralForCausalLM",
            replace(WIDE, inner=48),
            prefix="block_sparse_moe",
            names=MIXTRAL,
            hidden_act="silu",
            num_local_experts=EXPERTS,
            num_experts_per_tok=2,
            sliding_window=None,
        ),
    ),
    "qwen3-moe": Recipe(
        does="12 experts, two for each token, norms over each head's queries and keys",
        **_sparse(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            replace(SPARSE, head_norms=(HEAD, HEAD)),
            prefix="mlp",
            names=QWEN,
            hidden_act="silu",
            moe_intermediate_size=SPARSE.inner,
            num_experts=EXPERTS,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        ),
    ),
    "minimax": Recipe(
        does=(
            "12 experts behind a sigmoid router with a bias, norms over all queries and keys"
            " together, half of each head rotated"
        ),
        **_sparse(
            "minimax_m2",
            "MiniMaxM2ForCausalLM",
            replace(SPARSE, head_norms=(HEADS * HEAD, KV_HEADS * HEAD)),
            prefix="block_sparse_moe",
            names=MIXTRAL,
            bias="block_sparse_moe.e_score_correction_bias",
            hidden_act="silu",
            num_local_experts=EXPERTS,
            num_experts_per_tok=2,
            rotary_dim=HEAD // 2,
            shared_intermediate_size=0,
            scoring_func="sigmoid",
            use_qk_norm=True,
        ),
    ),
    "ministral3": Recipe(
        does="rotations scaled by YaRN, queries scaled by position in steps of 16",
        **_dense(
            "ministral3", "Ministral3ForCausalLM", LLAMA, hidden_act="silu", rope_parameters=YARN
        ),
    ),
    "ministral3-5-layers": Recipe(
        does="the same with five layers, of which neither 2 nor 3 nor 4 ranks get equally many",
        **_dense(
            "ministral3", "Ministral3ForCausalLM", UNEVEN, hidden_act="silu", rope_parameters=YARN
        ),
    ),
    "glm4-moe": Recipe(
        does=(
            "a first layer without experts, then 12 behind a sigmoid router with a bias, and one"
            " for every token; half of each head rotated"
        ),
        **_first_dense(
            "glm4_moe",
            "Glm4MoeForCausalLM",
            SPARSE,
            inner=192,
            hidden_act="silu",
            moe_intermediate_size=SPARSE.inner,
            n_routed_experts=EXPERTS,
            n_shared_experts=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            n_group=1,
            topk_group=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.0,
            attention_bias=False,
            use_qk_norm=False,
            partial_rotary_factor=0.5,
            rope_scaling=None,
        ),
    ),
    "recall": Recipe(
        does=(
            "trained: answers each of 256 keys with its own three tokens, by margins of more than 5"
        ),
        **_dense(
            "llama",
            "LlamaForCausalLM",
            LLAMA,
            hidden_act="silu",
            attention_bias=False,
            dtype="bfloat16",
        ),
        pinned=(
            Path(__file__).parent / "recall" / "model.safetensors.xz",
            "630995f28ecd3bdab365586fa38864e6eda91edc0272e8a62dc430661d512279",
        ),
    ),
}
