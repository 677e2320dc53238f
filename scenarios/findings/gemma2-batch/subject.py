"""Tiny Gemma 2 with two key heads and random weights, given a prompt alone or beside another."""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import BatchKVCache
from mlx_lm.models.gemma2 import Model, ModelArgs

SHAPE = {
    "model_type": "gemma2",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "query_pre_attn_scalar": 8,
}
SHORT, LONG = [3, 1, 4, 1, 5], list(range(20, 29))


def read(context, *, prompts):
    """Keep the logits after the short prompt, which is alone or the first of a padded batch."""
    mx.random.seed(0)
    model = Model(ModelArgs(**SHAPE))
    model.update(tree_map(lambda value: 0.3 * mx.random.normal(value.shape), model.parameters()))
    batch = [SHORT] if prompts == "alone" else [SHORT, LONG]
    longest = max(map(len, batch))
    padding = [longest - len(prompt) for prompt in batch]
    padded = [[0] * pads + prompt for pads, prompt in zip(padding, batch, strict=True)]
    cache = [BatchKVCache(padding) for _ in model.layers]
    context.keep("logits", model(mx.array(padded), cache=cache)[0, -1])
