"""Integrity of distributed inference: tokens and messages that arrive unchanged, once and in
order, or one error.

Nodes of a group prove a common key to each other when they connect. Without one a transport listens
where only this machine can reach it, or, at a socket in the file system, only this user.

Usable alone: it imports nothing else of ours, needs xxhash beside the standard library, and takes
numpy, torch or MLX only when it is given their arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import AsyncTransport
    from .barrier import DistributedBarrier, GroupView, Membership, SyncResult
    from .checked_stream import CheckedStream
    from .corruption import (
        HEURISTICS,
        CorruptionAnalysis,
        CorruptionDetector,
        CorruptionReport,
        CorruptionSeverity,
        CorruptionType,
        EncodingIssues,
        Heuristic,
        Hint,
        Verdict,
    )
    from .devices import DeviceCommunicationManager, name_of
    from .encoding import EncodingValidator, validate_text
    from .fallback import FallbackCoordinator, FallbackDecision, FallbackThreshold, LeftOut, Mode
    from .hooks import Watch, watch, watch_mlx
    from .incoming import Message
    from .link import LinkHealth, NetworkHealthMonitor, Pace, TransportLimits
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
    from .proof import key_from_environment, key_from_file
    from .records import (
        BarrierStatus,
        EnhancedTokenChunk,
        FailureClass,
        Level,
        NodeId,
        RecoveryAction,
        SequenceValidationResult,
        SyncState,
        TokenChunk,
        TransferResult,
        ValidationError,
        ValidationResult,
        ValidationStatus,
    )
    from .recovery import Attempt, FailureMode, RecoveryManager, RecoveryOutcome, RecoveryResult
    from .sequence import SequenceIntegrityChecker
    from .store import FolderStore, MemoryStore, SharedStore, TorchStore
    from .stream_validator import (
        AdaptiveStrictness,
        Behind,
        StreamValidator,
        ValidationAccount,
        ValidationBeside,
    )
    from .tensors import MlxTensors, TorchTensors, torch_bytes
    from .token_stream import (
        BareTokens,
        GenerationCoordination,
        StagePosition,
        TokenStreamSynchronizer,
        TokenTransferValidator,
        chunk_bytes,
        chunk_of,
        disorder,
    )
    from .token_validator import SpecialPlace, TokenValidator
    from .transport import ReliableMessageTransport, ValidatedMessage
    from .vocabulary import Spells, spells, token_bytes

__all__ = [
    "HEURISTICS",
    "AdaptiveStrictness",
    "AsyncTransport",
    "Attempt",
    "BareTokens",
    "BarrierBroken",
    "BarrierStatus",
    "Behind",
    "CheckedStream",
    "CorruptionAnalysis",
    "CorruptionDetector",
    "CorruptionReport",
    "CorruptionSeverity",
    "CorruptionType",
    "DeviceCommunicationManager",
    "DistributedBarrier",
    "EncodingIssues",
    "EncodingValidator",
    "EnhancedTokenChunk",
    "FailureClass",
    "FailureMode",
    "FallbackCoordinator",
    "FallbackDecision",
    "FallbackThreshold",
    "FolderStore",
    "GenerationCoordination",
    "GroupView",
    "Heuristic",
    "Hint",
    "IntegrityError",
    "LeftOut",
    "Level",
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
    "Pace",
    "PeerRestarted",
    "RecoveryAction",
    "RecoveryManager",
    "RecoveryOutcome",
    "RecoveryResult",
    "ReliableMessageTransport",
    "Sample",
    "SequenceIntegrityChecker",
    "SequenceValidationResult",
    "SharedStore",
    "SpecialPlace",
    "Spells",
    "StagePosition",
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
    "TransportLimits",
    "ValidatedMessage",
    "ValidationAccount",
    "ValidationBeside",
    "ValidationError",
    "ValidationResult",
    "ValidationStatus",
    "Verdict",
    "Watch",
    "chunk_bytes",
    "chunk_of",
    "disorder",
    "key_from_environment",
    "key_from_file",
    "name_of",
    "spells",
    "token_bytes",
    "torch_bytes",
    "validate_text",
    "watch",
    "watch_mlx",
]

# Taken from their modules when asked for: whoever wants the records alone loads neither sockets nor
# threads.
_HOMES = {
    "aio": ("AsyncTransport",),
    "barrier": (
        "DistributedBarrier",
        "Membership",
        "SyncResult",
        "GroupView",
    ),
    "checked_stream": ("CheckedStream",),
    "corruption": (
        "CorruptionAnalysis",
        "CorruptionDetector",
        "CorruptionReport",
        "CorruptionSeverity",
        "CorruptionType",
        "EncodingIssues",
        "HEURISTICS",
        "Heuristic",
        "Hint",
        "Verdict",
    ),
    "devices": (
        "DeviceCommunicationManager",
        "name_of",
    ),
    "encoding": (
        "EncodingValidator",
        "validate_text",
    ),
    "fallback": (
        "FallbackDecision",
        "FallbackCoordinator",
        "FallbackThreshold",
        "LeftOut",
        "Mode",
    ),
    "hooks": (
        "Watch",
        "watch",
        "watch_mlx",
    ),
    "incoming": ("Message",),
    "link": (
        "TransportLimits",
        "LinkHealth",
        "NetworkHealthMonitor",
        "Pace",
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
    "proof": (
        "key_from_environment",
        "key_from_file",
    ),
    "records": (
        "BarrierStatus",
        "EnhancedTokenChunk",
        "FailureClass",
        "Level",
        "NodeId",
        "RecoveryAction",
        "SequenceValidationResult",
        "SyncState",
        "TokenChunk",
        "TransferResult",
        "ValidationError",
        "ValidationResult",
        "ValidationStatus",
    ),
    "recovery": (
        "Attempt",
        "FailureMode",
        "RecoveryOutcome",
        "RecoveryManager",
        "RecoveryResult",
    ),
    "sequence": ("SequenceIntegrityChecker",),
    "store": (
        "FolderStore",
        "MemoryStore",
        "SharedStore",
        "TorchStore",
    ),
    "stream_validator": (
        "ValidationAccount",
        "AdaptiveStrictness",
        "Behind",
        "StreamValidator",
        "ValidationBeside",
    ),
    "tensors": (
        "MlxTensors",
        "TorchTensors",
        "torch_bytes",
    ),
    "token_stream": (
        "BareTokens",
        "GenerationCoordination",
        "StagePosition",
        "TokenStreamSynchronizer",
        "TokenTransferValidator",
        "chunk_bytes",
        "chunk_of",
        "disorder",
    ),
    "token_validator": (
        "SpecialPlace",
        "TokenValidator",
    ),
    "transport": (
        "ReliableMessageTransport",
        "ValidatedMessage",
    ),
    "vocabulary": (
        "Spells",
        "spells",
        "token_bytes",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
