"""Gradient of amax() of a plain tensor, and of the same tensor sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def gradient(context, *, tensor):
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values = distribute_tensor(values, mesh, [Shard(0)])
    values.requires_grad_()
    values.amax().backward()
    found = values.grad.full_tensor() if tensor == "sharded" else values.grad
    context.emit("gradient", values=[str(value) for value in found.tolist()])
