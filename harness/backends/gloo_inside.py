"""The half of `gloo` inside a rank."""

from __future__ import annotations

from typing import Any

from harness.rank.spec import RankSpec
from harness.rank.torch_store import TIMEOUT, store


class GlooGroup:
    """The default process group of torch.distributed."""

    def __init__(self) -> None:
        import torch.distributed

        self.native: Any = torch.distributed

    @property
    def rank(self) -> int:
        return int(self.native.get_rank())

    @property
    def size(self) -> int:
        return int(self.native.get_world_size())

    def barrier(self) -> None:
        self.native.barrier()

    def all_gather(self, data: bytes) -> list[bytes]:
        import torch

        length = torch.tensor([len(data)], dtype=torch.int64)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self.native.all_gather(lengths, length)
        longest = max(1, *(int(found) for found in lengths))
        mine = torch.zeros(longest, dtype=torch.uint8)
        if data:
            mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        everyone = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        self.native.all_gather(everyone, mine)
        return [bytes(found[: int(size)].tolist()) for found, size in zip(everyone, lengths, strict=True)]

    def leave(self) -> None:
        self.native.destroy_process_group()


def join(spec: RankSpec) -> GlooGroup:
    """Join the group; returns when every rank is there."""
    import torch.distributed

    distributed: Any = torch.distributed
    distributed.init_process_group("gloo", store=store(spec), rank=spec.rank, world_size=spec.size, timeout=TIMEOUT)
    return GlooGroup()
