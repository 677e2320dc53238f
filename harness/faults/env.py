"""`env`: some ranks start with other environment variables than their peers.

Proof: every struck rank tells the value it effectively sees as it begins; with new interpreters, also the value that
the kernel gave to the process, which is what a library reads while it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from harness.checks.history import History
from harness.faults import proof
from harness.faults.proof import Proof
from harness.faults.stage import L, Stage
from harness.scenario import EnvFault

TOLD = "fault.env"


class Env:
    """The launch holds the variables."""

    does: ClassVar[str] = "starts the rank with other environment variables than its peers"
    needs: ClassVar[str] = (
        "a subject in Python; variables that libraries read at import make every rank of the world start fresh"
    )
    properties: ClassVar = EnvFault.properties

    def __init__(self, options: EnvFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        return "started with " + ", ".join(f"{name}={value}" for name, value in self._options.set.items())

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Give the ranks their variables."""
        return launch.with_variables(ranks=ranks, variables=self._options.set)

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """It has struck when the rank is there."""
        del stage, rank
        done()

    def inside(self, *, fault: str) -> None:
        """The rank tells what it sees, whatever the fault; that is in its spec."""

    def undo(self, stage: Stage, *, rank: int) -> None:
        """The variables end with the rank."""

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Started so, and what the rank sees."""
        struck = proof.noted(history, proof.STRUCK, fault=fault, rank=rank)
        said = history.said(rank, TOLD)
        if struck is None or not said:
            return proof.missed(history, rank=rank, what="it did not tell what it sees")
        # The harness may hear of the rank's start after the rank has spoken.
        first, second = sorted((struck.line, said[0].line))
        lines = (first, second)
        fresh = history.about().get("start") == "fresh"
        for key in ("values", "at_start") if fresh else ("values",):
            values = said[0].event.values.get(key)
            if key == "at_start" and values is None:
                continue  # a system that does not say
            wrong = self._wrong(values)
            if wrong:
                return Proof(proved=False, told=wrong, lines=lines)
        told = ", ".join(f"{name} is {value!r}" for name, value in self._options.set.items())
        return Proof(proved=True, told=f"there {told}", lines=lines)

    def _wrong(self, values: object) -> str:
        seen: Mapping[object, object] = values if isinstance(values, dict) else {}
        for name, value in self._options.set.items():
            if seen.get(name) != value:
                return f"{name} is {seen.get(name)!r} there, not {value!r}"
        return ""
