"""mlx-ring: MLX's ring over loopback, a TCP connection from each rank to the next.

On the CPU, or Metal on a Mac.

The harness leases a port per rank and keeps it bound until the rank has joined, so nobody else can
take it.

Each error of `peer_gone` was provoked as gloo's were. A send to a rank that is gone raises nothing,
and a join that lacks a rank hangs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness.backends.backend import (
    FIRST_PORT,
    LOOPBACK,
    Backend,
    BackendProperties,
    Opened,
    PeerGone,
    Ports,
    Rendezvous,
)
from harness.forms.distribution import absence
from harness.reason import Skip, SkipCode


class MlxRing(Backend):
    """See the module."""

    description: ClassVar = "MLX's ring, on the CPU or Metal"
    properties: ClassVar = BackendProperties(
        modules=("mlx.core",),
        makes_a_group=True,
        portable=False,
        unbounded="MLX gives its ring no bound: a rank waits for its neighbours for ever",
        unobserved="",
        runs_calls_later=(
            "MLX runs a call when something is evaluated that needs it, not when it is made"
        ),
        peer_gone=(PeerGone("RuntimeError", r"^\[ring\] connection to a peer was lost"),),
    )
    inside_file: ClassVar = Path(__file__).with_name("mlx_ring_inside.py")

    def refusal(self, *, size: int) -> Skip | None:
        if not _is_installed():
            return Skip(SkipCode.BACKEND_LIBRARY, absence("mlx"))
        if size < 2:
            reason = "an MLX ring has at least 2 ranks: alone, a rank would wait for itself"
            return Skip(SkipCode.CELL_TOO_SMALL, reason)
        return None

    def prepare(self, *, size: int, ports: Ports) -> Rendezvous:
        leased = ports.take(size)
        turn = sys.platform.startswith("linux")
        with contextlib.ExitStack() as half_done:
            held = [half_done.enter_context(_bound(port)) for port in leased]
            ends = [half_done.enter_context(end) for end in socket.socketpair()] if turn else []
            descriptors = [sock.detach() for sock in (*held, *ends)]
        ranks: list[dict[str, Any]] = [
            {
                "places": [(LOOPBACK, port) for port in leased],
                "held": {"descriptor": rank},
                "turn": None,
                "tables": None,
            }
            for rank in range(size)
        ]
        if turn:
            ranks[-2]["turn"] = {"descriptor": size}
            ranks[-1]["turn"] = {"descriptor": size + 1}
        return Rendezvous(ranks=ranks, descriptors=descriptors, env=_numbered(size))

    def prepare_across(self, *, addresses: Sequence[str]) -> Rendezvous:
        # A host's ports are nobody else's: none needs to be held. Who listens is seen in its host's
        # table, because a rank cannot try the ports of another host.
        size = len(addresses)
        places = [[address, FIRST_PORT + rank] for rank, address in enumerate(addresses)]
        with contextlib.ExitStack() as half_done:
            descriptors = [half_done.enter_context(end).detach() for end in socket.socketpair()]
        ranks: list[dict[str, Any]] = [
            {"places": places, "held": None, "turn": None, "tables": None} for _ in range(size)
        ]
        for position, rank in enumerate((size - 2, size - 1)):
            # One to read for each of the two, for both would move the other's place in it.
            ranks[rank]["turn"] = {"descriptor": position}
            ranks[rank]["tables"] = [
                {"descriptor": 2 + position * size + other} for other in range(size)
            ]
        opened = [Opened(rank=rank) for _ in range(2) for rank in range(size)]
        return Rendezvous(ranks=ranks, descriptors=descriptors, opened=opened, env=_numbered(size))

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        # No rank sees who listens on another machine, so the others tell the last one, where it
        # will listen itself.
        del interfaces
        size = len(addresses)
        places = list(map(list, zip(addresses, ports, strict=True)))
        across = sys.platform.startswith("linux")
        shared: dict[str, Any] = {
            "places": places,
            "held": None,
            "turn": None,
            "tables": None,
            "across": across,
        }
        last = {**shared, "door": {"descriptor": 0}} if across else shared
        opened = [Opened(rank=size - 1, port=ports[-1], backlog=size)] if across else []
        return Rendezvous(ranks=[*[shared] * (size - 1), last], opened=opened, env=_numbered(size))


def _numbered(size: int) -> list[dict[str, str]]:
    return [{"MLX_RANK": str(rank)} for rank in range(size)]


def _is_installed() -> bool:
    """Return whether MLX and a library for this machine are there: on Linux, `mlx` alone comes
    without one.
    """
    if importlib.util.find_spec("mlx") is None or importlib.util.find_spec("mlx.core") is None:
        return False
    folders = importlib.util.find_spec("mlx").submodule_search_locations or []  # type: ignore[union-attr]
    return any(Path(folder, "lib").is_dir() for folder in folders)


def _bound(port: int) -> socket.socket:
    """Return a socket that holds the port against others without listening, and lets MLX's own bind
    beside it.
    """
    with contextlib.ExitStack() as half_done:
        sock = half_done.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((LOOPBACK, port))
        half_done.pop_all()
    return sock
