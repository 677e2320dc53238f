# Jamba in transformers loses its Mamba state between prefill chunks
import sys

try:
    import torch
    from transformers import JambaConfig, JambaForCausalLM
except ImportError as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

torch.manual_seed(0)
shape = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
shape |= {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
}
shape |= {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "mamba_d_state": 4,
}
config = JambaConfig(**shape)
model = JambaForCausalLM(config).eval()
for weight in model.parameters():
    if weight.ndim > 1:
        torch.nn.init.normal_(weight, std=0.2)
prompt = torch.randint(2, 64, (1, 13))
given = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

want = model.generate(prompt, **given)[0, 13:].tolist()
got = model.generate(prompt, prefill_chunk_size=4, **given)[0, 13:].tolist()
if got != want:
    print(f"DEFECT: generated {got} with chunks of 4, expected {want}")
    sys.exit(1)
print("OK")
