"""any() of a plain tensor as a float, and of the same tensor sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def convert(context, *, tensor):
    values = torch.ones(4) > 0
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values = distribute_tensor(values, mesh, [Shard(0)])
    found = values.any().float()
    context.emit("converted", value=(found.full_tensor() if tensor == "sharded" else found).item())
