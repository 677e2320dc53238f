"""The integrity of distributed inference: tokens and messages that arrive unchanged, once and in order, or one error.

Usable alone: it imports nothing else of ours, needs xxhash beside the standard library, and takes numpy, torch or MLX
only when it is given their arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.integrity.barrier import DistributedBarrier, SyncResult
    from harness.integrity.devices import DeviceCommunicationManager
    from harness.integrity.health import LinkHealth, NetworkHealthMonitor, Pace
    from harness.integrity.incoming import Message
    from harness.integrity.limits import Limits
    from harness.integrity.membership import Membership, View
    from harness.integrity.problem import (
        BarrierBroken,
        IntegrityError,
        MessageCorrupt,
        MessageLate,
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
    from harness.integrity.store import FolderStore, MemoryStore, Store, TorchStore
    from harness.integrity.tensors import MlxTensors, TorchTensors
    from harness.integrity.token_stream import GenerationCoordination, StagePosition, TokenStreamSynchronizer, disorder
    from harness.integrity.token_transfer import TokenTransferValidator, chunk_bytes, chunk_of
    from harness.integrity.transport import ReliableMessageTransport, TransferResult, ValidatedMessage

__all__ = [
    "BarrierBroken",
    "BarrierStatus",
    "DeviceCommunicationManager",
    "DistributedBarrier",
    "EnhancedTokenChunk",
    "FailureClass",
    "FolderStore",
    "GenerationCoordination",
    "IntegrityError",
    "Level",
    "Limits",
    "LinkHealth",
    "Membership",
    "MemoryStore",
    "Message",
    "MessageCorrupt",
    "MessageLate",
    "MessageLost",
    "Misused",
    "MlxTensors",
    "NetworkHealthMonitor",
    "NodeId",
    "OutOfStep",
    "Pace",
    "PeerRestarted",
    "ReliableMessageTransport",
    "StagePosition",
    "Store",
    "SyncResult",
    "SyncState",
    "TokenChunk",
    "TokenStreamSynchronizer",
    "TokenTransferValidator",
    "TorchStore",
    "TorchTensors",
    "TransferFailed",
    "TransferResult",
    "ValidatedMessage",
    "ValidationStatus",
    "View",
    "chunk_bytes",
    "chunk_of",
    "disorder",
]

# Taken from their modules when asked for: whoever wants the records alone loads neither sockets nor threads.
_HOMES = {
    "barrier": (
        "DistributedBarrier",
        "SyncResult",
    ),
    "devices": ("DeviceCommunicationManager",),
    "health": (
        "LinkHealth",
        "NetworkHealthMonitor",
        "Pace",
    ),
    "incoming": ("Message",),
    "limits": ("Limits",),
    "membership": (
        "Membership",
        "View",
    ),
    "problem": (
        "BarrierBroken",
        "IntegrityError",
        "MessageCorrupt",
        "MessageLate",
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
    "store": (
        "FolderStore",
        "MemoryStore",
        "Store",
        "TorchStore",
    ),
    "tensors": (
        "MlxTensors",
        "TorchTensors",
    ),
    "token_stream": (
        "GenerationCoordination",
        "StagePosition",
        "TokenStreamSynchronizer",
        "disorder",
    ),
    "token_transfer": (
        "TokenTransferValidator",
        "chunk_bytes",
        "chunk_of",
    ),
    "transport": (
        "ReliableMessageTransport",
        "TransferResult",
        "ValidatedMessage",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"harness.integrity.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
