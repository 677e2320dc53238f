"""`generate` of transformers, over a model that its tensor-parallel plan has split, or that each
rank has whole.
"""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria, StoppingCriteriaList
from transformers.distributed.configuration_utils import DistributedConfig


class Transformers:
    """The engine of a rank."""

    name = "transformers"

    def __init__(self, context, folder):
        given = {"dtype": torch.float32, "local_files_only": True}
        if context.backend != "none":
            given["distributed_config"] = DistributedConfig(tp_size=context.size, tp_plan="auto")
        self.model = AutoModelForCausalLM.from_pretrained(folder, **given).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def held(self):
        """How many numbers of the model this rank has."""
        parts = [
            one.to_local() if hasattr(one, "to_local") else one for one in self.model.parameters()
        ]
        return sum(part.numel() for part in parts)

    def answer(self, prompt, *, read_eos, stops, limit, by_token):
        """The ids of an answer and why it ended; EOS ids are those that transformers read from the
        folder.
        """
        ids = torch.tensor([prompt])
        given = {
            "attention_mask": torch.ones_like(ids),
            "do_sample": False,
            "max_new_tokens": limit,
            "pad_token_id": 2,
        }
        if not read_eos:
            given["eos_token_id"] = self.model.config.eos_token_id
        if stops and by_token:
            given["stopping_criteria"] = StoppingCriteriaList([ByToken(self.tokenizer, stops)])
        elif stops:
            given |= {"stop_strings": stops, "tokenizer": self.tokenizer}
        with torch.no_grad():
            found = self.model.generate(ids, **given)[0, len(prompt) :].tolist()
        return found, "length" if len(found) == limit and not self.stopped(found, stops) else "stop"

    def stopped(self, found, stops):
        """Whether an answer of full length ended by itself too."""
        eos = self.model.generation_config.eos_token_id
        ends = eos if isinstance(eos, list) else [eos]
        return found[-1] in ends or any(stop in self.tokenizer.decode(found) for stop in stops)


class ByToken(StoppingCriteria):
    """Looks for stop strings in each token's own text."""

    def __init__(self, tokenizer, stops):
        self.tokenizer, self.stops = tokenizer, stops

    def __call__(self, input_ids, _scores, **_kwargs):
        text = self.tokenizer.decode(input_ids[0, -1:])
        return torch.tensor([any(stop in text for stop in self.stops)])
