"""What a model sends to other ranks, over gloo and over MLX's ring: torch's tensors in, torch's
tensors out.
"""

import torch


class GlooWire:
    """torch.distributed."""

    def __init__(self, context, dtype):
        self.dist, self.size, self.dtype = context.group.native, context.size, dtype

    def summed(self, tensor):
        total = tensor.clone()
        self.dist.all_reduce(total)
        return total

    def joined(self, tensor):
        """The parts of all ranks side by side, along the last axis."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        self.dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, -1)

    def give(self, tensor, rank):
        self.dist.send(tensor.contiguous(), rank)

    def take(self, shape, rank):
        tensor = torch.empty(shape, dtype=self.dtype)
        self.dist.recv(tensor, rank)
        return tensor


class RingWire:
    """MLX, which is lazy: each call is evaluated at once."""

    def __init__(self, context, dtype):
        import mlx.core as mx

        self.mx, self.group, self.dtype = mx, context.group.native, dtype

    def summed(self, tensor):
        return self.back(self.mx.distributed.all_sum(self.over(tensor), group=self.group))

    def joined(self, tensor):
        # Along the first axis, which is that of MLX.
        return self.back(
            self.mx.distributed.all_gather(self.over(tensor.T), group=self.group)
        ).T.contiguous()

    def give(self, tensor, rank):
        self.mx.eval(self.mx.distributed.send(self.over(tensor), rank, group=self.group))

    def take(self, shape, rank):
        dtype = self.mx.bfloat16 if self.dtype == torch.bfloat16 else self.mx.float32
        return self.back(self.mx.distributed.recv(shape, dtype, rank, group=self.group))

    def over(self, tensor):
        tensor = tensor.contiguous()
        if tensor.dtype == torch.bfloat16:
            return self.mx.array(tensor.view(torch.int16).numpy()).view(self.mx.bfloat16)
        return self.mx.array(tensor.numpy())

    def back(self, array):
        self.mx.eval(array)
        if array.dtype == self.mx.bfloat16:
            return torch.frombuffer(
                bytearray(memoryview(array.view(self.mx.int16))), dtype=torch.bfloat16
            ).view(*array.shape)
        return torch.frombuffer(bytearray(memoryview(array)), dtype=torch.float32).view(
            *array.shape
        )


WIRES = {"gloo": GlooWire, "mlx-ring": RingWire}
