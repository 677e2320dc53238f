"""`start-late`: the rank is forked later than its peers.

Proof: the moments at which the process that forked them says it forked each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from harness.checks.history import History, Seen
from harness.faults import proof
from harness.faults.proof import Proof
from harness.faults.stage import L, Stage
from harness.scenario import StartLateFault


class StartLate:
    """The launch says how late."""

    does: ClassVar[str] = "starts the rank `for` after the last of the ranks that are not late"
    needs: ClassVar[str] = "a rank that is not late"
    properties: ClassVar = StartLateFault.properties

    def __init__(self, options: StartLateFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        return f"started {self._options.for_:g} s after the others"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Hold the ranks back."""
        return launch.late(ranks=ranks, seconds=self._options.for_)

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """It has struck when the rank is there."""
        del stage, rank
        done()

    def inside(self, *, fault: str) -> None:
        """Nothing happens in the rank."""

    def undo(self, stage: Stage, *, rank: int) -> None:
        """A rank that has started is late no more."""

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """The others were forked, the time passed, this one was forked."""
        late = set(self._options.ranks.of(history.size))
        others = [seen for other in range(history.size) if other not in late for seen in _started(history, other)]
        mine = _started(history, rank)
        if not mine:
            return Proof(proved=False, told="it was never started: its world had ended before", overtaken=True)
        struck = proof.noted(history, proof.STRUCK, fault=fault, rank=rank)
        if not others or struck is None:
            return Proof(proved=False, told="nothing says when the others were started", lines=(mine[0].line,))
        last = max(others, key=lambda seen: seen.event.ns)
        lines = (last.line, mine[0].line)
        if not proof.lasted(last, mine[0], seconds=self._options.for_):
            time = proof.milliseconds(last, mine[0])
            return Proof(proved=False, told=f"it was started only {time} after the others", lines=lines)
        told = f"started {proof.milliseconds(last, mine[0])} after rank {last.event.rank}"
        return Proof(proved=True, told=told, lines=lines)


def _started(history: History, rank: int) -> list[Seen]:
    return list(history.served(rank, "rank.started"))[:1]
