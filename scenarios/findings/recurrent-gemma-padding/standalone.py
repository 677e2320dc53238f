# Left padding changes the logits of RecurrentGemma in transformers
import sys

try:
    import torch
    from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM
except ImportError as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

torch.manual_seed(0)
shape = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
shape |= {"intermediate_size": 48, "lru_width": 32, "attention_window_size": 32}
config = RecurrentGemmaConfig(**shape, block_types=("recurrent", "attention"))
model = RecurrentGemmaForCausalLM(config).eval()
for weight in model.parameters():
    if weight.ndim > 1:
        torch.nn.init.normal_(weight, std=0.2)
prompt = torch.randint(2, 64, (1, 13))
given = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

with torch.no_grad():
    want = model(prompt, attention_mask=torch.ones_like(prompt)).logits[0, -1]
    padded = torch.nn.functional.pad(prompt, (5, 0))
    mask = torch.nn.functional.pad(torch.ones_like(prompt), (5, 0))
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    got = model(padded, attention_mask=mask, position_ids=positions).logits[0, -1]
off = ((got - want).abs().max() / want.abs().max()).item()
if off > 1e-3:
    print(f"DEFECT: 5 masked pad tokens change the logits by {off:.0%} of the largest logit")
    sys.exit(1)
print("OK")
