"""`kill`: the rank's process gets a deadly signal at an event.

Proof: the signal was sent after the event, and the process that forked the rank saw it end by
exactly this signal.
"""

from __future__ import annotations

from collections.abc import Callable
from signal import Signals
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.history import History, Seen, ended


class KillFault(FaultAtEvent):
    """The rank's process gets a deadly signal."""

    does: ClassVar = (
        "sends the rank's process a deadly signal (KILL, TERM, ABRT or SEGV) where it emits `at`"
    )
    needs: ClassVar = "an event of the subject to strike at"
    properties: ClassVar = FaultProperties(
        needs_a_gate=True, inside=False, ends_rank=True, needs_a_hub=False
    )
    effect: ClassVar = "breaking"
    over_machines: ClassVar = True
    example: ClassVar = "{id: rank-1-dies, kind: kill, ranks: [1], at: decode.begin, signal: KILL}"

    kind: Literal["kill"]
    signal: Literal["KILL", "TERM", "ABRT", "SEGV"] = Field("KILL", description="The signal.")

    @property
    def _sig(self) -> str:
        return f"SIG{self.signal}"

    def description(self) -> str:
        return f"sent {self._sig} at {self.at}"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Send it. The gate opens when it has landed: a rank that survives the signal goes on."""
        world.signal(Signals[self._sig], rank=rank)
        done()

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, signal, and the end by that signal."""
        sent = next(
            (
                seen
                for seen in history.served(None, "world.signalled")
                if self._hit(seen, rank, landed)
            ),
            None,
        )
        if sent is None:
            return not_proved(f"{self._sig} did not reach it", landed.lines)
        end = history.exit(rank)
        lines = (*landed.lines, sent.line)
        if end is None or not proof.after(end, landed.struck):
            return not_proved(f"its end by {self._sig} was not observed", lines)
        if end.event.values.get("signal") != self._sig:
            how = ended(end.event.values)
            return not_proved(f"it ended with {how}, not by {self._sig}", (*lines, end.line))
        time = proof.milliseconds(landed.gate, end)
        shown = f"ended by {self._sig} {time} after {self.at}"
        return Proof(proved=True, description=shown, lines=(*lines, end.line), ends=True)

    def _hit(self, seen: Seen, rank: int, landed: Landing) -> bool:
        ranks = seen.event.values.get("ranks")
        named = (
            seen.event.values.get("signal") == self._sig
            and isinstance(ranks, list | tuple)
            and rank in ranks
        )
        return named and proof.after(seen, landed.struck)
