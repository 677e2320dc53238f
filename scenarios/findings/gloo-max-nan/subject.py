"""Maximum over all ranks, of which one holds a NaN."""

import torch
import torch.distributed as dist


def largest(context, *, holder):
    value = torch.tensor([float("nan") if context.rank == holder else 1.0])
    dist.all_reduce(value, dist.ReduceOp.MAX)
    context.emit("largest", value=str(value.item()))
