"""Backends: what makes a set of processes one group. One file per kind, and one beside it for inside a rank."""

from __future__ import annotations

from harness.backends.backend import Backend, BackendProperties, PeerGone, Ports, Rendezvous
from harness.backends.gloo import Gloo
from harness.backends.mlx_ring import MlxRing
from harness.backends.nccl import Nccl
from harness.backends.none import Nothing
from harness.plugins import Registry
from harness.reason import Skip

__all__ = ["KINDS", "Backend", "BackendProperties", "PeerGone", "Rendezvous", "prepare", "refusal"]

KINDS: Registry[Backend] = Registry(
    "rankproof.backends", Backend, {"gloo": Gloo(), "mlx-ring": MlxRing(), "nccl": Nccl(), "none": Nothing()}
)


def prepare(name: str, *, size: int, ports: Ports) -> Rendezvous:
    """What a backend prepares for a world.

    Raises:
        OSError: a port or descriptor could not be had.
        PluginFailed: a plug-in's backend raised, or what it prepared is not for as many ranks.
    """
    with KINDS.guarded(name, but=(OSError,)):
        found = KINDS[name].prepare(size=size, ports=ports)
        if len(found.ranks) != size or len(found.env or found.ranks) != size:
            raise ValueError(f"its rendezvous is for {len(found.ranks)} ranks, in a world of {size}")
        return found


def refusal(name: str, *, size: int) -> Skip | None:
    """Why a world cannot run on this machine with a backend, or None.

    Raises:
        PluginFailed: a plug-in's backend raised, or gave something else.
    """
    with KINDS.guarded(name):
        found: object = KINDS[name].refusal(size=size)
        if not isinstance(found, Skip | None):
            raise TypeError(f"its refusal is not a Skip: {found}")
        return found
