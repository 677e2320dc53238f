"""Small GGUF models with weights and a tokenizer, written by gguf's own writer, and the models that
they come from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tokenizer.formats.conversion import llama_3, of_serialised

HEADS, WIDTH, LAYERS = 2, 16, 2


def tiny_llama(file: Path, *, without: str = "", frequencies: bool = False) -> Any:
    """Write a llama of two layers with random weights, as llama.cpp's converter does.

    Returns the model itself.

    Args:
        file: where to.
        without: leave this tensor out.
        frequencies: write factors of the rotary embedding, as Llama 3.1 has them; all are 1, so
            that nothing changes.
    """
    import gguf
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    told = of_serialised(llama_3()).keys
    tokens = told["tokenizer.ggml.tokens"][1]
    torch.manual_seed(5)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=WIDTH,
            intermediate_size=32,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=64,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            eos_token_id=None,
            bos_token_id=None,
        )
    ).eval()
    # Larger than they begin, so that the tokens differ from one another.
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(12)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(32)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(told["tokenizer.ggml.token_type"][1])
    writer.add_token_merges(told["tokenizer.ggml.merges"][1])
    writer.add_bos_token_id(told["tokenizer.ggml.bos_token_id"][1])
    writer.add_eos_token_id(told["tokenizer.ggml.eos_token_id"][1])
    writer.add_add_bos_token(True)
    for name, tensor in _named(model.state_dict()):
        if name != without:
            writer.add_tensor(name, tensor)
    if frequencies:
        writer.add_tensor("rope_freqs.weight", np.ones(WIDTH // HEADS // 2, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def tokenizer_of_it(folder: Path) -> Path:
    """The tokenizer.json of that model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(llama_3()))
    return folder / "tokenizer.json"


def _named(state: dict[str, Any]) -> list[tuple[str, Any]]:
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    parts = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for layer in range(LAYERS):
        names |= {
            f"model.layers.{layer}.{ours}.weight": f"blk.{layer}.{its}.weight"
            for ours, its in parts.items()
        }
    return [(names[key], _turned(key, tensor.numpy())) for key, tensor in state.items()]


def _turned(key: str, weights: Any) -> Any:
    """llama.cpp keeps the two halves of each rotary pair beside each other."""
    if not key.endswith(("q_proj.weight", "k_proj.weight")):
        return weights
    halves = weights.reshape(HEADS, 2, weights.shape[0] // HEADS // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape).copy()
