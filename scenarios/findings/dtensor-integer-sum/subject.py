"""Sum of two plain int64 tensors, and of the same tensors, one sharded and one replicated."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def add(context, *, tensor):
    values, other = torch.full((4, 1), 5000001), torch.tensor([16777217])
    if tensor == "sharded":
        mesh = init_device_mesh("cpu", (context.size,))
        values = distribute_tensor(values, mesh, [Shard(0)])
        other = distribute_tensor(other, mesh, [Replicate()])
    found = values.sum(0) + other
    found = found.full_tensor() if tensor == "sharded" else found
    context.emit("added", values=[int(value) for value in found.tolist()], dtype=str(found.dtype))
