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
from typing import ClassVar

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
from harness.forms.strict_json import JSON
from harness.reason import Skip, SkipCode


class MlxRing(Backend):
    """See the module."""

    description: ClassVar = "MLX's ring, on the CPU or Metal"
    properties: ClassVar = BackendProperties(
        modules=("mlx.core",),
        makes_a_group=True,
        portable=False,
        unbounded="MLX's ring has no timeout, so a rank waits for its neighbours forever",
        unobserved="",
        runs_calls_later=("MLX runs a call when its result is evaluated, not when it is made"),
        peer_gone=(PeerGone("RuntimeError", r"^\[ring\] connection to a peer was lost"),),
    )
    inside_file: ClassVar = Path(__file__).with_name("mlx_ring_inside.py")

    def refusal(self, *, size: int) -> Skip | None:
        if not _is_installed():
            return Skip(SkipCode.BACKEND_LIBRARY, absence("mlx"))
        if size < 2:
            reason = (
                "an MLX ring needs at least 2 ranks, because a single rank would wait for itself"
            )
            return Skip(SkipCode.CELL_TOO_SMALL, reason)
        return None

    def prepare(self, *, size: int, ports: Ports) -> Rendezvous:
        leased = ports.take(size)
        takes_turns = sys.platform.startswith("linux")
        # Should one of them fail, the others are closed; detached, they are the caller's.
        with contextlib.ExitStack() as half_done:
            held = [half_done.enter_context(_bound(port)) for port in leased]
            ends = [half_done.enter_context(e) for e in socket.socketpair()] if takes_turns else []
            descriptors = [sock.detach() for sock in (*held, *ends)]
        places = [(LOOPBACK, port) for port in leased]
        ranks = [_of_rank(places, held=rank) for rank in range(size)]
        if takes_turns:
            for rank, descriptor in ((size - 2, size), (size - 1, size + 1)):
                ranks[rank] = _of_rank(places, held=rank, turn=descriptor)
        return Rendezvous(ranks=ranks, descriptors=descriptors, env=_numbered(size))

    def prepare_across(self, *, addresses: Sequence[str]) -> Rendezvous:
        # A host's ports are nobody else's: none needs to be held. Who listens is seen in its host's
        # table, because a rank cannot try the ports of another host.
        size = len(addresses)
        places = [(address, FIRST_PORT + rank) for rank, address in enumerate(addresses)]
        descriptors = [end.detach() for end in socket.socketpair()]
        ranks = [_of_rank(places) for _ in range(size)]
        for position, rank in enumerate((size - 2, size - 1)):
            # One to read for each of the two, for both would move the other's place in it.
            tables = [2 + position * size + other for other in range(size)]
            ranks[rank] = _of_rank(places, turn=position, tables=tables)
        opened = [Opened(rank=rank) for _ in range(2) for rank in range(size)]
        return Rendezvous(ranks=ranks, descriptors=descriptors, opened=opened, env=_numbered(size))

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        # No rank sees who listens on another machine, so the others tell the last one, where it
        # will listen itself.
        del interfaces
        size = len(addresses)
        places = list(zip(addresses, ports, strict=True))
        if not sys.platform.startswith("linux"):
            return Rendezvous(ranks=[_of_rank(places)] * size, env=_numbered(size))
        others = [_of_rank(places, across=True)] * (size - 1)
        return Rendezvous(
            ranks=[*others, _of_rank(places, across=True, door=0)],
            opened=[Opened(rank=size - 1, port=ports[-1], backlog=size)],
            env=_numbered(size),
        )


def _of_rank(
    places: Sequence[tuple[str, int]],
    *,
    held: int | None = None,
    turn: int | None = None,
    tables: Sequence[int] = (),
    across: bool = False,
    door: int | None = None,
) -> dict[str, JSON]:
    """Return what a rank reads as it joins; see `mlx_ring_inside.RingRendezvous`.

    Args:
        places: address and port of each rank.
        held: which descriptor holds the rank's port.
        turn: which is the line between the last two ranks.
        tables: which are the tables of sockets of the ranks' hosts.
        across: whether the ranks are on several machines, and take turns.
        door: which is the socket that waits for the other ranks.
    """

    def descriptor(number: int | None) -> dict[str, JSON] | None:
        return None if number is None else {"descriptor": number}

    return {
        "places": [[address, port] for address, port in places],
        "held": descriptor(held),
        "turn": descriptor(turn),
        "tables": [descriptor(table) for table in tables] or None,
        "across": across,
        "door": descriptor(door),
    }


def _numbered(size: int) -> list[dict[str, str]]:
    return [{"MLX_RANK": str(rank)} for rank in range(size)]


def _is_installed() -> bool:
    """Return whether MLX and a library for this machine are there: on Linux, `mlx` alone comes
    without one.
    """
    package = importlib.util.find_spec("mlx")
    if package is None or importlib.util.find_spec("mlx.core") is None:
        return False
    return any(Path(folder, "lib").is_dir() for folder in package.submodule_search_locations or ())


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
