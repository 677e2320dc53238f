"""Tiny Jamba with random weights, which reads its prompt at once or in chunks."""

import torch
from transformers import JambaConfig, JambaForCausalLM

CONFIG = JambaConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    num_key_value_heads=2,
    num_experts=2,
    num_experts_per_tok=1,
    attn_layer_period=2,
    attn_layer_offset=1,
    mamba_d_state=4,
)
PROMPT = list(range(2, 15))
TOKENS = 8


def answer(context, *, prefill):
    """Emit the tokens of greedy decoding."""
    torch.manual_seed(0)
    model = JambaForCausalLM(CONFIG).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    given = {"prefill_chunk_size": 4} if prefill == "chunked" else {}
    found = model.generate(
        torch.tensor([PROMPT]),
        max_new_tokens=TOKENS,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        **given,
    )
    context.emit("answered", tokens=found[0, len(PROMPT) :].tolist())
