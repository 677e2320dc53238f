"""`hold-memory`: from an event on, the rank holds so much memory more, until it ends.

Proof: the harness struck at the event, and the rank reported afterwards that its resident memory
had grown by as much.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof
from harness.forms.strict_json import JSON
from harness.forms.units import Size
from harness.history import History


class HoldMemoryFault(FaultAtEvent):
    """The rank holds more memory from an event on."""

    does: ClassVar = "makes the rank hold so much more memory from where it emits `at`"
    needs: ClassVar = (
        "an event of the subject to strike at, and a subject in Python (`subject.entry`)"
    )
    properties: ClassVar = FaultProperties(
        needs_a_gate=True, inside=True, ends_rank=False, needs_a_hub=False
    )
    example: ClassVar = (
        "{id: little-memory, kind: hold-memory, ranks: [1], at: decode.begin, size: 64MiB}"
    )
    inside_file: ClassVar = Path(__file__).with_name("hold_memory_inside.py")

    kind: Literal["hold-memory"]
    size: Size = Field(description="How much, with a unit: 64MiB.")

    def description(self) -> str:
        return f"made to hold {self.size} bytes at {self.at}"

    def inside(self) -> dict[str, JSON]:
        return {"size": self.size}

    def proof(self, history: History, *, rank: int) -> Proof:
        """Event, order, and what the rank reports of its memory."""
        landing = proof.landing(history, fault=self.id, at=self.at, rank=rank)
        if not isinstance(landing, Landing):
            return landing
        held = proof.first_after(history.said(rank, "example.memory_held"), landing.struck)
        if held is None or held.event.values.get("fault") != self.id:
            return Proof(
                proved=False,
                description="it did not report that it holds more",
                lines=landing.lines,
            )
        lines = (*landing.lines, held.line)
        grown = held.event.values.get("grown")
        if not isinstance(grown, int) or grown < 0.9 * self.size:
            return Proof(proved=False, description=f"it holds {grown} bytes more", lines=lines)
        return Proof(
            proved=True, description=f"it holds {grown} bytes more after {self.at}", lines=lines
        )
