"""Backends: what makes a set of processes one group.

A kind has a file, but for `none`, which is here; its half inside a rank is in a file beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.backends.backend import (
    OF_PYTHON,
    Backend,
    BackendProperties,
    Opened,
    PeerGone,
    Ports,
    Rendezvous,
)
from harness.backends.gloo import Gloo
from harness.backends.mlx_ring import MlxRing
from harness.backends.nccl import Nccl
from harness.reason import Skip, SkipCode
from harness.registry import Registry

__all__ = [
    "KINDS",
    "Backend",
    "BackendProperties",
    "Opened",
    "Over",
    "PeerGone",
    "Rendezvous",
    "hosts_refusal",
    "machines_refusal",
    "prepare",
    "refusal",
]


class NoBackend(Backend):
    """Ranks that do not communicate over anything the harness knows of: programs, independent
    processes. What they have between them is their own: Python's sockets, pipes, HTTP.
    """

    description: ClassVar = "no group: programs, and ranks with their own channels"
    properties: ClassVar = BackendProperties(
        modules=(),
        makes_a_group=False,
        portable=True,
        unbounded="its ranks have no collectives, so this timeout has no effect on them",
        unobserved="",
        runs_calls_later="",
        peer_gone=OF_PYTHON,
    )
    inside_file: ClassVar = Path(__file__).with_name("none_inside.py")

    def prepare_across(self, *, addresses: Sequence[str]) -> Rendezvous:
        return Rendezvous(ranks=[{}] * len(addresses))

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        del ports, interfaces
        return Rendezvous(ranks=[{}] * len(addresses))


KINDS: Registry[Backend] = Registry(
    "rankproof.backends",
    Backend,
    {"gloo": Gloo(), "mlx-ring": MlxRing(), "nccl": Nccl(), "none": NoBackend()},
)


@dataclass(frozen=True, kw_only=True)
class Over:
    """Where ranks on several machines are reached, rank by rank: see `Backend.prepare_over`."""

    addresses: Sequence[str]
    ports: Sequence[int]
    interfaces: Sequence[str]


def prepare(
    name: str,
    *,
    size: int,
    ports: Ports,
    addresses: Sequence[str] | None = None,
    over: Over | None = None,
) -> Rendezvous:
    """Return what a backend prepares for a world.

    Args:
        name: of the backend.
        size: world size.
        ports: to lease.
        addresses: the address of each rank's host, where they are on test hosts.
        over: address, port and interface of each rank, where they are on several machines.

    Raises:
        OSError: a port or descriptor could not be had.
        PluginFailed: a plug-in's backend raised, or what it prepared is not for as many ranks.
    """
    with KINDS.guarded(name, but=(OSError,)):
        kind = KINDS[name]
        if over is not None:
            rendezvous = kind.prepare_over(
                addresses=over.addresses, ports=over.ports, interfaces=over.interfaces
            )
        elif addresses is not None:
            rendezvous = kind.prepare_across(addresses=addresses)
        else:
            rendezvous = kind.prepare(size=size, ports=ports)
        prepared = len(rendezvous.ranks)
        if prepared != size or len(rendezvous.env or rendezvous.ranks) != size:
            raise ValueError(f"its rendezvous is for {prepared} ranks, but the world has {size}")
        return rendezvous


def refusal(name: str, *, size: int) -> Skip | None:
    """Return why a world cannot run on this machine with a backend, or None.

    Raises:
        PluginFailed: a plug-in's backend raised, or gave something else.
    """
    with KINDS.guarded(name):
        answer: object = KINDS[name].refusal(size=size)
        if not isinstance(answer, Skip | None):
            raise TypeError(f"refusal() must return a Skip or None, not {answer}")
        return answer


def hosts_refusal(name: str) -> Skip | None:
    """Return why a backend cannot join ranks on test hosts, or None."""
    if type(KINDS[name]).prepare_across is Backend.prepare_across:
        return Skip(
            SkipCode.BACKEND_HOSTS, "it does not support test hosts; leave world.hosts at 1"
        )
    return None


def machines_refusal(name: str) -> Skip | None:
    """Return why a backend cannot join ranks on several machines, or None."""
    if type(KINDS[name]).prepare_over is Backend.prepare_over:
        return Skip(
            SkipCode.BACKEND_HOSTS,
            "it does not support several machines; run it without --hosts",
        )
    return None
