"""Tiny RecurrentGemma with random weights, which reads a prompt alone or after masked padding."""

import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

CONFIG = RecurrentGemmaConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    lru_width=32,
    attention_window_size=32,
    block_types=("recurrent", "attention"),
)
PROMPT = list(range(2, 15))


def read(context, *, pads):
    """Keep the logits after the prompt."""
    torch.manual_seed(0)
    model = RecurrentGemmaForCausalLM(CONFIG).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    mask = torch.tensor([[0] * pads + [1] * len(PROMPT)])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        answer = model(
            torch.tensor([[0] * pads + PROMPT]), attention_mask=mask, position_ids=positions
        )
    context.keep("logits", answer.logits[0, -1])
