"""conv1d of plain tensors, and of the same tensors sharded by input channel."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import conv1d


def convolve(context, *, tensor):
    tensors = [torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1), torch.ones(1, 4, 1)]
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        tensors = [distribute_tensor(whole, mesh, [Shard(1)]) for whole in tensors]
    found = conv1d(*tensors)
    found = found.full_tensor() if tensor == "sharded" else found
    context.emit("convolved", values=found.flatten().tolist())
