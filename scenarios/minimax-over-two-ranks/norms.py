"""Tiny MiniMax with random weights, whole in one process or split by mlx-lm's own shard()."""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.minimax import Model, ModelArgs

SHAPE = {
    "model_type": "minimax",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "num_experts_per_tok": 1,
    "head_dim": 8,
    "num_local_experts": 2,
    "shared_intermediate_size": 0,
    "num_hidden_layers": 1,
    "vocab_size": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "rotary_dim": 4,
    "use_qk_norm": True,
}
PROMPT = [3, 1, 4, 1, 5, 9]


def read(context):
    """Keep the logits at every position of the prompt."""
    mx.random.seed(0)  # the same weights in every process
    model = Model(ModelArgs(**SHAPE))
    model.update(tree_map(lambda value: mx.random.normal(value.shape), model.parameters()))
    mx.eval(model.parameters())
    if context.size > 1:
        model.shard(context.group.native)
    context.keep("logits", model(mx.array([PROMPT]))[0])
