"""Backends: what makes a set of processes one group. One file per kind, and one beside it for inside a rank."""

from __future__ import annotations

from harness.backends.backend import Backend, BackendProperties, PeerGone, Rendezvous
from harness.backends.gloo import Gloo
from harness.backends.mlx_ring import MlxRing
from harness.backends.nccl import Nccl
from harness.backends.none import Nothing
from harness.plugins import Registry

__all__ = ["KINDS", "Backend", "BackendProperties", "PeerGone", "Rendezvous"]

KINDS: Registry[Backend] = Registry(
    "rankproof.backends", Backend, {"gloo": Gloo(), "mlx-ring": MlxRing(), "nccl": Nccl(), "none": Nothing()}
)
