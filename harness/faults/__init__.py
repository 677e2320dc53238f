"""Faults: what is done to a world on purpose, and the proof that it took effect. One file per kind.

Where something happens inside a rank, one more file beside it, `KIND_inside.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from harness.faults.address_space import AddressSpaceFault
from harness.faults.bandwidth import BandwidthFault
from harness.faults.clock_skew import ClockSkewFault
from harness.faults.cut_off import CutOffFault
from harness.faults.delay import DelayFault
from harness.faults.doubled_contribution import DoubledContributionFault
from harness.faults.duplicate import DuplicateFault
from harness.faults.env import EnvFault
from harness.faults.exit import ExitFault
from harness.faults.fault import Fault, FaultProperties
from harness.faults.file_size import FileSizeFault
from harness.faults.flip import FlipFault
from harness.faults.flip_frame import FlipFrameFault
from harness.faults.half_open import HalfOpenFault
from harness.faults.hub import HubFault
from harness.faults.kill import KillFault
from harness.faults.latency import LatencyFault
from harness.faults.loss import LossFault
from harness.faults.lost_contribution import LostContributionFault
from harness.faults.memory import MemoryFault
from harness.faults.monotonic_skew import MonotonicSkewFault
from harness.faults.no_space import NoSpaceFault
from harness.faults.open_files import OpenFilesFault
from harness.faults.other_dtype import OtherDtypeFault
from harness.faults.other_shape import OtherShapeFault
from harness.faults.partition import PartitionFault
from harness.faults.pause import PauseFault
from harness.faults.permission_denied import PermissionDeniedFault
from harness.faults.perturb import PerturbFault
from harness.faults.proof import STRUCK, UNDONE, Proof, noted
from harness.faults.raise_ import RaiseFault
from harness.faults.read_only import ReadOnlyFault
from harness.faults.reorder import ReorderFault
from harness.faults.reorder_calls import ReorderCallsFault
from harness.faults.repeat_call import RepeatCallFault
from harness.faults.replaced import ReplacedFault
from harness.faults.reset import ResetFault
from harness.faults.skip_call import SkipCallFault
from harness.faults.stale_payload import StalePayloadFault
from harness.faults.start_late import StartLateFault
from harness.faults.start_order import StartOrderFault
from harness.faults.starve import StarveFault
from harness.faults.swapped_halves import SwappedHalvesFault
from harness.faults.torch_settings import TorchSettingsFault
from harness.faults.truncated import TruncatedFault
from harness.history import History
from harness.plugins import OneOf, Registry

__all__ = ["KINDS", "AnyFault", "Fault", "FaultProperties", "Proof", "Proved", "description", "prove", "refusal"]

KINDS: Registry[type[Fault]] = Registry(
    "rankproof.faults",
    Fault,
    {
        "pause": PauseFault,
        "kill": KillFault,
        "delay": DelayFault,
        "env": EnvFault,
        "start-late": StartLateFault,
        "raise": RaiseFault,
        "exit": ExitFault,
        "perturb": PerturbFault,
        "hub": HubFault,
        "starve": StarveFault,
        "open-files": OpenFilesFault,
        "file-size": FileSizeFault,
        "address-space": AddressSpaceFault,
        "memory": MemoryFault,
        "start-order": StartOrderFault,
        "read-only": ReadOnlyFault,
        "no-space": NoSpaceFault,
        "permission-denied": PermissionDeniedFault,
        "truncated": TruncatedFault,
        "replaced": ReplacedFault,
        "clock-skew": ClockSkewFault,
        "monotonic-skew": MonotonicSkewFault,
        "torch-settings": TorchSettingsFault,
        "latency": LatencyFault,
        "bandwidth": BandwidthFault,
        "loss": LossFault,
        "duplicate": DuplicateFault,
        "reorder": ReorderFault,
        "flip": FlipFault,
        "flip-frame": FlipFrameFault,
        "partition": PartitionFault,
        "half-open": HalfOpenFault,
        "reset": ResetFault,
        "cut-off": CutOffFault,
        "skip-call": SkipCallFault,
        "repeat-call": RepeatCallFault,
        "reorder-calls": ReorderCallsFault,
        "stale-payload": StalePayloadFault,
        "swapped-halves": SwappedHalvesFault,
        "other-shape": OtherShapeFault,
        "other-dtype": OtherDtypeFault,
        "lost-contribution": LostContributionFault,
        "doubled-contribution": DoubledContributionFault,
    },
)

if TYPE_CHECKING:
    AnyFault = Fault
else:
    _Own = Annotated[Union[tuple(KINDS.own.values())], Field(discriminator="kind")]  # noqa: UP007 - known when it runs
    AnyFault = Annotated[_Own, OneOf(KINDS)]


@dataclass(frozen=True, kw_only=True)
class Proved:
    """One fault on one rank in one trial: whether the harness struck, took it back, and what the events prove."""

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
        f"ranks {fault.ranks}" if fault.arm is None else f"ranks {fault.ranks} of {whose or f'the {fault.arm}'} only"
    )
    with KINDS.guarded(fault.kind):
        return f"{where}: {fault.description()}"
