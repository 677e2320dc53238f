"""Faults: what is done to a world on purpose, and the proof that it took effect. One file per kind.

Where something happens inside a rank, one more file beside it, `KIND_inside.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from harness.faults.fault import Fault, FaultProperties
from harness.faults.proof import STRUCK, UNDONE, Proof, noted
from harness.history import History
from harness.plugins import OneOf, Package, Registry

__all__ = [
    "KINDS",
    "AnyFault",
    "Fault",
    "FaultProperties",
    "Proof",
    "Proved",
    "description",
    "for_test_machines",
    "prove",
    "refusal",
]

KINDS: Registry[type[Fault]] = Registry(
    "rankproof.faults",
    Fault,
    Package(
        "harness.faults",
        {
            "pause": "pause:PauseFault",
            "kill": "kill:KillFault",
            "delay": "delay:DelayFault",
            "env": "env:EnvFault",
            "start-late": "start:StartLateFault",
            "raise": "raise_:RaiseFault",
            "exit": "exit:ExitFault",
            "perturb": "perturb:PerturbFault",
            "hub": "hub:HubFault",
            "starve": "starve:StarveFault",
            "open-files": "limit:OpenFilesFault",
            "file-size": "limit:FileSizeFault",
            "address-space": "limit:AddressSpaceFault",
            "memory": "limit:MemoryFault",
            "start-order": "start:StartOrderFault",
            "read-only": "folder:ReadOnlyFault",
            "no-space": "folder:NoSpaceFault",
            "permission-denied": "folder:PermissionDeniedFault",
            "truncated": "folder:TruncatedFault",
            "replaced": "folder:ReplacedFault",
            "clock-skew": "clock:ClockSkewFault",
            "monotonic-skew": "clock:MonotonicSkewFault",
            "torch-settings": "torch_settings:TorchSettingsFault",
            "latency": "link_packets:LatencyFault",
            "bandwidth": "link_packets:BandwidthFault",
            "loss": "link_packets:LossFault",
            "duplicate": "link_packets:DuplicateFault",
            "reorder": "link_packets:ReorderFault",
            "flip": "link_flip:FlipFault",
            "flip-frame": "link_flip:FlipFrameFault",
            "partition": "link_cut:PartitionFault",
            "half-open": "link_cut:HalfOpenFault",
            "reset": "link_cut:ResetFault",
            "cut-off": "cut_off:CutOffFault",
            "skip-call": "call_order:SkipCallFault",
            "repeat-call": "call_order:RepeatCallFault",
            "reorder-calls": "call_order:ReorderCallsFault",
            "stale-payload": "call_payload:StalePayloadFault",
            "swapped-halves": "call_payload:SwappedHalvesFault",
            "other-shape": "call_payload:OtherShapeFault",
            "other-dtype": "call_payload:OtherDtypeFault",
            "lost-contribution": "call_payload:LostContributionFault",
            "doubled-contribution": "call_payload:DoubledContributionFault",
        },
    ),
)

if TYPE_CHECKING:
    AnyFault = Fault
else:
    AnyFault = Annotated[Any, OneOf(KINDS)]


@dataclass(frozen=True, kw_only=True)
class Proved:
    """One fault on one rank in one trial: whether the harness struck, took it back, and what the
    events prove.
    """

    fault: str
    kind: str
    rank: int
    struck: bool
    undone: bool
    proof: Proof


def prove(faults: Sequence[Fault], history: History) -> list[Proved]:
    """Prove every fault on every rank it is for. Pure.

    Raises:
        PluginFailed: a plug-in's proof raised.
    """
    return [
        Proved(
            fault=fault.id,
            kind=fault.kind,
            rank=rank,
            struck=noted(history, STRUCK, fault=fault.id, rank=rank) is not None,
            undone=noted(history, UNDONE, fault=fault.id, rank=rank) is not None,
            proof=_proof(fault, history, rank),
        )
        for fault in faults
        for rank in fault.ranks.of(history.size)
    ]


def for_test_machines(faults: Sequence[Fault]) -> str:
    """Why faults can be done to test machines alone, with what to do.

    Empty where none of them needs such.
    """
    return next((fault.test_machines for fault in faults if fault.test_machines), "")


def _proof(fault: Fault, history: History, rank: int) -> Proof:
    with KINDS.guarded(fault.kind):
        found: object = fault.proof(history, rank=rank)
        if not isinstance(found, Proof):
            raise TypeError(f"its proof of the fault {fault.id} is not a Proof")
        if fault.kind in KINDS.plugins and found.proved and not found.lines:
            raise ValueError(f"its proof of the fault {fault.id} names no event that shows it")
        return found


def of_arm(faults: Sequence[Fault], arm: str) -> list[Fault]:
    """Return the faults that strike an arm."""
    return [fault for fault in faults if fault.arm in (None, arm)]


def refusal(faults: Sequence[Fault]) -> str:
    """Why a scenario's faults cannot run on this machine; empty where they can.

    Raises:
        PluginFailed: a plug-in's fault raised.
    """
    for fault in faults:
        with KINDS.guarded(fault.kind):
            if why := fault.refusal():
                return f"fault {fault.id}: {why}"
    return ""


def description(fault: Fault, *, whose: str = "") -> str:
    """What a fault does, in words: `ranks [1]: stopped for 0.2 s at tokenizer.load.begin`.

    Args:
        fault: one of a scenario.
        whose: what the arm is called that it strikes alone, if not by its name.

    Raises:
        PluginFailed: a plug-in's fault raised.
    """
    where = (
        f"ranks {fault.ranks}"
        if fault.arm is None
        else f"ranks {fault.ranks} of {whose or f'the {fault.arm}'} only"
    )
    with KINDS.guarded(fault.kind):
        return f"{where}: {fault.description()}"
