"""A small decoder with random weights, its heads split over the ranks: attention written out, or
torch's own.
"""

import math

import torch
import torch.distributed as dist
from torch.nn import functional

HEADS, WIDTH, LAYERS, VOCABULARY, PROMPT, STEPS, SEED = 6, 48, 2, 97, 12, 8, 7


def decode(context, *, attention):
    """Decode greedily over all ranks.

    Report the tokens, and keep the logits of the last position of each step.
    """
    torch.manual_seed(SEED)
    embedding = torch.randn(VOCABULARY, WIDTH)
    layers = [torch.randn(4, WIDTH, WIDTH) / math.sqrt(WIDTH) for _ in range(LAYERS)]
    head = torch.randn(WIDTH, VOCABULARY)
    tokens = torch.randint(VOCABULARY, (PROMPT,)).tolist()
    attend = {"eager": eager, "sdpa": sdpa}[attention]
    mine = slice(context.rank * WIDTH // context.size, (context.rank + 1) * WIDTH // context.size)
    heads = HEADS // context.size
    rows = []
    for _ in range(STEPS):
        state = embedding[tokens]
        for queries, keys, values, out in layers:
            parts = [split(state @ weight[:, mine], heads) for weight in (queries, keys, values)]
            joined = attend(*parts).transpose(0, 1).flatten(1) @ out[mine]
            dist.all_reduce(joined)
            state = functional.layer_norm(state + joined, (WIDTH,))
        rows.append(state[-1] @ head)
        tokens.append(int(rows[-1].argmax()))
    context.emit("decoded", tokens=tokens[PROMPT:])
    context.keep("logits", torch.stack(rows))


def split(state, heads):
    """[positions, width] as [heads, positions, width of a head]."""
    return state.unflatten(1, (heads, -1)).transpose(0, 1)


def eager(queries, keys, values):
    """Causal attention, step by step."""
    scores = queries @ keys.transpose(1, 2) / math.sqrt(queries.shape[2])
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ values


def sdpa(queries, keys, values):
    """The same by torch's fused kernel."""
    return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
