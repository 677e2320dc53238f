"""More ranks than cores: some hang for good, some are only slow."""

import time


def last_stays_away(context):
    """All ranks but the last wait for it in a reduction; it waits for a message of nobody."""
    import torch
    import torch.distributed as dist

    if context.rank == context.size - 1:
        dist.recv(torch.ones(4), src=0)
    dist.all_reduce(torch.ones(4))


def last_computes(context):
    """All ranks wait in a barrier for the last one, which computes."""
    if context.rank == context.size - 1:
        _compute(8.0)
    context.group.barrier()


def everybody_computes(context):
    """Every rank computes, and waits most of the time for its turn."""
    _compute(8.0)
    context.group.barrier()


def _compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
