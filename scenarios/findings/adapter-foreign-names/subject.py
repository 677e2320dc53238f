"""LoRA adapter with the tensor names of PEFT, which mlx-lm loads into a tiny Llama."""

import json
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.tuner.utils import load_adapters

SHAPE = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
}
LORA = {"num_layers": 1, "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.0}}
NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
PROMPT = [[1, 2, 3]]


def load(context):
    """Emit what became of the adapter: applied, refused or ignored."""
    model = Model(ModelArgs(**SHAPE))
    before = model(mx.array(PROMPT))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "adapter_config.json").write_text(json.dumps(LORA))
        tensors = {NAME.format("A"): mx.ones((2, 16)), NAME.format("B"): mx.ones((16, 2))}
        mx.save_safetensors(f"{folder}/adapters.safetensors", tensors)
        try:
            model = load_adapters(model, folder)
        except ValueError:
            context.emit("adapter", ignored=False, outcome="refused")
            return
    ignored = mx.allclose(model(mx.array(PROMPT)), before).item()
    context.emit("adapter", ignored=ignored, outcome="ignored" if ignored else "applied")
