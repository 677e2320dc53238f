"""A tiny Llama with random weights, whole in one process or split over the ranks by transformers'
own plan.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig

# Made at import, as a module of settings would: transformers reads WORLD_SIZE here.
PLAN = DistributedConfig(tp_plan="auto")
SEED = 7
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 128,
}


def score(context, *, stale):
    """Keep the logits of sixteen tokens, at every position."""
    path = Path(context.shared, "model")
    if context.rank == 0:
        torch.manual_seed(SEED)
        LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(path)
    context.group.barrier()
    plan = {"distributed_config": PLAN} if context.size > 1 else {}
    model = AutoModelForCausalLM.from_pretrained(path, **plan)
    shards = [local(layer.self_attn.q_proj.weight) for layer in model.model.layers]
    if stale and context.rank == context.size - 1:
        with torch.no_grad():
            shards[1].copy_(shards[0])
    with torch.no_grad():
        logits = model(torch.arange(16)[None]).logits
    context.emit("model", rows=shards[0].shape[0])
    context.keep("logits", logits[0])


def local(weight):
    """The part of a weight that lies in this process."""
    return weight.to_local() if hasattr(weight, "to_local") else weight
