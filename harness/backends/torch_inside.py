"""Half of `gloo` and `nccl` inside a rank: the default process group of torch.distributed, joined
over a store of the harness without asking a name server.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.rank.spec import RankSpec

SERVICES = Path("/etc/nsswitch.conf")
# Where the scenario sets no bound, the world's deadline is the judge of a hang. This only has to be
# longer than the longest deadline that a scenario may set.
TIMEOUT = dt.timedelta(hours=2)


@contextlib.contextmanager
def without_name_server() -> Iterator[None]:
    """Look up names in this machine's own file of hosts alone, and afterwards as configured again.

    Nothing changes where the C library has no such switch, or nsswitch.conf(5) has no line for it.
    """
    # In glibc, declared in nss.h.
    configure = getattr(ctypes.CDLL(None), "__nss_configure_lookup", None)
    text = SERVICES.read_bytes() if os.access(SERVICES, os.R_OK) else b""
    usual = re.search(rb"^\s*hosts:\s*(\S[^#\n]*)", text, re.MULTILINE)
    if configure is None or usual is None:
        yield
        return
    configure(b"hosts", b"files")
    try:
        yield
    finally:
        configure(b"hosts", usual[1])


class TorchGroup:
    """Group that is joined. What it sends is on `device`."""

    def __init__(self, device: str = "cpu") -> None:
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
        self.native.barrier()

    def all_gather(self, data: bytes) -> list[bytes]:
        import torch

        lengths = [int(row) for row in self._gather(torch.tensor([len(data)], dtype=torch.int64))]
        mine = torch.frombuffer(bytearray(data.ljust(max(1, *lengths), b"\0")), dtype=torch.uint8)
        return [
            bytes(row[:size].tolist())
            for row, size in zip(self._gather(mine), lengths, strict=True)
        ]

    def leave(self) -> None:
        self.native.destroy_process_group()

    def _gather(self, mine: Any) -> list[Any]:
        """Return every rank's tensor, in rank order, back on the CPU."""
        import torch

        sent = mine.to(self._device)
        everyone = [torch.zeros_like(sent) for _ in range(self.size)]
        self.native.all_gather(everyone, sent)
        return [row.cpu() for row in everyone]


def join_default_group(backend: str, spec: RankSpec, **options: Any) -> None:
    """Join the group; returns when every rank is there.

    Args:
        backend: as torch calls it.
        spec: of this rank; the harness made the socket of the store that it names.
        options: what else `init_process_group` takes for this backend.
    """
    import torch.distributed

    # Not declared by the module, though documented:
    # https://docs.pytorch.org/docs/stable/distributed.html
    distributed: Any = torch.distributed
    listener = spec.rendezvous["listener"]
    # TCPStore writes the name of whatever it connects to into its log. That of 127.0.0.1 in the
    # form of IPv6 stands in no file: each rank would ask a name server, and wait 5 s for an answer
    # that is lost (docs/adr/0045).
    with without_name_server():
        store = distributed.TCPStore(
            spec.rendezvous["address"],
            spec.rendezvous["port"],
            world_size=spec.size,
            is_master=listener is not None,
            timeout=TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=listener,
        )
    timeout = TIMEOUT
    if spec.collective_timeout is not None:
        timeout = dt.timedelta(seconds=spec.collective_timeout)
    distributed.init_process_group(
        backend, store=store, rank=spec.rank, world_size=spec.size, timeout=timeout, **options
    )


class NcclGroup(TorchGroup):
    """Default process group; this rank's tensors live on its own GPU."""

    def barrier(self) -> None:
        import torch

        device = torch.device(self._device)
        self.native.barrier(device_ids=[device.index])
        # The call only puts the barrier into the GPU's queue.
        torch.cuda.synchronize(device)


def join(spec: RankSpec) -> TorchGroup:
    """Join the group; returns when every rank is there.

    With nccl this rank takes the GPU of its number.
    """
    if spec.backend != "nccl":
        join_default_group("gloo", spec)
        return TorchGroup()
    import torch

    device = torch.device("cuda", spec.rank)
    torch.cuda.set_device(device)
    join_default_group("nccl", spec, device_id=device)
    return NcclGroup(str(device))
