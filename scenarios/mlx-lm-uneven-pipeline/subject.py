"""A tiny DeepSeek-V3 with random weights, whole in one process or pipelined over the ranks by mlx-lm itself."""

import json

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.deepseek_v3 import Model, ModelArgs

SEED = 7
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
TOKENS = 8
SHAPE = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 64,
}


def generate(context, *, layers):
    """Decode greedily, and tell which layers this process ran and the logits at every position of the prompt."""
    # The whole model is made in every process, from one seed: MLX makes only those arrays that something asks for.
    mx.random.seed(SEED)
    model = Model(ModelArgs(num_hidden_layers=layers, **SHAPE))
    if context.size > 1:
        model.model.pipeline(context.group.native)
    inner = model.model
    begin, end = inner.start_idx, inner.end_idx if inner.end_idx is not None else layers
    held = [index for index, layer in enumerate(inner.layers) if layer is not None]
    everyone = [json.loads(one) for one in context.group.all_gather(json.dumps(held).encode())]
    runs = [sum(layer in one for one in everyone) for layer in range(layers)]
    context.emit("pipeline", begin=begin, end=end, held=held, runs=runs)
    logits = model(mx.array(PROMPT)[None])[0]
    mx.eval(logits)
    context.keep("logits", logits)
    steps = generate_step(mx.array(PROMPT), model, max_tokens=TOKENS)
    context.emit("decoded", tokens=[int(token) for token, _ in steps])
