"""gloo: torch.distributed on the CPU.

Each error of `peer_gone` was provoked: a rank of three was killed, exited or left before and within each collective, a
send, a receive, the store, and joining. A receive from whoever sends, and a join that lacks a rank, hang instead.
"""

from __future__ import annotations

from harness.backends.properties import OF_TORCHS_STORE, BackendProperties, PeerGone

PROPERTIES = BackendProperties(
    modules=("torch", "torch.distributed"),
    makes_a_group=True,
    portable=True,
    peer_gone=(
        # monitored_barrier quotes it below words of its own.
        PeerGone(
            "RuntimeError", r"gloo/transport/.*(Connection (closed|reset) by peer|Broken pipe|Connection refused)"
        ),
        *OF_TORCHS_STORE,
    ),
)
