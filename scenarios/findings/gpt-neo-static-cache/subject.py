"""Tiny GPT-Neo with random weights, which answers with the default cache or a static one."""

import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

CONFIG = GPTNeoConfig(
    vocab_size=64,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=48,
    max_position_embeddings=64,
    window_size=4,
    attention_types=[[["global", "local"], 1]],
)
PROMPT = list(range(2, 15))
TOKENS = 8


def answer(context, *, cache):
    """Emit the tokens of greedy decoding."""
    torch.manual_seed(0)
    model = GPTNeoForCausalLM(CONFIG).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    given = {"cache_implementation": "static"} if cache == "static" else {}
    found = model.generate(
        torch.tensor([PROMPT]),
        max_new_tokens=TOKENS,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        **given,
    )
    context.emit("answered", tokens=found[0, len(PROMPT) :].tolist())
