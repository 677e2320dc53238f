"""`stream_generate` of mlx-lm, over a model that mlx-lm has split, and what comes to its
embedding.
"""

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.generate import stream_generate


class MlxLm:
    """The engine of a rank."""

    name = "mlx-lm"

    def __init__(self, context, folder):
        self.model, self.tokenizer = utils.sharded_load(folder, None, context.group.native)
        self.tokenizer.eos_token_ids = ()
        self.model.set_dtype(mx.float32)
        mx.eval(self.model.parameters())
        self.seen = []
        embedding, seen = self.model.model.embed_tokens, self.seen
        kind = type(embedding)

        def noted(module, ids):
            seen.extend(ids.flatten().tolist())
            return kind.__call__(module, ids)

        embedding.__class__ = type(kind.__name__, (kind,), {"__call__": noted})

    def held(self):
        """How many numbers of the model this rank has."""
        return sum(value.size for _, value in tree_flatten(self.model.parameters()))

    def render(self, talk, *, add_generation_prompt):
        return self.tokenizer.apply_chat_template(
            talk, tokenize=False, add_generation_prompt=add_generation_prompt
        )

    def encoded(self, text):
        """The text itself: `stream_generate` finds out whether special tokens are there."""
        return text

    def ids(self, talk, *, add_generation_prompt):
        return list(
            self.tokenizer.apply_chat_template(talk, add_generation_prompt=add_generation_prompt)
        )

    def answer(self, prompt, tokens):
        """What the model was fed of a prompt, and the tokens that it answered."""
        self.seen.clear()
        found = [
            one.token
            for one in stream_generate(self.model, self.tokenizer, prompt, max_tokens=tokens)
        ]
        # It begins the next token before it gives one.
        return self.seen[: len(self.seen) - tokens], found
