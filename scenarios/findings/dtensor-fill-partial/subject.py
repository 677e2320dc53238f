"""fill_() of the column sums of a plain tensor, and of the same tensor sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def fill(context, *, tensor):
    values = torch.ones(4, 2)
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values = distribute_tensor(values, mesh, [Shard(0)])
    sums = values.sum(0)
    sums.fill_(3.0)
    found = sums.full_tensor() if tensor == "sharded" else sums
    context.emit("filled", values=found.tolist())
