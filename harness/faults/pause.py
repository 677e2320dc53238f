"""`pause`: the rank's process is stopped at an event, and continued after some time.

Proof: the process that forked the rank saw it stop, nothing came from it, the harness continued it
after the time asked, and the same process saw it continue: while its gate was still shut, so that
it cannot have ended before. Where it ended without its gate all the same, its end shows it, unless
that was SIGKILL, which ends a stopped process too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FOR, FROM_OUTSIDE, FaultAtEvent
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.units import Duration
from harness.history import History


class PauseFault(FaultAtEvent):
    """The rank's process is stopped and continued."""

    does: ClassVar = "stops the rank's process where it emits `at`, and continues it after `for`"
    needs: ClassVar = "an event of the subject to strike at"
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "masked"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: rank-1-is-late, kind: pause, ranks: [1], at: tokenizer.load.begin, for: 200ms}"
    )

    kind: Literal["pause"]
    for_: Duration = Field(alias="for", description=FOR)

    @staticmethod
    def refusal() -> str:
        return (
            ""
            if hasattr(os, "WCONTINUED")
            else "this system does not report when a process is stopped or continued"
        )

    def description(self) -> str:
        return f"stopped for {self.for_:g} s at {self.at}"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Stop the rank where it waits. The time runs from when it was seen to have stopped."""
        world.hold(rank)
        world.once("rank.stopped", rank=rank, do=lambda: world.after(self.for_, done))
        world.signal(signal.SIGSTOP, rank=rank)

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Continue the rank; its gate opens when that has landed."""
        world.signal(signal.SIGCONT, rank=rank)
        world.release(rank)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, stopped, nothing, resumed, and the time between."""
        stopped = proof.first_after(history.served(rank, "rank.stopped"), landed.struck)
        if stopped is None or stopped.event.values.get("signal") != "SIGSTOP":
            return not_proved("its stop was not observed", landed.lines)
        lines = (*landed.lines, stopped.line)
        undone = proof.noted(history, proof.UNDONE, fault=self.id, rank=rank)
        if undone is None or not proof.lasted(stopped, undone, seconds=self.for_):
            return proof.cut_short(
                history,
                rank=rank,
                description=f"it was not stopped for {self.for_:g} s",
                lines=lines,
            )
        if (said := proof.said_between(history, rank, stopped, undone)) is not None:
            return not_proved("it emitted an event while it was stopped", (*lines, said.line))
        resumed = proof.first_after(history.served(rank, "rank.continued"), undone)
        if resumed is None:
            shown = "it was not observed to resume"
            end = history.exit(rank)
            if end is not None and end.event.values.get("signal") == "SIGKILL":
                shown = f"{shown} before SIGKILL ended it, which ends a stopped process too"
            return proof.cut_short(
                history, rank=rank, description=shown, lines=(*lines, undone.line)
            )
        time = proof.milliseconds(stopped, resumed)
        shown = (
            f"stopped {proof.milliseconds(landed.gate, stopped)} after {self.at}, resumed {time}"
            " later"
        )
        if resumed.event.values.get("shown_by"):
            shown = f"{shown} at the latest, because it ended then"
        return Proof(proved=True, description=shown, lines=(*lines, undone.line, resumed.line))
