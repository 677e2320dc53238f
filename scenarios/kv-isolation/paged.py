"""transformers' continuous batching over a model that its tensor-parallel plan has split: pages
that requests share.
"""

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.scheduler import Scheduler

PAGE, PAGES, TOKENS = 4, 96, 8
"""Tokens of a page, pages of the cache, tokens of a batch: prompts are read in parts, between the
steps of others.
"""
NEVER = -1
"""The id of a token that ends an answer: none does."""


class Paged:
    """The engine of a rank.

    Attributes:
        seen: how often each situation came about.
    """

    name = "transformers"

    def __init__(self, context, whole):
        self.whole, self.seen = whole, {"leaving": 0, "hit": 0, "cancel": 0}
        given = {"dtype": torch.float32, "local_files_only": True}
        if context.size > 1:
            from transformers.distributed.configuration_utils import DistributedConfig

            given["distributed_config"] = DistributedConfig(tp_size=context.size, tp_plan="auto")
        self.model = AutoModelForCausalLM.from_pretrained(context.inputs["model"], **given).eval()

    def held(self):
        """How many numbers of the model this rank has, and how many there are."""
        parts = [
            one.to_local() if hasattr(one, "to_local") else one for one in self.model.parameters()
        ]
        return sum(part.numel() for part in parts), self.whole

    def alone(self, request):
        """An answer by `generate`."""
        ids = torch.tensor([request.prompt])
        given = {
            "attention_mask": torch.ones_like(ids),
            "do_sample": False,
            "eos_token_id": NEVER,
            "pad_token_id": 2,
        }
        with torch.no_grad():
            found = self.model.generate(ids, max_new_tokens=request.tokens, **given)
        return found[0, len(request.prompt) :].tolist()

    def serve(self, rounds, defect):
        """Every answer, in the order of the requests. Rank 0 is told of requests and cancels.

        All ranks compute.
        """
        watch(self.seen)
        if defect:
            BREAK[defect](self.seen)
        config = GenerationConfig(
            max_new_tokens=4, do_sample=False, eos_token_id=NEVER, pad_token_id=2
        )
        batching = ContinuousBatchingConfig(
            page_size=PAGE, num_blocks=PAGES, max_batch_tokens=TOKENS
        )
        manager = self.model.init_continuous_batching(
            generation_config=config, continuous_batching_config=batching
        )
        manager.start()
        answers = []
        try:
            for number, requests in enumerate(rounds):
                found = answered(manager, number, requests)
                answers += [
                    found[at] for at, request in enumerate(requests) if not request.cancelled
                ]
        finally:
            manager.stop()
            manager.destroy()
        return answers


def answered(manager, number, requests):
    """The answers of requests that come together, by their place."""
    names = {f"{number}.{at}": at for at in range(len(requests))}
    for name, at in names.items():
        given = {"max_new_tokens": requests[at].tokens, "streaming": requests[at].cancelled}
        manager.add_request(requests[at].prompt, request_id=name, **given)
    found, left = {}, set()
    while len(found) + len(left) < len(requests):
        result = manager.get_result(timeout=60)
        assert result is not None, "the generation thread ended"
        assert result.error is None, result.error
        at = names.get(result.request_id)
        if at is None or at in left:
            continue  # what was under way when its client left
        if requests[at].cancelled:
            manager.cancel_request(result.request_id)
            left.add(at)
        elif result.is_finished():
            found[at] = list(result.generated_tokens)
    return found


def watch(seen):
    """Count what happens."""
    search, free = PagedAttentionCache.search_prefix_match, PagedAttentionCache.free_blocks
    clear = Scheduler.clear_cancelled_requests

    def searched(cache, request_id, prompt_ids):
        length = search(cache, request_id, prompt_ids)
        seen["hit"] += length > 0
        return length

    def freed(cache, request_id, no_cache=False):
        free(cache, request_id, no_cache)
        seen["leaving"] += any(
            allocator.block_table for allocator in cache.cache_allocators.values()
        )

    def cleared(scheduler):
        cancelled = clear(scheduler)
        seen["cancel"] += len(cancelled)
        return cancelled

    PagedAttentionCache.search_prefix_match, PagedAttentionCache.free_blocks = searched, freed
    Scheduler.clear_cancelled_requests = cleared


def other_rows(seen):
    """Once a request has left, the others read the pages of their neighbours."""
    indices = PagedAttentionCache.extend_read_and_write_indices

    def moved(cache, request_id, past_length, query_length, read_index, write_index):
        indices(cache, request_id, past_length, query_length, None, write_index)
        for allocator, reads in zip(
            cache.cache_allocators.values(), read_index or (), strict=False
        ):
            needed = len(allocator.block_table[request_id])
            rows = [name for name, pages in allocator.block_table.items() if len(pages) >= needed]
            mine = rows[(rows.index(request_id) + bool(seen["leaving"])) % len(rows)]
            reads.extend(allocator.get_read_indices(mine, past_length, query_length))

    PagedAttentionCache.extend_read_and_write_indices = moved


def long_prefix(_seen):
    """What was found of a prompt is taken to be one token longer, and that token is not read."""
    search = PagedAttentionCache.search_prefix_match

    def longer(cache, request_id, prompt_ids):
        length = search(cache, request_id, prompt_ids)
        return length + 1 if length else 0

    PagedAttentionCache.search_prefix_match = longer


def freed_twice(_seen):
    """The pages of a cancelled request are freed twice, so that two who come later get the same
    ones.
    """
    clear = Scheduler.clear_cancelled_requests

    def twice(scheduler):
        pages = {
            name: [
                list(allocator.block_table.get(name, ()))
                for allocator in scheduler.cache.cache_allocators.values()
            ]
            # It is what the defect is about.
            for name in scheduler._requests_to_cancel  # noqa: SLF001
        }
        cancelled = clear(scheduler)
        for tables in pages.values():
            for allocator, table in zip(
                scheduler.cache.cache_allocators.values(), tables, strict=True
            ):
                allocator.pool.free_blocks(allocator.index, table * 2)
        return cancelled

    Scheduler.clear_cancelled_requests = twice


BREAK = {"leaving": other_rows, "hit": long_prefix, "cancel": freed_twice}
