"""Faults: what is done to a world on purpose, and the proof that it took effect. One file per kind, named in `KINDS`.

A fault has five parts. In the harness: `prepare` changes the launch, `strike` acts on the world through its control
object, `undo` takes it back. In the rank: `inside` is the order that `harness.rank.order` carries out at the gate.
For whoever judges: `proof` is a pure function of the trial's events. So this package knows no process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from harness.checks.history import History
from harness.faults.delay import Delay
from harness.faults.env import Env
from harness.faults.exit import Exit
from harness.faults.hub import Hub
from harness.faults.kill import Kill
from harness.faults.pause import Pause
from harness.faults.proof import STRUCK, UNDONE, Proof, noted
from harness.faults.raise_ import Raise
from harness.faults.stage import L, Stage
from harness.faults.start_late import StartLate
from harness.forms.strict_json import JSON
from harness.scenario import Fault
from harness.scenario.kinds import FaultProperties

__all__ = ["KINDS", "Kind", "Proof", "Proved", "prove", "refusal", "told"]


class Kind(Protocol):
    """One fault of one scenario.

    Attributes:
        does: what faults of this kind do, one line.
        needs: what a scenario must have for it.
        properties: what it is, as its options declare it.
    """

    does: ClassVar[str]
    needs: ClassVar[str]
    properties: ClassVar[FaultProperties]

    def __init__(self, options: Any) -> None:
        """Take the fault as the scenario gives it."""
        ...

    @staticmethod
    def refusal() -> str:
        """Why it cannot run on this machine; empty where it can."""
        ...

    def told(self) -> str:
        """What is done to a rank, in words."""
        ...

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Return the launch as this fault needs it."""
        ...

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """Act on a rank, from the world's own thread; `done` is to be called when it is to be taken back."""
        ...

    def inside(self, *, fault: str) -> Mapping[str, JSON] | None:
        """What the rank itself is ordered to do when its gate opens, or None."""
        ...

    def undo(self, stage: Stage, *, rank: int) -> None:
        """Take it back. Called once for every strike, at the end of the world if not before."""
        ...

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Work out from the events whether it took effect. Never raises, whatever the events are."""
        ...


KINDS: dict[str, type[Kind]] = {
    "pause": Pause,
    "kill": Kill,
    "delay": Delay,
    "env": Env,
    "start-late": StartLate,
    "raise": Raise,
    "exit": Exit,
    "hub": Hub,
}


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
    """Prove every fault on every rank it is for. Pure."""
    return [
        Proved(
            fault=fault.id,
            kind=fault.kind,
            rank=rank,
            struck=noted(history, STRUCK, fault=fault.id, rank=rank) is not None,
            undone=noted(history, UNDONE, fault=fault.id, rank=rank) is not None,
            proof=KINDS[fault.kind](fault).proof(history, fault=fault.id, rank=rank),
        )
        for fault in faults
        for rank in fault.ranks.of(history.size)
    ]


def refusal(faults: Sequence[Fault]) -> str:
    """Why a scenario's faults cannot run on this machine; empty where they can."""
    return next((f"fault {fault.id}: {why}" for fault in faults if (why := KINDS[fault.kind].refusal())), "")


def told(fault: Fault) -> str:
    """What a fault does, in words: `ranks [1]: stopped for 0.2 s at tokenizer.load.begin`."""
    where = f"ranks {fault.ranks}" if fault.arm is None else f"ranks {fault.ranks} of the {fault.arm} only"
    return f"{where}: {KINDS[fault.kind](fault).told()}"
