"""Faults: what is done to a world on purpose, and the proof that it took effect.

One file per kind or family of kinds, and where something happens inside a rank, another one,
`KIND_inside.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from harness.faults.fault import Fault, FaultProperties
from harness.faults.proof import Proof, Proved, prove
from harness.registry import OneOf, Package, Registry, declared_in

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

# Kinds enter by their own files alone. These are listed first, in this order, the others by name.
# fmt: off
LISTED_FIRST = (
    "pause", "kill", "delay", "env", "start-late", "raise", "exit", "perturb", "hub", "starve",
    "open-files", "file-size", "address-space", "memory", "start-order", "read-only", "no-space",
    "permission-denied", "truncated", "replaced", "clock-skew", "monotonic-skew", "torch-settings",
    "latency", "bandwidth", "loss", "duplicate", "reorder", "flip", "flip-frame", "partition",
    "half-open", "reset", "cut-off", "skip-call", "repeat-call", "reorder-calls", "stale-payload",
    "swapped-halves", "other-shape", "other-dtype", "lost-contribution", "doubled-contribution",
)
# fmt: on

KINDS: Registry[type[Fault]] = Registry(
    "rankproof.faults",
    Fault,
    Package("harness.faults", declared_in(Path(__file__).parent, first=LISTED_FIRST)),
)

if TYPE_CHECKING:
    AnyFault = Fault
else:
    AnyFault = Annotated[Any, OneOf(KINDS)]


def for_test_machines(faults: Sequence[Fault]) -> str:
    """Why faults can be done to test machines alone, with what to do.

    Empty where none of them needs such.
    """
    return next((fault.test_machines for fault in faults if fault.test_machines), "")


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
    """Describe a fault in words: `rank 1, stopped for 0.2 s at tokenizer.load.begin`.

    Args:
        fault: one of a scenario.
        whose: what the arm is called that it strikes alone, if not by its name.

    Raises:
        PluginFailed: a plug-in's fault raised.
    """
    where = fault.ranks.words
    if fault.service is not None:
        where = f"{where.replace('rank', 'process')} of {fault.service}"
    if fault.arm is not None:
        where = f"{where} of {whose or f'the {fault.arm}'} only"
    with KINDS.guarded(fault.kind):
        return f"{where}, {fault.description()}"
