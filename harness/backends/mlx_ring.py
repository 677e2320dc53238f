"""mlx-ring: MLX's ring over TCP.

Provoked as gloo's were. A send to a rank that is gone raises nothing, and a join that lacks a rank hangs.
"""

from __future__ import annotations

from harness.backends.properties import BackendProperties, PeerGone

PROPERTIES = BackendProperties(
    modules=("mlx.core",),
    makes_a_group=True,
    portable=False,
    peer_gone=(PeerGone("RuntimeError", r"^\[ring\] connection to a peer was lost"),),
)
