"""What `open-files`, `file-size` and `address-space` share: a limit that the kernel holds a rank's process to.

Proof: the process that forked the rank set the limit from outside while the rank stood at its event, and read it back
from the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof
from harness.faults.world_control import WorldControl
from harness.forms.units import Duration
from harness.history import History, Seen

LIMITED = "rank.limited"


class LimitFault(FaultAtEvent):
    """The rank's process has a lower limit of something, for some time or to its end."""

    needs: ClassVar = "an event of the subject to strike at; Linux"
    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=False, ends_rank=False, needs_a_hub=False)
    resource: ClassVar[str]

    for_: Duration | None = Field(
        None, alias="for", description="How long, with a unit: 200ms, 60s. Default: to the end of the rank."
    )

    @property
    def duration(self) -> float | None:
        return self.for_

    @staticmethod
    def refusal() -> str:
        return "" if sys.platform.startswith("linux") else "this system lets no process change another one's limits"

    @property
    def amount(self) -> int:
        """The limit that is asked for, as the process that forked the rank is told."""
        raise NotImplementedError

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Set the limit; the gate opens when it is set, and the time runs from then."""
        if (seconds := self.for_) is not None:
            world.once(LIMITED, rank=rank, do=lambda: world.after(seconds, done))
        world.limit(rank, name=self.resource, to=self.amount)

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Set the one before, as far as the rank still lives."""
        world.limit(rank, name=self.resource, to=None)

    def proof_after(self, found: Landing, history: History, *, rank: int) -> Proof:
        """Event, struck, limited; and where it is for some time, that time and the limit taken back."""
        limited = proof.first_after(self._told(history, rank), found.struck)
        if limited is None:
            return Proof(proved=False, description="nobody set the limit", lines=found.lines)
        lines, values = (*found.lines, limited.line), limited.event.values
        if (why := values.get("why")) is not None or not self._is_in_force(limited):
            what = why if why is not None else f"it is {values.get('now')}"
            return Proof(proved=False, description=f"the limit was not set: {what}", lines=lines)
        shown = f"{self._shown(limited)} {proof.milliseconds(found.gate, limited)} after {self.at}"
        if self.for_ is None:
            return Proof(proved=True, description=shown, lines=lines)
        undone, end = proof.noted(history, proof.UNDONE, fault=self.id, rank=rank), history.exit(rank)
        told = proof.first_after(self._told(history, rank), undone) if undone is not None else None
        back = told if told is not None and "why" not in told.event.values else None
        if undone is not None and back is not None and proof.lasted(limited, undone, seconds=self.for_):
            shown = f"{shown}, taken back {proof.milliseconds(limited, back)} later"
            return Proof(proved=True, description=shown, lines=(*lines, undone.line, back.line))
        ended = undone is not None and end is not None and limited.event.ns <= end.event.ns <= undone.event.ns
        if ended and undone is not None and end is not None and not history.was_stopped(rank):
            return Proof(proved=True, description=f"{shown}, to its end", lines=(*lines, end.line, undone.line))
        return proof.cut_short(history, rank=rank, description=f"it was not limited for {self.for_:g} s", lines=lines)

    def _told(self, history: History, rank: int) -> list[Seen]:
        return [one for one in history.served(rank, LIMITED) if one.event.values.get("resource") == self.resource]

    def _is_in_force(self, limited: Seen) -> bool:
        """Whether the kernel holds the rank to what was asked for, and did not before."""
        now, before, mapped = (limited.event.values.get(key) for key in ("now", "before", "mapped"))
        if type(now) is not int or type(before) is not int:
            return False
        wanted = self.amount + (mapped if type(mapped) is int else 0)
        return now == wanted and (before < 0 or before > now)

    def _shown(self, limited: Seen) -> str:
        values = limited.event.values
        return f"{self.resource} limited to {values.get('now')} from {_limit(values.get('before'))}"


def _limit(value: object) -> str:
    return "no limit" if value == -1 else str(value)
