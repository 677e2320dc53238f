"""A subject whose ranks add and gather numbers that tell rank and step, in one loop of calls."""

import os


def sums(context, *, steps=12, count=8):
    """Each step one sum; what came of each is emitted."""
    import torch
    import torch.distributed as dist

    found = []
    context.emit("door")
    for step in range(steps):
        values = (torch.arange(count) + 100 * context.rank + 1000 * step).to(torch.float32)
        dist.all_reduce(values)
        found.append(values.tolist())
    context.emit("summed", found=found)


def sums_of_mlx(context, *, steps=12, count=8):
    """The same over a ring."""
    import mlx.core as mx

    found = []
    context.emit("door")
    for step in range(steps):
        values = (mx.arange(count) + 100 * context.rank + 1000 * step).astype(mx.float32)
        found.append(mx.distributed.all_sum(values, group=context.group.native).tolist())
    context.emit("summed", found=found)


def one_sided(context):
    """What cannot be struck: a root's payload on another rank, a maximum, and what is the same once
    more.
    """
    import torch
    import torch.distributed as dist

    context.emit("door")
    same = torch.zeros(4)
    dist.broadcast(same, 0)
    dist.all_reduce(same, op=dist.ReduceOp.MAX)
    dist.all_gather([torch.zeros(4) for _ in range(context.size)], same)
    dist.all_gather([torch.zeros(4) for _ in range(context.size)], same)
    os.environ["CALLS"] = "done"
    context.emit("after")


def left_alone(context):
    """Rank 1 is gone, and its peer stands in a call."""
    import signal

    import torch
    import torch.distributed as dist

    dist.barrier()
    context.emit("door")
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))
