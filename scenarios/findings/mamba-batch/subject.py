"""Tiny Mamba with random weights, which mlx-lm's BatchGenerator asks a prompt alone or beside
another.
"""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.mamba import Model, ModelArgs

SHAPE = {
    "model_type": "mamba",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "state_size": 4,
    "num_hidden_layers": 2,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_rank": 2,
}
SHORT, LONG = [3, 1, 4, 1, 5], list(range(20, 41))
TOKENS = 6


def drawn(value):
    return 0.3 * mx.random.normal(value.shape) if value.ndim > 1 else value


def answer(context, *, prompts):
    """Emit the tokens after the short prompt."""
    mx.random.seed(0)
    model = Model(ModelArgs(**SHAPE))
    model.update(tree_map(drawn, model.parameters()))
    batch = [SHORT] if prompts == "alone" else [SHORT, LONG]
    generator = BatchGenerator(model, prefill_step_size=8)
    first, *_ = generator.insert(batch, [TOKENS] * len(batch))
    tokens = []
    while len(tokens) < TOKENS:
        tokens += [one.token for one in generator.next_generated() if one.uid == first]
    generator.close()
    context.emit("answered", tokens=tokens)
