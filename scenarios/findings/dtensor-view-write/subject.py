"""Write to a slice of a plain tensor, and of the same tensor sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def write(context, *, tensor):
    values = torch.arange(6.0)
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values = distribute_tensor(values, mesh, [Shard(0)])
    values[1:3].mul_(10)
    found = values.full_tensor() if tensor == "sharded" else values
    context.emit("written", values=found.tolist())
