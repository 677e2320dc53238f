"""`exit`: the rank's process exits where it emits an event, without cleaning up.

Proof: the process that forked the rank saw it end with exactly this code after the order, and the subject had not
returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from harness.checks.exit import ended
from harness.checks.history import History
from harness.faults import proof
from harness.faults.proof import Landing, Proof
from harness.faults.stage import L, Stage
from harness.forms.strict_json import JSON
from harness.scenario import ExitFault


class Exit:
    """The order to exit goes with the answer to the gate."""

    does: ClassVar[str] = "ends the rank's process with `code` where it emits `at`, without cleaning up"
    needs: ClassVar[str] = "an event of the subject to strike at, and a subject in Python (`subject.entry`)"
    properties: ClassVar = ExitFault.properties

    def __init__(self, options: ExitFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        return f"made to exit with code {self._options.code} at {self._options.at}"

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
        return {"fault": fault, "exit": self._options.code}

    def undo(self, stage: Stage, *, rank: int) -> None:
        """What exited stays so."""

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Event, order, and the end with that code."""
        found = proof.landing(history, fault=fault, at=self._options.at, rank=rank)
        if not isinstance(found, Landing):
            return found
        returned = proof.first_after(history.said(rank, "subject.end"), found.struck)
        if returned is not None:
            return Proof(proved=False, told="it went on and returned", lines=(*found.lines, returned.line))
        end = history.exit(rank)
        if end is None or not proof.after(end, found.struck):
            return Proof(proved=False, told="nobody saw it end", lines=found.lines)
        lines = (*found.lines, end.line)
        if end.event.values.get("code") != self._options.code:
            how = ended(end.event.values)
            return Proof(proved=False, told=f"it ended with {how}, not with code {self._options.code}", lines=lines)
        told = f"exited with code {self._options.code} {proof.milliseconds(found.gate, end)} after {self._options.at}"
        return Proof(proved=True, told=told, lines=lines, ends=True)
