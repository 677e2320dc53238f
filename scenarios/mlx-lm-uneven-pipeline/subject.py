"""A tiny DeepSeek-V3 with random weights, whole in one process or pipelined over the ranks by
mlx-lm itself.
"""

import json

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.deepseek_v3 import Model, ModelArgs

SEED = 27  # one whose tokens do not repeat at once
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
    """Decode greedily; tell the layers that this process runs, and keep the logits at every
    position of the prompt.
    """
    # Every process makes the whole model from one seed: MLX is lazy, and computes the weights that
    # are used.
    mx.random.seed(SEED)
    model = Model(ModelArgs(num_hidden_layers=layers, **SHAPE))
    if context.size > 1:
        model.model.pipeline(context.group.native)
    tell_layers(context, model.model, layers)
    cache, step, tokens = make_prompt_cache(model), mx.array(PROMPT), []
    while len(tokens) < TOKENS:
        logits = model(step[None], cache=cache)[0]
        step = mx.argmax(logits[-1:], axis=-1)
        if not tokens:
            context.keep("logits", logits)
        tokens.append(step.item())
    context.emit("decoded", tokens=tokens)


def tell_layers(context, model, layers):
    """Emit this process' share of the layers, and by how many processes each layer is run."""
    held = [index for index, layer in enumerate(model.layers) if layer is not None]
    everyone = [json.loads(one) for one in context.group.all_gather(json.dumps(held).encode())]
    runs = [sum(index in one for one in everyone) for index in range(layers)]
    context.emit(
        "pipeline", begin=model.start_idx, end=model.end_idx or layers, held=held, runs=runs
    )
