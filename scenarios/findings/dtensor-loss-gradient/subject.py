"""Gradient of mse_loss of plain tensors, and of the same tensors sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import mse_loss


def gradient(context, *, tensor):
    values, target = torch.ones(4), torch.zeros(4)
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values, target = (distribute_tensor(whole, mesh, [Shard(0)]) for whole in (values, target))
    values.requires_grad_()
    mse_loss(values, target).backward()
    found = values.grad.full_tensor() if tensor == "sharded" else values.grad
    context.emit("gradient", values=found.tolist())
