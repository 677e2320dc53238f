# GPT-Neo in transformers generates different tokens with a static cache
import sys

try:
    import torch
    from transformers import GPTNeoConfig, GPTNeoForCausalLM
except ImportError as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

torch.manual_seed(0)
shape = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_size": 48,
}
shape |= {"max_position_embeddings": 64, "window_size": 4}
config = GPTNeoConfig(**shape, attention_types=[[["global", "local"], 1]])
model = GPTNeoForCausalLM(config).eval()
for weight in model.parameters():
    if weight.ndim > 1:
        torch.nn.init.normal_(weight, std=0.2)
prompt = torch.randint(2, 64, (1, 13))
given = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

want = model.generate(prompt, **given)[0, 13:].tolist()
got = model.generate(prompt, cache_implementation="static", **given)[0, 13:].tolist()
if got != want:
    print(f"DEFECT: generated {got} with the static cache, expected {want}")
    sys.exit(1)
print("OK")
