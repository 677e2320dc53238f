"""`exit`: the rank's process exits where it emits an event, without cleaning up.

Proof: the process that forked the rank saw it end with exactly this code after the order, and the
subject had not returned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof, not_proved
from harness.forms.strict_json import JSON
from harness.history import History, ended


class ExitFault(FaultAtEvent):
    """The rank's process exits where it emits the event, without cleaning up."""

    does: ClassVar = "ends the rank's process with `code` where it emits `at`, without cleaning up"
    needs: ClassVar = "an event of the subject to strike at, and a Python subject (`subject.entry`)"
    properties: ClassVar = FaultProperties(
        needs_a_gate=True, inside=True, ends_rank=True, needs_a_hub=False
    )
    effect: ClassVar = "breaking"
    over_machines: ClassVar = True
    example: ClassVar = "{id: rank-1-leaves, kind: exit, ranks: [1], at: decode.begin, code: 0}"
    inside_file: ClassVar = Path(__file__).with_name("exit_inside.py")

    kind: Literal["exit"]
    code: Annotated[int, Field(ge=0, le=255)] = Field(0, description="The exit code, 0 to 255.")

    def description(self) -> str:
        return f"made to exit with code {self.code} at {self.at}"

    def inside(self) -> dict[str, JSON]:
        """Return the order that goes with the answer to the gate."""
        return {"code": self.code}

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, and the end with that code."""
        returned = proof.first_after(history.said(rank, "subject.end"), landed.struck)
        if returned is not None:
            return not_proved("it continued and returned", (*landed.lines, returned.line))
        end = history.exit(rank)
        if end is None or not proof.after(end, landed.struck):
            return not_proved("its exit was not observed", landed.lines)
        lines = (*landed.lines, end.line)
        if end.event.values.get("code") != self.code:
            how = ended(end.event.values)
            return not_proved(f"it ended with {how}, not with code {self.code}", lines)
        time = proof.milliseconds(landed.gate, end)
        shown = f"exited with code {self.code} {time} after {self.at}"
        return Proof(proved=True, description=shown, lines=lines, ends=True)
