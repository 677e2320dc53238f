"""`delay`: the rank is held inside an event for some time; its other threads go on.

Proof: the harness held the gate for at least the time asked, and the rank said nothing before it
was opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FOR, FROM_OUTSIDE, FaultAtEvent
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.units import Duration
from harness.history import History


class DelayFault(FaultAtEvent):
    """The rank waits inside the event, its other threads go on."""

    does: ClassVar = "blocks the rank in emitting `at` for `for`; its other threads continue"
    needs: ClassVar = "an event of the subject to strike at"
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "masked"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: rank-1-is-slow, kind: delay, ranks: [1], at: decode.begin, for: 200ms}"
    )

    kind: Literal["delay"]
    for_: Duration = Field(alias="for", description=FOR)

    def description(self) -> str:
        return f"held for {self.for_:g} s at {self.at}"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Keep the gate shut."""
        world.hold(rank)
        world.after(self.for_, done)

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Open the gate."""
        world.release(rank)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, held, nothing, opened, and what the rank did next."""
        undone = proof.noted(history, proof.UNDONE, fault=self.id, rank=rank)
        if undone is None or not proof.lasted(landed.struck, undone, seconds=self.for_):
            return proof.cut_short(
                history,
                rank=rank,
                description=f"it was not held for {self.for_:g} s",
                lines=landed.lines,
            )
        lines = (*landed.lines, undone.line)
        if (said := proof.said_between(history, rank, landed.gate, undone)) is not None:
            return not_proved("it emitted an event while it was held", (*lines, said.line))
        following = proof.next_of(history, rank, landed.gate)
        if following is None or not proof.after(following, undone):
            return proof.cut_short(
                history, rank=rank, description="it did nothing after it was held", lines=lines
            )
        held = proof.milliseconds(landed.struck, undone)
        later = proof.milliseconds(landed.gate, following)
        return Proof(
            proved=True,
            description=f"held for {held}, next event {later} after {self.at}",
            lines=(*lines, following.line),
        )
