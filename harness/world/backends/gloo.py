"""gloo: torch.distributed on the CPU, over loopback.

The harness opens the store's socket itself and hands it to rank 0 (`master_listen_fd`), so the port is known before any
rank exists, nobody else can take it, and no rank polls for it.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import socket
from typing import TYPE_CHECKING, Any

from harness.backends.gloo import PROPERTIES
from harness.rank.spec import RankSpec
from harness.reason import Skip, SkipCode
from harness.world.backends import Backend, Rendezvous

if TYPE_CHECKING:  # it needs filelock, and a rank imports this in an environment that may not have it
    from harness.world.ports import PortLease

LOOPBACK = "127.0.0.1"
INTERFACE = "lo0" if os.uname().sysname == "Darwin" else "lo"
# The world's deadline is the judge of a hang. This only has to be longer than the longest deadline a scenario may set.
TIMEOUT = dt.timedelta(hours=2)


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


class Gloo:
    """See the module."""

    name = "gloo"
    properties = PROPERTIES

    def refusal(self, *, size: int) -> Skip | None:
        del size
        if importlib.util.find_spec("torch"):
            return None
        return Skip(SkipCode.BACKEND_LIBRARY, "torch is not installed here")

    def prepare(self, *, size: int, ports: PortLease) -> Rendezvous:
        del ports
        listener = socket.create_server((LOOPBACK, 0), backlog=4 * size)
        port = listener.getsockname()[1]
        return Rendezvous(
            ranks=[{"port": port, "listener": {"descriptor": 0} if rank == 0 else None} for rank in range(size)],
            descriptors=[listener.detach()],
            env=[{"GLOO_SOCKET_IFNAME": INTERFACE}] * size,
        )

    def join(self, spec: RankSpec) -> GlooGroup:
        import torch.distributed

        distributed: Any = torch.distributed
        distributed.init_process_group("gloo", store=store(spec), rank=spec.rank, world_size=spec.size, timeout=TIMEOUT)
        return GlooGroup()


def store(spec: RankSpec) -> Any:
    """Connect to the store that `prepare` made the socket of."""
    import torch.distributed

    # Not declared by the module, though documented: https://docs.pytorch.org/docs/stable/distributed.html
    distributed: Any = torch.distributed
    port, listener = spec.rendezvous["port"], spec.rendezvous["listener"]
    return distributed.TCPStore(
        LOOPBACK,
        port,
        world_size=spec.size,
        is_master=listener is not None,
        timeout=TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener,
    )


BACKEND: Backend = Gloo()
