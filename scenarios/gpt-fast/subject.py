"""gpt-fast's own Mixtral, quantized and split over the ranks by its own `apply_tp`, as they stand
in a commit.

The code under test is the folder mixtral-moe of gpt-fast's repository, laid out beside this file;
nothing in it is changed. The package `inference` is Rankproof's (subject.beside): it asks the
model, and tells what each rank holds.
"""

import json
import re
from pathlib import Path

import torch
from inference import session
from inference.engine import Request, takes_a_request
from inference.torch_decoder import TorchDecoder
from model import ModelArgs, Transformer
from quantize import WeightOnlyBit8QuantHandler
from safetensors.torch import load_file

# What a checkpoint of transformers calls what gpt-fast does; its own hook joins queries, keys and
# values.
NAMES = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
    "model.": "",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}
LONGEST = 64


class GptFast(TorchDecoder):
    """A Mixtral of gpt-fast, whose weights are int8."""

    def load(self, folder, **_asked):
        """Load, quantize and split, as `generate.py` does."""
        model = Transformer(arguments(json.loads(Path(folder, "config.json").read_text())))
        model.load_state_dict(
            weights(load_file(Path(folder, "model.safetensors")), model.config.num_experts)
        )
        handler = WeightOnlyBit8QuantHandler(model, torch.int8)
        state = handler.create_quantized_state_dict()
        model = handler.convert_for_runtime()
        model.load_state_dict(state, assign=True)
        self.take_in(model.requires_grad_(False), layers=model.layers, rows=model.config.vocab_size)
        if self.size > 1:
            from tp import apply_tp

            apply_tp(model)
        model.setup_caches(1, LONGEST)
        model.float()  # the caches too, which are bfloat16 otherwise

    def tensors(self):
        """All but the caches."""
        return {
            name: value for name, value in self.model.state_dict().items() if "kv_cache" not in name
        }

    def shares(self, name, here, whole):
        """Queries, keys and values lie one below the other, and each is cut."""
        if "wqkv" not in name or self.size == 1:
            return super().shares(name, here, whole)
        model = self.model.config
        width, keys = model.dim * self.size, model.n_local_heads * model.head_dim * self.size
        begins = [(0, width), (width, keys), (width + keys, keys)]
        rows = [
            (begin + self.rank * size // self.size, begin + (self.rank + 1) * size // self.size)
            for begin, size in begins
        ]
        return [rows, *([(0, size)] for size in whole[1:])]

    def matrices(self, layer):
        """The scales that its int8 matrices are multiplied by."""
        return [value for name, value in layer.state_dict().items() if "scales" in name]

    def begin(self):
        """A position that was not yet written is not looked at."""
        self.position = 0

    def step(self, ids):
        """As `generate.py` calls it."""
        places = torch.arange(self.position, self.position + len(ids))
        self.position += len(ids)
        with torch.no_grad():
            return self.model(torch.tensor([ids]), places)[0]


def arguments(config):
    """gpt-fast's configuration of a Mixtral."""
    return ModelArgs(
        block_size=LONGEST,
        vocab_size=config["vocab_size"],
        n_layer=config["num_hidden_layers"],
        n_head=config["num_attention_heads"],
        n_local_heads=config["num_key_value_heads"],
        dim=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_experts=config["num_local_experts"],
        num_activated_experts=config["num_experts_per_tok"],
    )


def weights(found, experts):
    """A checkpoint of transformers under gpt-fast's names, its experts stacked."""
    state, stacks = {}, {}
    for there, value in found.items():
        name = there
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        if expert := re.fullmatch(r"(.*block_sparse_moe)\.experts\.(\d+)\.(w\d)\.weight", name):
            stacks.setdefault(f"{expert[1]}.cond_ffn.{expert[3]}", {})[int(expert[2])] = value
        else:
            state[name] = value
    return state | {
        name: torch.stack([stack[one] for one in range(experts)]) for name, stack in stacks.items()
    }


@takes_a_request
def split(context, **asked):
    """A rank: its share of the model, as gpt-fast splits it."""
    session.run(
        context, GptFast("gpt-fast-tensor", rank=context.rank, size=context.size), Request(**asked)
    )


@takes_a_request
def whole(context, **asked):
    """The reference: the same model of the candidate's commit, which is not split."""
    session.run(context, GptFast("gpt-fast", rank=0, size=1), Request(**asked))
