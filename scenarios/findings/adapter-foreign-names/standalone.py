# mlx-lm ignores an adapter whose tensors use another library's names
import json
import sys
import tempfile
from pathlib import Path

try:
    import mlx.core as mx
    from mlx_lm.models.llama import Model, ModelArgs
    from mlx_lm.tuner.utils import load_adapters
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

shape = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
model = Model(ModelArgs(**shape, num_attention_heads=2, rms_norm_eps=1e-5, vocab_size=32))
before = model(mx.array([[1, 2, 3]]))
with tempfile.TemporaryDirectory() as folder:
    config = {"num_layers": 1, "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.0}}
    Path(folder, "adapter_config.json").write_text(json.dumps(config))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_%s.weight"  # as PEFT writes them
    tensors = {name % "A": mx.ones((2, 16)), name % "B": mx.ones((16, 2))}
    mx.save_safetensors(f"{folder}/adapters.safetensors", tensors)
    try:
        model = load_adapters(model, folder)
    except ValueError as refusal:
        print("OK: rejected:", str(refusal).splitlines()[0][:40])
        sys.exit(0)
if mx.allclose(model(mx.array([[1, 2, 3]])), before):
    print("DEFECT: the adapter was accepted but has no effect, expected an effect or an error")
    sys.exit(1)
print("OK")
