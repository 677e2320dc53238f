"""`generate` of transformers, over a model that its tensor-parallel plan has split, and what comes
to its embedding.
"""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.distributed.configuration_utils import DistributedConfig


class Transformers:
    """The engine of a rank."""

    name = "transformers"

    def __init__(self, context, folder):
        plan = DistributedConfig(tp_size=context.size, tp_plan="auto")
        given = {"dtype": torch.float32, "local_files_only": True, "distributed_config": plan}
        self.model = AutoModelForCausalLM.from_pretrained(folder, **given).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.seen = []
        self.model.model.register_forward_pre_hook(self.note, with_kwargs=True)

    def note(self, _model, _given, named):
        self.seen += named["input_ids"][0].tolist()

    def held(self):
        """How many numbers of the model this rank has."""
        parts = [
            one.to_local() if hasattr(one, "to_local") else one for one in self.model.parameters()
        ]
        return sum(part.numel() for part in parts)

    def render(self, talk, *, add_generation_prompt):
        return self.tokenizer.apply_chat_template(
            talk, tokenize=False, add_generation_prompt=add_generation_prompt
        )

    def encoded(self, text):
        """The ids of a text that has all special tokens already."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def ids(self, talk, *, add_generation_prompt):
        found = self.tokenizer.apply_chat_template(
            talk, tokenize=True, add_generation_prompt=add_generation_prompt
        )
        return list(found["input_ids"])

    def answer(self, prompt, tokens):
        """What the model was fed of a prompt, and the tokens that it answered."""
        self.seen = []
        ids = torch.tensor([prompt])
        given = {
            "attention_mask": torch.ones_like(ids),
            "do_sample": False,
            "pad_token_id": 2,
            "eos_token_id": None,
        }
        with torch.no_grad():
            found = self.model.generate(ids, max_new_tokens=tokens, **given)[
                0, len(prompt) :
            ].tolist()
        return self.seen[: len(self.seen) - tokens + 1], found
