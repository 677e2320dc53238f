"""`raise`: an exception is raised in the rank where it emits an event.

Proof: the rank told that it raises exactly this, after the harness had ordered it. Whether the subject caught it is the
subject's matter; where it did not, the rank's own account of its end names type and message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from harness.checks.history import History, Seen
from harness.faults import proof
from harness.faults.proof import Landing, Proof
from harness.faults.stage import L, Stage
from harness.forms.strict_json import JSON
from harness.scenario import RaiseFault


class Raise:
    """The order to raise goes with the answer to the gate."""

    does: ClassVar[str] = "raises a built-in exception in the rank where it emits `at`"
    needs: ClassVar[str] = "an event of the subject to strike at, and a subject in Python (`subject.entry`)"
    properties: ClassVar = RaiseFault.properties

    def __init__(self, options: RaiseFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        return f"made to raise {self._options.error} at {self._options.at}"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Make the event a gate."""
        del ranks
        return launch.gated(at=self._options.at)

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """The answer to the gate is all there is; it carries the order of `inside`."""
        del stage, rank
        done()

    def inside(self, *, fault: str) -> dict[str, JSON]:
        """The order that the rank carries out."""
        return {"fault": fault, "raise": self._options.error, "message": self._options.message}

    def undo(self, stage: Stage, *, rank: int) -> None:
        """What was raised stays so."""

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Event, order, raised, and how the rank ended where that ended it."""
        found = proof.landing(history, fault=fault, at=self._options.at, rank=rank)
        if not isinstance(found, Landing):
            return found
        raised = next((seen for seen in history.said(rank, "fault.raised") if self._is(seen, fault, found)), None)
        if raised is None:
            return Proof(proved=False, told=f"{self._options.error} was not raised in it", lines=found.lines)
        lines = (*found.lines, raised.line)
        error = history.error(rank)
        values = error.event.values if error else {}
        uncaught = (values.get("type"), values.get("message")) == (self._options.error, self._options.message)
        told = f"{self._options.error} raised {proof.milliseconds(found.gate, raised)} after {self._options.at}"
        if error is None or not uncaught or history.said(rank, "subject.end"):
            return Proof(proved=True, told=f"{told}, and caught by the subject", lines=lines)
        return Proof(proved=True, told=f"{told}, which ended the rank", lines=(*lines, error.line), ends=True)

    def _is(self, seen: Seen, fault: str, found: Landing) -> bool:
        values = seen.event.values
        stated = (fault, self._options.error, self._options.message)
        said = (values.get("fault"), values.get("error"), values.get("message"))
        return said == stated and proof.after(seen, found.struck)
