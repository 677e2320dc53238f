"""mlx-lm's BatchGenerator and LRUPromptCache, as its server has them, over a model that mlx-lm has
split.
"""

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.generate import BatchGenerator, GenerationBatch
from mlx_lm.models.cache import LRUPromptCache

STEP, TOGETHER, MODEL = 3, 4, "recall"
"""Tokens of a prompt at a time, how many prompts, so that they are read in parts.

Under which name caches are kept.
"""


class Batched:
    """The engine of a rank.

    Attributes:
        seen: how often each situation came about.
    """

    name = "mlx-lm"

    def __init__(self, context, whole):
        self.whole, self.seen = whole, {"leaving": 0, "hit": 0, "cancel": 0}
        self.model, _ = utils.sharded_load(context.inputs["model"], None, context.group.native)
        self.model.set_dtype(mx.float32)
        mx.eval(self.model.parameters())

    def held(self):
        """How many numbers of the model this rank has, and how many there are."""
        return sum(value.size for _, value in tree_flatten(self.model.parameters())), self.whole

    def serve(self, rounds, defect):
        """Every answer, in the order of the requests.

        All ranks are told the same, in the same order.
        """
        watch(self.seen)
        if defect == "leaving":
            other_rows()
        sizes = {
            "completion_batch_size": 8,
            "prefill_batch_size": TOGETHER,
            "prefill_step_size": STEP,
        }
        self.generator = BatchGenerator(self.model, **sizes)
        self.cache, self.left, answers = LRUPromptCache(), None, []
        for requests in rounds:
            found = self.answered(requests, defect)
            answers += [found[at] for at, request in enumerate(requests) if not request.cancelled]
        self.generator.close()
        return answers

    def answered(self, requests, defect):
        """The answers of requests that come together, by their place."""
        names, found, gone = {}, {}, set()
        for at, request in enumerate(requests):
            cache, rest = self.cache.fetch_nearest_cache(MODEL, request.prompt)
            shared = request.prompt[: len(request.prompt) - len(rest)]
            self.seen["hit"] += len(shared) > 1  # all begin alike
            if defect == "hit" and shared and len(rest) > 1:
                # The prefix is taken to be one token longer, and that token is not read.
                rest = rest[1:]
            if defect == "cancel" and self.left is not None:
                # What was the cache of a cancelled request is not emptied.
                cache, self.left = self.left, None
            caches = None if cache is None else [cache]
            (name,) = self.generator.insert(
                [rest], [request.tokens], caches=caches, all_tokens=[shared]
            )
            names[name], found[at] = at, []
        while len(gone) < len(requests):
            for response in self.generator.next_generated():
                at = names[response.uid]
                found[at].append(response.token)
                if requests[at].cancelled:
                    removed = self.generator.remove([response.uid], return_prompt_caches=True)
                    self.left, tokens = removed[response.uid]
                    self.cache.insert_cache(MODEL, tokens[:], self.left)
                    self.seen["cancel"] += 1
                    gone.add(at)
                elif response.finish_reason is not None:
                    self.cache.insert_cache(MODEL, response.all_tokens[:], response.prompt_cache)
                    gone.add(at)
        return found


def watch(seen):
    """Count how often a request leaves others."""
    keep_right = GenerationBatch.filter

    def kept(batch, keep):
        seen["leaving"] += 0 < len(keep) < len(batch)
        keep_right(batch, keep)

    GenerationBatch.filter = kept


def other_rows():
    """Once a request has left, the rows of the cache are those of the others' neighbours."""
    keep_right = GenerationBatch.filter

    def moved(batch, keep):
        keep_right(batch, keep)
        for cache in batch.prompt_cache if len(keep) > 1 else ():
            cache.filter([*range(1, len(keep)), 0])

    GenerationBatch.filter = moved
