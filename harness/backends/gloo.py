"""gloo: torch.distributed on the CPU, over loopback.

The harness opens the store's socket itself and hands it to rank 0 (`master_listen_fd`), so the port
is known before any rank exists, nobody else can take it, and no rank polls for it.

Each error of `peer_gone` was provoked: a rank of three was killed, exited or left before and within
each collective, a send, a receive, the store, and joining. A receive from whoever sends, and a join
that lacks a rank, hang instead.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from harness.backends.backend import (
    FIRST_PORT,
    LOOPBACK,
    OF_TORCHS_STORE,
    WIRE,
    Backend,
    BackendProperties,
    Opened,
    PeerGone,
    Ports,
    Rendezvous,
)
from harness.forms.distribution import missing
from harness.forms.strict_json import JSON
from harness.reason import Skip, SkipCode

INTERFACE = "lo0" if os.uname().sysname == "Darwin" else "lo"


class Gloo(Backend):
    """See the module."""

    description: ClassVar = "torch.distributed on the CPU"
    properties: ClassVar = BackendProperties(
        modules=("torch", "torch.distributed"),
        makes_a_group=True,
        portable=True,
        unbounded="",
        unobserved="",
        runs_calls_later="",
        peer_gone=(
            # monitored_barrier quotes it below words of its own.
            PeerGone(
                "RuntimeError",
                r"gloo/transport/.*(Connection (closed|reset) by peer|Broken pipe|Connection"
                r" refused)",
            ),
            *OF_TORCHS_STORE,
        ),
    )
    inside_file: ClassVar = Path(__file__).with_name("torch_inside.py")

    def refusal(self, *, size: int) -> Skip | None:
        del size
        lacks = missing("torch")
        return Skip(SkipCode.BACKEND_LIBRARY, lacks) if lacks else None

    def prepare(self, *, size: int, ports: Ports) -> Rendezvous:
        del ports
        return rendezvous(size, interface="GLOO_SOCKET_IFNAME")

    def prepare_across(self, *, addresses: Sequence[str]) -> Rendezvous:
        return rendezvous_over(
            addresses,
            [FIRST_PORT] * len(addresses),
            [WIRE] * len(addresses),
            interface="GLOO_SOCKET_IFNAME",
        )

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        return rendezvous_over(addresses, ports, interfaces, interface="GLOO_SOCKET_IFNAME")


def rendezvous(size: int, *, interface: str) -> Rendezvous:
    """Return the store's socket, and what each rank is given of it.

    Args:
        size: world size.
        interface: the variable in which the library looks for the network interface.
    """
    listener = socket.create_server((LOOPBACK, 0), backlog=4 * size)
    port = listener.getsockname()[1]
    return Rendezvous(
        ranks=[_of_rank(rank, address=LOOPBACK, port=port) for rank in range(size)],
        # Rank 0 serves the store on it; whoever hands it over closes it here.
        descriptors=[listener.detach()],
        env=[{interface: INTERFACE}] * size,
    )


def rendezvous_over(
    addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str], *, interface: str
) -> Rendezvous:
    """Return the same for ranks on several hosts: the store's socket listens on the host of rank 0.

    Args:
        addresses: the address of each rank's host.
        ports: for each rank, one of its host's that nobody else takes.
        interfaces: for each rank, the network interface that has the address.
        interface: the variable in which the library looks for the network interface.
    """
    size = len(addresses)
    return Rendezvous(
        ranks=[_of_rank(rank, address=addresses[0], port=ports[0]) for rank in range(size)],
        opened=[Opened(rank=0, port=ports[0], backlog=4 * size)],
        env=[{interface: name} for name in interfaces],
    )


def _of_rank(rank: int, *, address: str, port: int) -> dict[str, JSON]:
    return {"address": address, "port": port, "listener": {"descriptor": 0} if rank == 0 else None}
