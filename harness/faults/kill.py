"""`kill`: the rank's process gets a deadly signal at an event.

Proof: the signal was sent after the event, and the process that forked the rank saw it end by exactly this signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from typing import ClassVar

from harness.checks.exit import ended
from harness.checks.history import History, Seen
from harness.faults import proof
from harness.faults.proof import Landing, Proof
from harness.faults.stage import L, Stage
from harness.scenario import KillFault


class Kill:
    """The signal lands while the rank waits at the gate."""

    does: ClassVar[str] = "sends the rank's process a deadly signal (KILL, TERM, ABRT or SEGV) where it emits `at`"
    needs: ClassVar[str] = "an event of the subject to strike at"
    properties: ClassVar = KillFault.properties

    def __init__(self, options: KillFault) -> None:
        self._options = options
        self._name = f"SIG{options.signal}"

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        return f"sent {self._name} at {self._options.at}"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Make the event a gate."""
        del ranks
        return launch.gated(at=self._options.at)

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """Send it. The gate opens when it has landed: a rank that survives the signal goes on."""
        stage.signal(signal.Signals[self._name], rank=rank)
        done()

    def inside(self, *, fault: str) -> None:
        """Nothing happens in the rank."""

    def undo(self, stage: Stage, *, rank: int) -> None:
        """What was killed stays so; the end of the world leaves nothing of it."""

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Event, signal, and the end by that signal."""
        found = proof.landing(history, fault=fault, at=self._options.at, rank=rank)
        if not isinstance(found, Landing):
            return found
        sent = next((seen for seen in history.served(None, "world.signalled") if self._hit(seen, rank, found)), None)
        if sent is None:
            return Proof(proved=False, told=f"{self._name} did not reach it", lines=found.lines)
        end = history.exit(rank)
        lines = (*found.lines, sent.line)
        if end is None or not proof.after(end, found.struck):
            return Proof(proved=False, told=f"nobody saw it end by {self._name}", lines=lines)
        if end.event.values.get("signal") != self._name:
            how = ended(end.event.values)
            return Proof(proved=False, told=f"it ended with {how}, not by {self._name}", lines=(*lines, end.line))
        told = f"ended by {self._name} {proof.milliseconds(found.gate, end)} after {self._options.at}"
        return Proof(proved=True, told=told, lines=(*lines, end.line), ends=True)

    def _hit(self, seen: Seen, rank: int, found: Landing) -> bool:
        ranks = seen.event.values.get("ranks")
        named = seen.event.values.get("signal") == self._name and isinstance(ranks, list | tuple) and rank in ranks
        return named and proof.after(seen, found.struck)
