"""mlx-lm's generation as its server does it, over a model that mlx-lm has split, or that each rank
has whole.
"""

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.generate import BatchGenerator, StopSequences, make_stop_sequences


class MlxLm:
    """The engine of a rank."""

    name = "mlx-lm"

    def __init__(self, context, folder):
        if context.backend == "none":
            self.model, self.tokenizer = utils.load(folder)
        else:
            self.model, self.tokenizer = utils.sharded_load(folder, None, context.group.native)
        self.model.set_dtype(mx.float32)
        mx.eval(self.model.parameters())

    def held(self):
        """How many numbers of the model this rank has."""
        return sum(value.size for _, value in tree_flatten(self.model.parameters()))

    def answer(self, prompt, *, read_eos, stops, limit, by_token):
        """The ids of an answer and why it ended; EOS ids are those that mlx-lm read from the
        folder.
        """
        if not read_eos:
            ends = StopSequences([[self.tokenizer.eos_token_id]])
        else:
            ends = make_stop_sequences(self.tokenizer, () if by_token else stops)
        generator = BatchGenerator(self.model)
        generator.insert([prompt], [limit], stop_sequences=[ends])
        found, reason = [], None
        while reason is None:
            (response,) = generator.next_generated()
            found.append(response.token)
            reason = response.finish_reason
            if by_token and any(stop in self.tokenizer.decode([response.token]) for stop in stops):
                reason = "stop"
        generator.close()
        return found, reason
