"""mse_loss of 3 rows in a plain tensor, and of the same rows sharded."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import mse_loss


def loss(context, *, tensor):
    values, target = torch.tensor([[0.0], [0.0], [3.0]]), torch.zeros(3, 1)
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values, target = (distribute_tensor(whole, mesh, [Shard(0)]) for whole in (values, target))
    found = mse_loss(values, target)
    context.emit("loss", value=(found.full_tensor() if tensor == "sharded" else found).item())
