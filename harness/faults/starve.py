"""`starve`: the rank shares one core with processes that only compute.

Proof: the process that forked the rank put it there and took it back, and the kernel's own count of
what the rank's threads ran and waited between says that they waited at least as long as they ran. A
rank that had nothing to do was not starved.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FOR, FROM_OUTSIDE, FaultAtEvent
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.units import Duration
from harness.history import History, Seen

CROWDED = "rank.crowded"


class StarveFault(FaultAtEvent):
    """The rank gets a small part of one core."""

    does: ClassVar = (
        "puts all threads of the rank on one core for `for`, together with `burners` busy"
        " processes, so it gets about 1/(`burners` + 1) of the core"
    )
    needs: ClassVar = "an event of the subject to strike at, with processor work after it; Linux"
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "masked"
    example: ClassVar = (
        "{id: rank-1-is-starved, kind: starve, ranks: [1], at: decode.begin, for: 2s, burners: 4}"
    )

    kind: Literal["starve"]
    for_: Duration = Field(alias="for", description=FOR)
    burners: Annotated[int, Field(ge=2, le=32)] = Field(
        4, description="Number of busy processes on the same core."
    )

    @staticmethod
    def refusal() -> str:
        if not hasattr(os, "sched_setaffinity"):
            return "this system cannot bind a process to a core"
        return (
            ""
            if Path("/proc/self/schedstat").exists()
            else "this kernel does not count how long threads wait"
        )

    def description(self) -> str:
        return (
            f"on one core with {self.burners} busy processes, for {self.for_:g} s from {self.at} on"
        )

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Begin; the gate opens when the company is there, and the time runs from then."""
        world.once(CROWDED, rank=rank, do=lambda: world.after(self.for_, done))
        world.press(rank, "crowd", burners=self.burners)

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """End the company, and give the rank its cores back."""
        world.press(rank, "crowd", burners=0)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, struck, crowded, the time asked, taken back, and what the threads waited
        between.
        """
        crowded = proof.first_after(_told(history, rank, self.burners), landed.struck)
        if crowded is None or "why" in crowded.event.values:
            why = f": {crowded.event.values['why']}" if crowded is not None else ""
            return not_proved(f"no busy process ran on its core{why}", landed.lines)
        lines = (*landed.lines, crowded.line)
        undone = proof.noted(history, proof.UNDONE, fault=self.id, rank=rank)
        shown = f"it was not starved for {self.for_:g} s"
        if undone is None or not proof.lasted(crowded, undone, seconds=self.for_):
            return proof.cut_short(history, rank=rank, description=shown, lines=lines)
        back = proof.first_after(_told(history, rank, 0), undone)
        if back is None or "why" in back.event.values:
            return proof.cut_short(
                history, rank=rank, description=f"{shown}: it had ended", lines=lines
            )
        ran, waited = (_grown(crowded, back, key) for key in ("ran", "waited"))
        shown = (
            f"for {proof.milliseconds(crowded, back)} it ran {ran / 1e6:.1f} ms and waited"
            f" {waited / 1e6:.1f} ms"
        )
        return Proof(
            proved=waited > 0 and ran <= waited,
            description=f"{shown} for its core",
            lines=(*lines, undone.line, back.line),
        )


def _told(history: History, rank: int, burners: int) -> list[Seen]:
    return [
        seen
        for seen in history.served(rank, CROWDED)
        if seen.event.values.get("burners") == burners
    ]


def _grown(first: Seen, second: Seen, key: str) -> int:
    before = first.event.values.get(key)
    after = second.event.values.get(key)
    return after - before if type(before) is int and type(after) is int else 0
