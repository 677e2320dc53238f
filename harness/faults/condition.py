"""Base of the faults that put a rank under a condition for some time or to its end, such as a limit
or a full folder.

The process that forked the rank sets it from outside, while the rank stands at its event, and reads
it back from the kernel. That is the proof: its word that the condition was in force after the
strike, and where it is for some time, that it was taken back after that time, or that the rank had
ended before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FROM_OUTSIDE, FaultAtEvent
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.units import Duration
from harness.history import History, Seen


class ConditionFault(FaultAtEvent):
    """The rank is under a condition from its event on, for some time or to its end.

    Attributes:
        told: the event by which the process that forked the rank tells that it set the condition,
            or took it back.
    """

    needs: ClassVar = "an event of the subject to strike at; Linux"
    properties: ClassVar = FROM_OUTSIDE
    told: ClassVar[str]

    for_: Duration | None = Field(
        None,
        alias="for",
        description="How long, with a unit: 200ms, 60s. Default: to the end of the rank.",
    )

    def description(self) -> str:
        time = "" if self.for_ is None else f" for {self.for_:g} s"
        return f"{self.condition} from {self.at} on{time}"

    @property
    def condition(self) -> str:
        """Words for the condition."""
        raise NotImplementedError

    def impose(self, world: WorldControl, *, rank: int) -> None:
        """Have it set."""
        raise NotImplementedError

    def is_told_by(self, seen: Seen) -> bool:
        """Tell whether an event of this name is about this very condition."""
        raise NotImplementedError

    def is_in_force(self, seen: Seen) -> bool:
        """Tell whether what was read back is the condition, and was not before."""
        raise NotImplementedError

    def shown(self, seen: Seen) -> str:
        """Describe what was read back."""
        raise NotImplementedError

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Set it; the gate opens when it is set, and the time runs from then."""
        if (seconds := self.for_) is not None:
            world.once(self.told, rank=rank, do=lambda: world.after(seconds, done))
        self.impose(world, rank=rank)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, struck, set; and where it is for some time, that time, and taken back."""
        about = [seen for seen in history.served(rank, self.told) if self.is_told_by(seen)]
        imposed = proof.first_after(about, landed.struck)
        if imposed is None:
            return not_proved("the condition was not set", landed.lines)
        lines = (*landed.lines, imposed.line)
        if "why" in imposed.event.values or not self.is_in_force(imposed):
            what = imposed.event.values.get("why") or f"found {self.shown(imposed)}"
            return not_proved(f"the condition was not set: {what}", lines)
        shown = f"{self.shown(imposed)}, {proof.milliseconds(landed.gate, imposed)} after {self.at}"
        if self.for_ is None:
            return Proof(proved=True, description=shown, lines=lines)
        undone = proof.noted(history, proof.UNDONE, fault=self.id, rank=rank)
        end = history.exit(rank)
        if undone is not None:
            back = proof.first_after(about, undone)
            if (
                back is not None
                and "why" not in back.event.values
                and proof.lasted(imposed, undone, seconds=self.for_)
            ):
                return Proof(
                    proved=True,
                    description=f"{shown}, undone {proof.milliseconds(imposed, back)} later",
                    lines=(*lines, undone.line, back.line),
                )
            ended = end is not None and imposed.event.ns <= end.event.ns <= undone.event.ns
            if end is not None and ended and not history.was_stopped(rank):
                return Proof(
                    proved=True,
                    description=f"{shown}, to its end",
                    lines=(*lines, end.line, undone.line),
                )
        return proof.cut_short(
            history, rank=rank, description=f"it did not last for {self.for_:g} s", lines=lines
        )
