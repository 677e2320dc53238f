"""The integrity of distributed inference: tokens and messages that arrive unchanged, once and in order, or one error.

Usable alone: it imports nothing else of ours, needs xxhash beside the standard library, and takes numpy, torch or MLX
only when it is given their arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.integrity.problem import (
        BarrierBroken,
        IntegrityError,
        MessageCorrupt,
        MessageLost,
        Misused,
        OutOfStep,
        PeerRestarted,
        TransferFailed,
    )
    from harness.integrity.records import (
        BarrierStatus,
        EnhancedTokenChunk,
        FailureClass,
        Level,
        NodeId,
        SyncState,
        TokenChunk,
        ValidationStatus,
    )

__all__ = [
    "BarrierBroken",
    "BarrierStatus",
    "EnhancedTokenChunk",
    "FailureClass",
    "IntegrityError",
    "Level",
    "MessageCorrupt",
    "MessageLost",
    "Misused",
    "NodeId",
    "OutOfStep",
    "PeerRestarted",
    "SyncState",
    "TokenChunk",
    "TransferFailed",
    "ValidationStatus",
]

# Taken from their modules when asked for: whoever wants the records alone loads neither sockets nor threads.
_HOMES = {
    "problem": (
        "BarrierBroken",
        "IntegrityError",
        "MessageCorrupt",
        "MessageLost",
        "Misused",
        "OutOfStep",
        "PeerRestarted",
        "TransferFailed",
    ),
    "records": (
        "BarrierStatus",
        "EnhancedTokenChunk",
        "FailureClass",
        "Level",
        "NodeId",
        "SyncState",
        "TokenChunk",
        "ValidationStatus",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"harness.integrity.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
