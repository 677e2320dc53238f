"""The architectures of the models: what stands in config.json, and the tensors of the checkpoint.

Each is as small as its engines bear. What is split has 24 heads, 12 KV heads, 12 experts and widths
divisible by 12, so that 2, 3 and 4 ranks are legal; four layers give each of four ranks one, and
three an uneven split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.engines.models.vocabulary import BEGIN, END, PAD, SIZE
from harness.engines.models.weights import DrawnTensor

HEADS = 24
KV_HEADS = 12
HEAD = 8
EXPERTS = 12
LAYERS = 4
LONGEST = 512
# Of a tied head: logits then deviate by some units, like those of an untied one.
TIED = 3.0
SPECIALS = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}


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
    """The tensors of a layer that are not its feed-forward part, below `model.layers.N`."""
    # Queries and keys are drawn wide: attention that looks everywhere alike would hide positions
    # that are off.
    sizes = {
        "q": (shape.heads * HEAD, 1.6),
        "k": (shape.kv_heads * HEAD, 1.6),
        "v": (shape.kv_heads * HEAD, 1.0),
    }
    for name, (rows, gain) in sizes.items():
        yield (
            f"self_attn.{name}_proj.weight",
            DrawnTensor(shape=(rows, shape.width), deviation=gain * root(shape.width)),
        )
        if shape.bias:
            yield f"self_attn.{name}_proj.bias", DrawnTensor(shape=(rows,), deviation=0.3)
    inside = shape.heads * HEAD
    yield (
        "self_attn.o_proj.weight",
        DrawnTensor(shape=(shape.width, inside), deviation=root(inside)),
    )
    for name, size in zip("qk", shape.head_norms or (), strict=False):
        yield f"self_attn.{name}_norm.weight", DrawnTensor(shape=(size,), deviation=0.3, middle=1.0)
    for name in shape.norms:
        yield (
            f"{name}.weight",
            DrawnTensor(shape=(shape.width,), deviation=0.2, middle=shape.norm_middle),
        )


def dense(shape: Shape) -> Iterator[tuple[str, DrawnTensor]]:
    """A feed-forward part with a gate."""
    yield from gated("mlp", ("gate_proj", "up_proj", "down_proj"), shape)


def gated(
    prefix: str, names: tuple[str, str, str], shape: Shape
) -> Iterator[tuple[str, DrawnTensor]]:
    """Gate and up `[inner, width]`, down `[width, inner]`."""
    for name in names[:2]:
        yield (
            f"{prefix}.{name}.weight",
            DrawnTensor(shape=(shape.inner, shape.width), deviation=1.4 * root(shape.width)),
        )
    yield (
        f"{prefix}.{names[2]}.weight",
        DrawnTensor(shape=(shape.width, shape.inner), deviation=1.4 * root(shape.inner)),
    )


def experts(
    prefix: str, names: tuple[str, str, str], shape: Shape
) -> Iterator[tuple[str, DrawnTensor]]:
    """A router and its experts."""
    # Drawn wide, so that the router seldom hesitates between two experts.
    yield (
        f"{prefix}.gate.weight",
        DrawnTensor(shape=(EXPERTS, shape.width), deviation=2 * root(shape.width)),
    )
    for number in range(EXPERTS):
        yield from gated(f"{prefix}.experts.{number}", names, shape)


def decoder(
    shape: Shape,
    layer: Mapping[str, DrawnTensor],
    *,
    first: Mapping[str, DrawnTensor] | None = None,
) -> dict[str, DrawnTensor]:
    """Return the whole checkpoint of a model of Llama's build; the first layer may be another."""
    out = {
        "model.embed_tokens.weight": DrawnTensor(
            shape=(SIZE, shape.width), deviation=shape.embedding
        )
    }
    for number in range(shape.layers):
        size = first if first is not None and number == 0 else layer
        out |= {f"model.layers.{number}.{name}": tensor for name, tensor in size.items()}
    out["model.norm.weight"] = DrawnTensor(
        shape=(shape.width,), deviation=0.2, middle=shape.last_norm_middle
    )
    if not shape.tied:
        out["lm_head.weight"] = DrawnTensor(
            shape=(SIZE, shape.width), deviation=3 * root(shape.width)
        )
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
        "wte.weight": DrawnTensor(shape=(SIZE, width), deviation=3 * root(width)),
        "wpe.weight": DrawnTensor(shape=(LONGEST, width), deviation=3 * root(width)),
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
