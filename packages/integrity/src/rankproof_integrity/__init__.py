"""The integrity of distributed inference: tokens and messages that arrive unchanged, once and in
order, or one error.

That holds against accidents. Peers are not authenticated: whoever reaches a node and knows two
names can replace a message, so a transport listens on loopback unless `insecure=True` accepts
another address.

Usable alone: it imports nothing else of ours, needs xxhash beside the standard library, and takes
numpy, torch or MLX only when it is given their arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bare_token import BareTokens
    from .barrier import DistributedBarrier, SyncResult
    from .beside import Account, Behind, ValidationBeside
    from .corruption import (
        Corruption,
        CorruptionDetector,
        CorruptionReport,
        CorruptionSeverity,
        CorruptionType,
        Verdict,
    )
    from .devices import DeviceCommunicationManager, name_of
    from .encoding import EncodingValidator, validate_text
    from .fallback import Decision, FallbackCoordinator, LeftOut, Mode
    from .health import LinkHealth, NetworkHealthMonitor, Pace
    from .hints import HEURISTICS, Heuristic, Hint
    from .incoming import Message
    from .limits import Limits
    from .membership import Membership, View
    from .metrics import Metrics, Sample
    from .problem import (
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
    from .records import (
        BarrierStatus,
        EnhancedTokenChunk,
        FailureClass,
        Level,
        NodeId,
        SyncState,
        TokenChunk,
        TransferResult,
        ValidationStatus,
    )
    from .recovery import Attempt, FailureMode, Outcome, RecoveryManager, RecoveryResult
    from .sequence import SequenceIntegrityChecker
    from .store import FolderStore, MemoryStore, Store, TorchStore
    from .stream_validator import StreamValidator
    from .strictness import AdaptiveStrictness
    from .tensors import MlxTensors, TorchTensors, torch_bytes
    from .threshold import FallbackThreshold
    from .token_stream import (
        GenerationCoordination,
        StagePosition,
        TokenStreamSynchronizer,
        disorder,
    )
    from .token_transfer import TokenTransferValidator, chunk_bytes, chunk_of
    from .token_validator import Place, TokenValidator
    from .transport import ReliableMessageTransport, ValidatedMessage
    from .validation import (
        RecoveryAction,
        SequenceValidationResult,
        ValidationError,
        ValidationResult,
    )

__all__ = [
    "HEURISTICS",
    "Account",
    "AdaptiveStrictness",
    "Attempt",
    "BareTokens",
    "BarrierBroken",
    "BarrierStatus",
    "Behind",
    "Corruption",
    "CorruptionDetector",
    "CorruptionReport",
    "CorruptionSeverity",
    "CorruptionType",
    "Decision",
    "DeviceCommunicationManager",
    "DistributedBarrier",
    "EncodingValidator",
    "EnhancedTokenChunk",
    "FailureClass",
    "FailureMode",
    "FallbackCoordinator",
    "FallbackThreshold",
    "FolderStore",
    "GenerationCoordination",
    "Heuristic",
    "Hint",
    "IntegrityError",
    "LeftOut",
    "Level",
    "Limits",
    "LinkHealth",
    "Membership",
    "MemoryStore",
    "Message",
    "MessageCorrupt",
    "MessageLate",
    "MessageLost",
    "Metrics",
    "Misused",
    "MlxTensors",
    "Mode",
    "NetworkHealthMonitor",
    "NodeId",
    "OutOfStep",
    "Outcome",
    "Pace",
    "PeerRestarted",
    "Place",
    "RecoveryAction",
    "RecoveryManager",
    "RecoveryResult",
    "ReliableMessageTransport",
    "Sample",
    "SequenceIntegrityChecker",
    "SequenceValidationResult",
    "StagePosition",
    "Store",
    "StreamValidator",
    "SyncResult",
    "SyncState",
    "TokenChunk",
    "TokenStreamSynchronizer",
    "TokenTransferValidator",
    "TokenValidator",
    "TorchStore",
    "TorchTensors",
    "TransferFailed",
    "TransferResult",
    "ValidatedMessage",
    "ValidationBeside",
    "ValidationError",
    "ValidationResult",
    "ValidationStatus",
    "Verdict",
    "View",
    "chunk_bytes",
    "chunk_of",
    "disorder",
    "name_of",
    "torch_bytes",
    "validate_text",
]

# Taken from their modules when asked for: whoever wants the records alone loads neither sockets nor
# threads.
_HOMES = {
    "bare_token": ("BareTokens",),
    "barrier": (
        "DistributedBarrier",
        "SyncResult",
    ),
    "beside": (
        "Account",
        "Behind",
        "ValidationBeside",
    ),
    "corruption": (
        "Corruption",
        "CorruptionDetector",
        "CorruptionReport",
        "CorruptionSeverity",
        "CorruptionType",
        "Verdict",
    ),
    "devices": ("DeviceCommunicationManager", "name_of"),
    "encoding": (
        "EncodingValidator",
        "validate_text",
    ),
    "fallback": (
        "Decision",
        "FallbackCoordinator",
        "LeftOut",
        "Mode",
    ),
    "health": (
        "LinkHealth",
        "NetworkHealthMonitor",
        "Pace",
    ),
    "hints": (
        "HEURISTICS",
        "Heuristic",
        "Hint",
    ),
    "incoming": ("Message",),
    "limits": ("Limits",),
    "membership": (
        "Membership",
        "View",
    ),
    "metrics": (
        "Metrics",
        "Sample",
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
        "TransferResult",
        "ValidationStatus",
    ),
    "recovery": (
        "Attempt",
        "FailureMode",
        "Outcome",
        "RecoveryManager",
        "RecoveryResult",
    ),
    "sequence": ("SequenceIntegrityChecker",),
    "store": (
        "FolderStore",
        "MemoryStore",
        "Store",
        "TorchStore",
    ),
    "stream_validator": ("StreamValidator",),
    "strictness": ("AdaptiveStrictness",),
    "tensors": (
        "MlxTensors",
        "TorchTensors",
        "torch_bytes",
    ),
    "threshold": ("FallbackThreshold",),
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
    "token_validator": (
        "Place",
        "TokenValidator",
    ),
    "transport": (
        "ReliableMessageTransport",
        "ValidatedMessage",
    ),
    "validation": (
        "RecoveryAction",
        "SequenceValidationResult",
        "ValidationError",
        "ValidationResult",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
