"""What each backend is. How it joins ranks is in `harness.world.backends`, which whoever judges must not know."""

from __future__ import annotations

from collections.abc import Mapping

from harness.backends import gloo, mlx_ring, nccl, none
from harness.backends.properties import BackendProperties, PeerGone

__all__ = ["KINDS", "BackendProperties", "PeerGone"]

KINDS: Mapping[str, BackendProperties] = {
    "gloo": gloo.PROPERTIES,
    "mlx-ring": mlx_ring.PROPERTIES,
    "nccl": nccl.PROPERTIES,
    "none": none.PROPERTIES,
}
