"""`delay`: the rank is held inside an event for some time; its other threads go on.

Proof: the harness held the gate for at least the time asked, and the rank said nothing before it was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from harness.checks.history import History, Seen
from harness.faults import proof
from harness.faults.proof import Landing, Proof
from harness.faults.stage import L, Stage
from harness.scenario import DelayFault


class Delay:
    """The gate is answered later."""

    does: ClassVar[str] = "holds the rank inside emitting `at` for `for`; its other threads go on"
    needs: ClassVar[str] = "an event of the subject to strike at"
    properties: ClassVar = DelayFault.properties

    def __init__(self, options: DelayFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        return f"held for {self._options.for_:g} s at {self._options.at}"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Make the event a gate."""
        del ranks
        return launch.gated(at=self._options.at)

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """Keep the gate shut."""
        stage.hold(rank)
        stage.after(self._options.for_, done)

    def inside(self, *, fault: str) -> None:
        """Nothing happens in the rank."""

    def undo(self, stage: Stage, *, rank: int) -> None:
        """Open the gate."""
        stage.release(rank)

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Event, held, nothing, opened, and what the rank did next."""
        found = proof.landing(history, fault=fault, at=self._options.at, rank=rank)
        if not isinstance(found, Landing):
            return found
        undone = proof.noted(history, proof.UNDONE, fault=fault, rank=rank)
        if undone is None or not proof.lasted(found.struck, undone, seconds=self._options.for_):
            told = f"it was not held for {self._options.for_:g} s"
            return proof.cut_short(history, rank=rank, told=told, lines=found.lines)
        lines = (*found.lines, undone.line)
        if (said := proof.said_between(history, rank, found.gate, undone)) is not None:
            return Proof(proved=False, told="it spoke while it was held", lines=(*lines, said.line))
        following = proof.next_of(history, rank, found.gate)
        if following is None or not proof.after(following, undone):
            told = "it did nothing after it was held"
            return proof.cut_short(history, rank=rank, told=told, lines=lines)
        told = f"held for {proof.milliseconds(found.struck, undone)}, next heard of {_later(found, following)} after"
        return Proof(proved=True, told=f"{told} {self._options.at}", lines=(*lines, following.line))


def _later(found: Landing, following: Seen) -> str:
    return proof.milliseconds(found.gate, following)
