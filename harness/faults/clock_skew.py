"""`clock-skew`: the rank's wall clock is wrong, as Python tells it; its monotonic clock is not.

Proof: the rank tells which functions it replaced, and what the first of them said before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof
from harness.faults.world_control import WorldControl
from harness.forms.strict_json import JSON
from harness.forms.units import Duration
from harness.history import History, Seen

SKEWED = "fault.skewed"
# Between the two readings, at most.
SLACK_NS = 1_000_000_000


class ClockSkewFault(FaultAtEvent):
    """The rank's wall clock is wrong from the event on."""

    does: ClassVar = (
        "sets the rank's wall clock ahead or back by `by` from `at` to its end, as `time.time`,"
        " `time.time_ns`, `time.localtime`, `time.gmtime` and `datetime` tell it; functions"
        " imported by name before stay right, and so does the clock of native code"
    )
    needs: ClassVar = (
        "an event of the subject to strike at, and a subject in Python (`subject.entry`)"
    )
    properties: ClassVar = FaultProperties(
        needs_a_gate=True, inside=True, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "silent"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: clock-is-late, kind: clock-skew, ranks: [1], at: subject.loaded, by: 5min, way: back}"
    )
    inside_file: ClassVar = Path(__file__).with_name("clock_skew_inside.py")

    kind: Literal["clock-skew"]
    by: Duration = Field(description="By how much, with a unit: 200ms, 5min.")
    way: Literal["ahead", "back"] = Field(
        "ahead", description="ahead: it shows a later time; back: an earlier one."
    )

    @property
    def _offset(self) -> int:
        return round(self.by * 1e9) * (1 if self.way == "ahead" else -1)

    def description(self) -> str:
        return f"wall clock {self.by:g} s {self.way} from {self.at} on"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """It is in force as long as the rank lives."""

    def inside(self) -> dict[str, JSON]:
        """The order that goes with the answer to the gate."""
        return {"offset": self._offset}

    def proof_after(self, found: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, and two readings of the clock that are so far apart."""
        skewed = proof.first_after(
            [
                seen
                for seen in history.said(rank, SKEWED)
                if seen.event.values.get("fault") == self.id
            ],
            found.struck,
        )
        if skewed is None:
            return Proof(proved=False, description="its clock was not set", lines=found.lines)
        values = skewed.event.values
        lines = (*found.lines, skewed.line)
        if (
            (apart := _apart(skewed)) is None
            or abs(apart - self._offset) > SLACK_NS
            or not self._offset
        ):
            return Proof(
                proved=False, description="its clock tells the same time as before", lines=lines
            )
        functions = values.get("functions")
        names = ", ".join(map(str, functions)) if isinstance(functions, list) else ""
        shown = f"{apart / 1e9:+.3f} s from {self.at} on, by {names}"
        return Proof(proved=True, description=shown, lines=lines)


def _apart(skewed: Seen) -> int | None:
    before = skewed.event.values.get("before")
    after = skewed.event.values.get("after")
    return after - before if type(before) is int and type(after) is int else None
