"""Models that are made by rule: name to configuration and tensors, and the architectures that they
are of.

Each is as small as its engines bear. What is split has 24 heads, 12 KV heads, 12 experts and widths
divisible by 12, so that 2, 3 and 4 ranks are legal; four layers give each of four ranks one, and
three an uneven split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.engines.models.vocabulary import BEGIN, END, PAD, SIZE

HEADS = 24
KV_HEADS = 12
HEAD = 8
EXPERTS = 12
LAYERS = 4
LONGEST = 512
# Of a tied head: logits then deviate by some units, like those of an untied one.
TIED_GAIN = 3.0
SPECIALS = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}


class ModelError(Exception):
    """Raised of a model that cannot be made, found or described.

    The message says what, where and what to do.
    """


@dataclass(frozen=True, kw_only=True)
class DrawnTensor:
    """Tensor to be drawn.

    Attributes:
        shape: its sizes.
        middle: what its elements lie around.
        deviation: their standard deviation; 0 for a constant.
    """

    shape: tuple[int, ...]
    deviation: float
    middle: float = 0.0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a model.

    Attributes:
        width: of the hidden state.
        inner: of the feed-forward part; with experts, of each.
        tied: whether the head is the embedding.
        bias: whether queries, keys and values have one.
        norms: per layer, the names of the norms over the hidden state.
        head_norms: sizes of `q_norm` and `k_norm`; nothing where there are none.
        embedding: deviation of the embedding.
        norm_middle, last_norm_middle: what weights of a norm and of the last norm lie around.
    """

    width: int = 96
    inner: int = 192
    layers: int = LAYERS
    heads: int = HEADS
    kv_heads: int = KV_HEADS
    tied: bool = False
    bias: bool = False
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    head_norms: tuple[int, int] | None = None
    embedding: float = 1.0
    norm_middle: float = 1.0
    last_norm_middle: float = 1.0


def root(size: int) -> float:
    """1 / sqrt(size), by operations that are rounded correctly on every machine; a power is not."""
    return 1.0 / math.sqrt(size)


def matrix(rows: int, columns: int, *, gain: float = 1.0) -> DrawnTensor:
    """Return a matrix whose products with a state deviate by so much of the state's deviation."""
    return DrawnTensor(shape=(rows, columns), deviation=gain * root(columns))


def common(model_type: str, architecture: str, shape: Shape) -> dict[str, Any]:
    """Return what the configurations of all but GPT-2 have in common."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "dtype": "float32",
        "vocab_size": SIZE,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": HEAD,
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": shape.tied,
        **SPECIALS,
    }


def attention(shape: Shape) -> Iterator[tuple[str, DrawnTensor]]:
    """Yield the tensors of a layer but for its feed-forward part, below `model.layers.N`."""
    # Queries and keys are drawn wide: attention that looks everywhere alike would hide positions
    # that are off.
    sizes = {
        "q": (shape.heads * HEAD, 1.6),
        "k": (shape.kv_heads * HEAD, 1.6),
        "v": (shape.kv_heads * HEAD, 1.0),
    }
    for name, (rows, gain) in sizes.items():
        yield f"self_attn.{name}_proj.weight", matrix(rows, shape.width, gain=gain)
        if shape.bias:
            yield f"self_attn.{name}_proj.bias", DrawnTensor(shape=(rows,), deviation=0.3)
    yield "self_attn.o_proj.weight", matrix(shape.width, shape.heads * HEAD)
    for name, size in zip("qk", shape.head_norms or (), strict=False):
        yield f"self_attn.{name}_norm.weight", DrawnTensor(shape=(size,), deviation=0.3, middle=1.0)
    norm = DrawnTensor(shape=(shape.width,), deviation=0.2, middle=shape.norm_middle)
    yield from ((f"{name}.weight", norm) for name in shape.norms)


def dense(shape: Shape) -> Iterator[tuple[str, DrawnTensor]]:
    """Yield a feed-forward part with a gate."""
    yield from gated("mlp", ("gate_proj", "up_proj", "down_proj"), shape)


def gated(
    prefix: str, names: tuple[str, str, str], shape: Shape
) -> Iterator[tuple[str, DrawnTensor]]:
    """Gate and up `[inner, width]`, down `[width, inner]`."""
    for name in names[:2]:
        yield f"{prefix}.{name}.weight", matrix(shape.inner, shape.width, gain=1.4)
    yield f"{prefix}.{names[2]}.weight", matrix(shape.width, shape.inner, gain=1.4)


def experts(
    prefix: str, names: tuple[str, str, str], shape: Shape
) -> Iterator[tuple[str, DrawnTensor]]:
    """Yield a router and its experts."""
    # Drawn wide, so that the router seldom hesitates between two experts.
    yield f"{prefix}.gate.weight", matrix(EXPERTS, shape.width, gain=2.0)
    for number in range(EXPERTS):
        yield from gated(f"{prefix}.experts.{number}", names, shape)


def decoder(
    shape: Shape,
    layer: Mapping[str, DrawnTensor],
    *,
    first: Mapping[str, DrawnTensor] | None = None,
) -> dict[str, DrawnTensor]:
    """Return the whole checkpoint of a model of Llama's build; the first layer may be another."""
    embedding = DrawnTensor(shape=(SIZE, shape.width), deviation=shape.embedding)
    out = {"model.embed_tokens.weight": embedding}
    for number in range(shape.layers):
        size = first if first is not None and number == 0 else layer
        out |= {f"model.layers.{number}.{name}": tensor for name, tensor in size.items()}
    out["model.norm.weight"] = DrawnTensor(
        shape=(shape.width,), deviation=0.2, middle=shape.last_norm_middle
    )
    if not shape.tied:
        out["lm_head.weight"] = matrix(SIZE, shape.width, gain=3.0)
    return out


def gpt2(shape: Shape) -> dict[str, DrawnTensor]:
    """GPT-2's checkpoint, as its authors named it: fused queries, keys and values, matrices the
    other way round.
    """
    width = shape.width
    sizes = {
        "attn.c_attn": (width, 3 * width),
        "attn.c_proj": (width, width),
        "mlp.c_fc": (width, 4 * width),
        "mlp.c_proj": (4 * width, width),
    }
    out = {
        "wte.weight": matrix(SIZE, width, gain=3.0),
        "wpe.weight": matrix(LONGEST, width, gain=3.0),
    }
    for number in range(shape.layers):
        for name, (rows, columns) in sizes.items():
            out[f"h.{number}.{name}.weight"] = DrawnTensor(
                shape=(rows, columns), deviation=2.5 * root(rows)
            )
            out[f"h.{number}.{name}.bias"] = DrawnTensor(shape=(columns,), deviation=0.3)
        for name in ("ln_1", "ln_2"):
            out |= _layer_norm(f"h.{number}.{name}", width)
    return out | _layer_norm("ln_f", width)


def _layer_norm(name: str, width: int) -> dict[str, DrawnTensor]:
    return {
        f"{name}.weight": DrawnTensor(shape=(width,), deviation=0.2, middle=1.0),
        f"{name}.bias": DrawnTensor(shape=(width,), deviation=0.2),
    }


MIXTRAL = ("w1", "w3", "w2")
QWEN = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Recipe of a model that can be made.

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
        "config": lambda: common(model_type, architecture, shape) | further,
        "tensors": lambda: decoder(shape, dict(attention(shape)) | dict(dense(shape))),
    }


# The names that each family gives to the same sizes.
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
        layer = dict(attention(shape)) | dict(experts(prefix, names, shape))
        if bias:
            layer[bias] = DrawnTensor(shape=(EXPERTS,), deviation=0.05)
        return decoder(shape, layer)

    return {
        "config": lambda: common(model_type, architecture, shape) | further,
        "tensors": tensors,
    }


def _first_dense(
    model_type: str, architecture: str, shape: Shape, *, inner: int, **further: Any
) -> dict[str, Any]:
    """Return a first layer without experts, and in the others one that every token takes beside
    those that are chosen.
    """

    def tensors() -> dict[str, DrawnTensor]:
        sparse = dict(attention(shape)) | dict(experts("mlp", QWEN, shape))
        sparse |= dict(gated("mlp.shared_experts", QWEN, shape))
        sparse["mlp.gate.e_score_correction_bias"] = DrawnTensor(shape=(EXPERTS,), deviation=0.05)
        first = dict(attention(shape)) | dict(dense(replace(shape, inner=inner)))
        return decoder(shape, sparse, first=first)

    config = common(model_type, architecture, shape)
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
        "n_ctx": LONGEST,
        "n_positions": LONGEST,
        "n_embd": shape.width,
        "n_head": shape.heads,
        "n_layer": shape.layers,
        "vocab_size": SIZE,
        "tie_word_embeddings": True,
        **SPECIALS,
    }
    return {"config": lambda: config, "tensors": lambda: gpt2(shape)}


LLAMA = Shape()
# mlx-lm divides the width by the heads where Qwen2 and Mixtral are concerned, and does not look at
# head_dim.
WIDE = Shape(width=HEADS * HEAD)
TIED = replace(LLAMA, tied=True, embedding=TIED_GAIN * root(LLAMA.width))
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
        does="llama with a tied head",
        **_dense("llama", "LlamaForCausalLM", TIED, hidden_act="silu", attention_bias=False),
    ),
    "llama-2-kv": Recipe(
        does="two KV heads, which cannot be split over 3 or 4 ranks, so such cells are refused",
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
            replace(WIDE, tied=True, bias=True, embedding=TIED_GAIN * root(WIDE.width)),
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
                embedding=0.5 * root(LLAMA.width),
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
        does=(
            "the previous model with five layers, which cannot be divided equally among 2, 3 or 4"
            " ranks"
        ),
        **_dense(
            "ministral3", "Ministral3ForCausalLM", UNEVEN, hidden_act="silu", rope_parameters=YARN
        ),
    ),
    "glm4-moe": Recipe(
        does=(
            "a first layer without experts, then 12 behind a sigmoid router with a bias, and one"
            " expert for every token; half of each head rotated"
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
            Path(__file__).with_name("recall.safetensors.xz"),
            "630995f28ecd3bdab365586fa38864e6eda91edc0272e8a62dc430661d512279",
        ),
    ),
}
