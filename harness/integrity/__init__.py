"""The integrity of distributed inference: tokens and messages that arrive unchanged, once and in order, or one error.

That holds against accidents. Peers are not authenticated: whoever reaches a node and knows two names can replace a
message, so a transport listens on loopback unless `insecure=True` accepts another address.

Usable alone: it imports nothing else of ours, needs xxhash beside the standard library, and takes numpy, torch or MLX
only when it is given their arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.integrity.bare_token import BareTokens
    from harness.integrity.barrier import DistributedBarrier, SyncResult
    from harness.integrity.beside import Account, Behind, ValidationBeside
    from harness.integrity.corruption import (
        Corruption,
        CorruptionDetector,
        CorruptionReport,
        CorruptionSeverity,
        CorruptionType,
        Verdict,
    )
    from harness.integrity.devices import DeviceCommunicationManager, name_of
    from harness.integrity.encoding import EncodingValidator, validate_text
    from harness.integrity.fallback import Decision, FallbackCoordinator, LeftOut, Mode
    from harness.integrity.health import LinkHealth, NetworkHealthMonitor, Pace
    from harness.integrity.hints import HEURISTICS, Heuristic, Hint
    from harness.integrity.incoming import Message
    from harness.integrity.limits import Limits
    from harness.integrity.membership import Membership, View
    from harness.integrity.metrics import Metrics, Sample
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
        TransferResult,
        ValidationStatus,
    )
    from harness.integrity.recovery import Attempt, FailureMode, Outcome, RecoveryManager, RecoveryResult
    from harness.integrity.sequence import SequenceIntegrityChecker
    from harness.integrity.store import FolderStore, MemoryStore, Store, TorchStore
    from harness.integrity.stream_validator import StreamValidator
    from harness.integrity.strictness import AdaptiveStrictness
    from harness.integrity.tensors import MlxTensors, TorchTensors, torch_bytes
    from harness.integrity.threshold import FallbackThreshold
    from harness.integrity.token_stream import GenerationCoordination, StagePosition, TokenStreamSynchronizer, disorder
    from harness.integrity.token_transfer import TokenTransferValidator, chunk_bytes, chunk_of
    from harness.integrity.token_validator import Place, TokenValidator
    from harness.integrity.transport import ReliableMessageTransport, ValidatedMessage
    from harness.integrity.validation import RecoveryAction, SequenceValidationResult, ValidationError, ValidationResult

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

# Taken from their modules when asked for: whoever wants the records alone loads neither sockets nor threads.
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
            return getattr(importlib.import_module(f"harness.integrity.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
