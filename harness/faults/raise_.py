"""`raise`: an exception is raised in the rank where it emits an event.

Proof: the rank told that it raises exactly this, after the harness had ordered it. Whether the
subject caught it is the subject's matter; where it did not, the rank's own account of its end names
type and message.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof, not_proved
from harness.forms.model import ExceptionName, Message
from harness.forms.problem import Draft, Problem, closest
from harness.forms.strict_json import JSON
from harness.history import History, Seen


class RaiseFault(FaultAtEvent):
    """An exception is raised in the rank where it emits the event."""

    does: ClassVar = "raises a built-in exception in the rank where it emits `at`"
    needs: ClassVar = "an event of the subject to strike at, and a Python subject (`subject.entry`)"
    properties: ClassVar = FaultProperties(
        needs_a_gate=True, inside=True, ends_rank=True, needs_a_hub=False
    )
    effect: ClassVar = "breaking"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: out-of-memory, kind: raise, ranks: [1], at: decode.begin, error: MemoryError,"
        " message: no memory left}"
    )
    inside_file: ClassVar = Path(__file__).with_name("raise_inside.py")

    kind: Literal["raise"]
    error: ExceptionName = Field("RuntimeError", description="Name of a built-in exception type.")
    message: Message = Field(
        "raised by a fault of the scenario", description="Message of the exception."
    )

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where the exception is not built in, or not made of a message."""
        for index, fault in faults.items():
            if not _is_raisable(fault.error):
                known = [name for name in dir(builtins) if _is_raisable(name)]
                message = (
                    "must be a built-in exception that takes a message, like RuntimeError or"
                    " TimeoutError"
                )
                yield draft.problem(
                    ("faults", index, "error"), message, suggestion=closest(fault.error, known)
                )

    def description(self) -> str:
        return f"made to raise {self.error} at {self.at}"

    def inside(self) -> dict[str, JSON]:
        """Return the order that goes with the answer to the gate."""
        return {"error": self.error, "message": self.message}

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, raised, and how the rank ended where that ended it."""
        raised = next(
            (seen for seen in history.said(rank, "fault.raised") if self._is(seen, landed)), None
        )
        if raised is None:
            return not_proved(f"{self.error} was not raised in it", landed.lines)
        lines = (*landed.lines, raised.line)
        error = history.error(rank)
        values = error.event.values if error else {}
        uncaught = (values.get("type"), values.get("message")) == (self.error, self.message)
        shown = f"{self.error} raised {proof.milliseconds(landed.gate, raised)} after {self.at}"
        if error is None or not uncaught or history.said(rank, "subject.end"):
            return Proof(
                proved=True, description=f"{shown}, and caught by the subject", lines=lines
            )
        return Proof(
            proved=True,
            description=f"{shown}, which ended the rank",
            lines=(*lines, error.line),
            ends=True,
        )

    def _is(self, seen: Seen, landed: Landing) -> bool:
        values = seen.event.values
        stated = (self.id, self.error, self.message)
        said = (values.get("fault"), values.get("error"), values.get("message"))
        return said == stated and proof.after(seen, landed.struck)


def _is_raisable(name: str) -> bool:
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return False
    try:
        return str(kind("a message")) in ("a message", "'a message'")
    except TypeError:
        return False
