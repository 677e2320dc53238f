"""The half of `nccl` inside a rank."""

from __future__ import annotations

from typing import Any

from harness.rank.spec import RankSpec
from harness.rank.torch_store import TIMEOUT, store


class NcclGroup:
    """The default process group of torch.distributed; this rank's tensors live on its own GPU."""

    def __init__(self, device: Any) -> None:
        import torch.distributed

        self.native: Any = torch.distributed
        self._device = device

    @property
    def rank(self) -> int:
        return int(self.native.get_rank())

    @property
    def size(self) -> int:
        return int(self.native.get_world_size())

    def barrier(self) -> None:
        import torch

        self.native.barrier(device_ids=[self._device.index])
        # The call only puts the barrier into the GPU's queue.
        torch.cuda.synchronize(self._device)

    def all_gather(self, data: bytes) -> list[bytes]:
        import torch

        lengths = self._gather(torch.tensor([len(data)], dtype=torch.int64))
        longest = max(1, *(int(found) for found in lengths))
        mine = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
        return [bytes(found[: int(size)].tolist()) for found, size in zip(self._gather(mine), lengths, strict=True)]

    def leave(self) -> None:
        self.native.destroy_process_group()

    def _gather(self, mine: Any) -> list[Any]:
        """Every rank's tensor, in rank order, back on the CPU."""
        import torch

        sent = mine.to(self._device)
        everyone = [torch.zeros_like(sent) for _ in range(self.size)]
        self.native.all_gather(everyone, sent)
        return [found.cpu() for found in everyone]


def join(spec: RankSpec) -> NcclGroup:
    """Join the group with the GPU of the rank's number; returns when every rank is there."""
    import torch
    import torch.distributed

    distributed: Any = torch.distributed
    device = torch.device("cuda", spec.rank)
    torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl", store=store(spec), rank=spec.rank, world_size=spec.size, timeout=TIMEOUT, device_id=device
    )
    return NcclGroup(device)
