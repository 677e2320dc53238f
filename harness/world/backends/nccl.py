"""nccl: torch.distributed on NVIDIA GPUs, one per rank, over loopback.

Written after gloo's half and not run yet: no machine with a GPU was at hand. What is tested is its refusal.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from harness.backends.nccl import PROPERTIES
from harness.rank.spec import RankSpec
from harness.reason import Skip, SkipCode
from harness.world.backends import Backend, Rendezvous, gloo

if TYPE_CHECKING:  # it needs filelock, and a rank imports this in an environment that may not have it
    from harness.world.ports import PortLease

ANSWER_WITHIN = 20.0


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


class Nccl:
    """See the module."""

    name = "nccl"
    properties = PROPERTIES

    def refusal(self, *, size: int) -> Skip | None:
        if importlib.util.find_spec("torch") is None:
            return Skip(SkipCode.BACKEND_LIBRARY, "torch is not installed here")
        # What torch was built with stands in its version; importing it to ask would cost the harness seconds.
        if (version := importlib.metadata.version("torch")).endswith("+cpu"):
            return Skip(SkipCode.BACKEND_LIBRARY, f"torch {version} is built without CUDA")
        if (found := gpus()) < size:
            here = f"{found or 'no'} NVIDIA GPU{'' if found == 1 else 's'} here"
            return Skip(SkipCode.CELL_GPUS, f"nccl needs a GPU per rank: {size} ranks, {here}")
        return None

    def prepare(self, *, size: int, ports: PortLease) -> Rendezvous:
        found = gloo.BACKEND.prepare(size=size, ports=ports)
        return Rendezvous(
            ranks=found.ranks,
            descriptors=found.descriptors,
            env=[{"NCCL_SOCKET_IFNAME": gloo.INTERFACE}] * size,
        )

    def join(self, spec: RankSpec) -> NcclGroup:
        import torch
        import torch.distributed

        distributed: Any = torch.distributed
        device = torch.device("cuda", spec.rank)
        torch.cuda.set_device(device)
        distributed.init_process_group(
            "nccl",
            store=gloo.store(spec),
            rank=spec.rank,
            world_size=spec.size,
            timeout=gloo.TIMEOUT,
            device_id=device,
        )
        return NcclGroup(device)


@functools.cache
def gpus() -> int:
    """How many NVIDIA GPUs the ranks would see: what the driver lists, and CUDA_VISIBLE_DEVICES leaves of it."""
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        command = ["nvidia-smi", "--list-gpus"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    listed = sum(line.startswith("GPU ") for line in answer.stdout.splitlines()) if answer.returncode == 0 else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed if visible is None else min(listed, len([name for name in visible.split(",") if name.strip()]))


BACKEND: Backend = Nccl()
