"""Infinity norm of the column maximum of a plain tensor, and of the same tensor sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def norm(context, *, tensor):
    values = torch.tensor([[1.0], [-5.0]])
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values = distribute_tensor(values, mesh, [Shard(0)])
    found = values.amax(0).norm(float("inf"))
    context.emit("norm", value=(found.full_tensor() if tensor == "sharded" else found).item())
