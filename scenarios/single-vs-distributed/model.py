"""A small decoder with what goes wrong when models are split, and the whole of it in one process,
as plainly as can be.

It has grouped heads in one projection, biases, a norm over all heads, and experts.
"""

import json
import math

import numpy as np
import torch
from torch.nn import functional

LAYERS, HEADS, GROUPS, HEAD, VOCABULARY, EXPERTS, CHOSEN = 3, 24, 12, 8, 96, 12, 2
WIDTH, QUERIES, KEYS, INNER, EXPERT = 96, HEADS * HEAD, GROUPS * HEAD, 192, 48
ROPE, EPSILON = 10_000.0, 1e-6


def weights(seed, dtype, mixture):
    """Every tensor of the checkpoint: name to array.

    With `mixture` every second layer has experts.
    """
    random = np.random.default_rng(seed)

    def drawn(*shape, scale=None):
        values = random.standard_normal(shape) * (scale or 1 / math.sqrt(shape[-1]))
        return torch.from_numpy(values.astype("float32")).to(dtype)

    found = {"embedding": drawn(VOCABULARY, WIDTH, scale=1.0), "norm": drawn(WIDTH, scale=0.1) + 1}
    found["head"] = drawn(VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        own = {
            "attention.norm": drawn(WIDTH, scale=0.1) + 1,
            "attention.qkv": drawn(QUERIES + 2 * KEYS, WIDTH),
            "attention.qkv.bias": drawn(QUERIES + 2 * KEYS, scale=0.2),
            "attention.q.norm": drawn(QUERIES, scale=0.1) + 1,
            "attention.out": drawn(WIDTH, QUERIES),
            "attention.out.bias": drawn(WIDTH, scale=0.2),
            "mlp.norm": drawn(WIDTH, scale=0.1) + 1,
        }
        # Heads are not alike, or a norm of some of them would be that of all.
        loud = torch.linspace(0.5, 2, HEADS).repeat_interleave(HEAD)[:, None].to(dtype)
        own["attention.qkv"][:QUERIES] *= loud
        if mixture and layer % 2:
            own |= {"mlp.router": drawn(EXPERTS, WIDTH), "mlp.up": drawn(EXPERTS, EXPERT, WIDTH)}
            own |= {"mlp.down": drawn(EXPERTS, WIDTH, EXPERT)}
        else:
            own |= {"mlp.up": drawn(INNER, WIDTH), "mlp.down": drawn(WIDTH, INNER)}
            own |= {
                "mlp.up.bias": drawn(INNER, scale=0.2),
                "mlp.down.bias": drawn(WIDTH, scale=0.2),
            }
        found |= {f"layers.{layer}.{name}": value for name, value in own.items()}
    return found


def prompts(seed, chunk, steps):
    """Prompts that are shorter than a chunk of the prefill, as long, and over two of them.

    With what is fed after.
    """
    random = np.random.default_rng([seed, 1])
    lengths = (chunk - 1, chunk, 2 * chunk + 1)
    return [
        (
            random.integers(VOCABULARY, size=size).tolist(),
            random.integers(VOCABULARY, size=steps).tolist(),
        )
        for size in lengths
    ]


def norm(state, weight, mean=None):
    """Root mean square norm, in float32; `mean` of the squares, where part of the state lies
    elsewhere.
    """
    wide = state.float()
    mean = wide.square().mean(-1, keepdim=True) if mean is None else mean
    return (wide * torch.rsqrt(mean + EPSILON)).to(state.dtype) * weight


def turn(state, begin, base=ROPE):
    """Rotary positions of [heads, positions, head], from position `begin` on."""
    half = HEAD // 2
    angles = torch.arange(begin, begin + state.shape[1])[:, None] * base ** (
        -torch.arange(half) / half
    )
    one, other = state.float().split(half, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1).to(state.dtype)


def attend(queries, keys, values, begin):
    """Causal attention with grouped heads; the first query stands at position `begin`."""
    times = queries.shape[0] // keys.shape[0]
    keys, values = (part.repeat_interleave(times, 0) for part in (keys, values))
    scores = queries.float() @ keys.float().transpose(1, 2) / math.sqrt(HEAD)
    later = (
        torch.arange(keys.shape[1])[None] > torch.arange(begin, begin + queries.shape[1])[:, None]
    )
    return scores.masked_fill(later, -math.inf).softmax(-1).to(values.dtype) @ values


def choose(state, router):
    """Which experts each position asks, with which shares, and how far the last chosen is above the
    next.
    """
    gates = functional.linear(state, router).float()
    best = gates.topk(CHOSEN + 1)
    shares = best.values[:, :CHOSEN].softmax(-1).to(state.dtype)
    return best.indices[:, :CHOSEN], shares, best.values[:, CHOSEN - 1] - best.values[:, CHOSEN]


def split(state, heads):
    """[positions, width] as [heads, positions, width of a head]."""
    return state.unflatten(1, (heads, -1)).transpose(0, 1)


class Whole:
    """The whole model in one process: the sequence at once, no cache, nothing split.

    `parts` computes every product in so many parts that are added up, as ranks would: another order
    that is allowed.
    """

    def __init__(self, found, *, parts=1):
        self.weights, self.parts = found, parts

    def linear(self, state, name, bias=None):
        weight = self.weights[name]
        pieces = [
            functional.linear(*pair)
            for pair in zip(state.chunk(self.parts, -1), weight.chunk(self.parts, -1), strict=True)
        ]
        total = sum(pieces[1:], pieces[0])
        return total if bias is None else total + self.weights[bias]

    def forward(self, tokens):
        """Logits, hidden states by name, and how decided the routers were, of every position."""
        state, hidden = self.weights["embedding"][tokens], {}
        decided = torch.full((len(tokens),), math.inf)
        for layer in range(LAYERS):
            here = f"layers.{layer}"
            inner = norm(state, self.weights[f"{here}.attention.norm"])
            joined = self.linear(inner, f"{here}.attention.qkv", f"{here}.attention.qkv.bias")
            queries, keys, values = joined.split([QUERIES, KEYS, KEYS], -1)
            queries = norm(queries, self.weights[f"{here}.attention.q.norm"])
            parts = [split(queries, HEADS), split(keys, GROUPS), split(values, GROUPS)]
            mixed = (
                attend(turn(parts[0], 0), turn(parts[1], 0), parts[2], 0).transpose(0, 1).flatten(1)
            )
            state = state + self.linear(
                mixed, f"{here}.attention.out", f"{here}.attention.out.bias"
            )
            hidden[f"{layer}.attention"] = state
            inner = norm(state, self.weights[f"{here}.mlp.norm"])
            if f"{here}.mlp.router" in self.weights:
                which, shares, gap = choose(inner, self.weights[f"{here}.mlp.router"])
                decided = torch.minimum(decided, gap)
                state = state + self.experts(inner, which, shares, here)
            else:
                up = functional.silu(self.linear(inner, f"{here}.mlp.up", f"{here}.mlp.up.bias"))
                state = state + self.linear(up, f"{here}.mlp.down", f"{here}.mlp.down.bias")
            hidden[str(layer)] = state
        return self.linear(norm(state, self.weights["norm"]), "head"), hidden, decided

    def experts(self, state, which, shares, here):
        """What the chosen experts give, added up over as many groups of them as there are parts."""
        up, down, size = (
            self.weights[f"{here}.mlp.up"],
            self.weights[f"{here}.mlp.down"],
            EXPERTS // self.parts,
        )
        groups = [range(begin, begin + size) for begin in range(0, EXPERTS, size)]
        totals = [
            mixture(
                state,
                which,
                shares,
                group,
                up[group.start : group.stop],
                down[group.start : group.stop],
            )
            for group in groups
        ]
        return sum(totals[1:], totals[0])


def mixture(state, which, shares, group, up, down):
    """What these experts give to each position."""
    total = torch.zeros_like(state)
    for place, expert in enumerate(group):
        share = (shares * (which == expert)).sum(-1, keepdim=True)
        total = total + share * functional.linear(
            functional.silu(functional.linear(state, up[place])), down[place]
        )
    return total


def checkpoint(found):
    """The tensors as a safetensors file."""
    header, data = {}, b""
    for name, tensor in found.items():
        content = content_of(tensor)
        dtype = {torch.float32: "F32", torch.bfloat16: "BF16"}[tensor.dtype]
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def content_of(tensor):
    """The bytes of a tensor."""
    tensor = tensor.contiguous()
    return (
        (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()
    )
