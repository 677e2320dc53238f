"""Tiny Gemma 3 with random weights, which answers a prompt longer than its sliding window."""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.gemma3_text import Model, ModelArgs

SHAPE = {
    "model_type": "gemma3_text",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 8,
    "sliding_window_pattern": 2,
}
PROMPT = list(range(20, 41))
TOKENS = 12


def make(seed):
    mx.random.seed(seed)
    model = Model(ModelArgs(**SHAPE))
    model.update(tree_map(lambda value: 0.3 * mx.random.normal(value.shape), model.parameters()))
    return model


def answer(context, *, decoding):
    """Emit the tokens of greedy decoding, plain or with another model as the draft."""
    model, prompt = make(0), mx.array(PROMPT)
    if decoding == "plain":
        steps = generate_step(prompt, model, max_tokens=TOKENS)
    else:
        steps = speculative_generate_step(
            prompt, model, make(1), num_draft_tokens=3, max_tokens=TOKENS
        )
    context.emit("answered", tokens=[int(token) for token, *_ in steps])
