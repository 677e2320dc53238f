"""`env`: some ranks start with other environment variables than their peers.

Proof: every struck rank tells the value it effectively sees as it begins; with new interpreters,
also the value that the kernel gave to the process, which is what a library reads while it is
imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import Fault, FaultProperties, Place
from harness.faults.proof import Proof, not_proved
from harness.faults.world_control import L
from harness.forms.model import Plain, Variable
from harness.history import History

SEEN = "fault.env"


class EnvFault(Fault):
    """The rank starts with other environment variables than its peers."""

    does: ClassVar = "starts the rank with environment variables that differ from its peers'"
    needs: ClassVar = (
        "a Python subject; variables that libraries read at import make every rank of the world"
        " start fresh"
    )
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=True, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "silent"
    over_machines: ClassVar = True
    example: ClassVar = '{id: one-thread, kind: env, ranks: [1], set: {OMP_NUM_THREADS: "1"}}'

    kind: Literal["env"]
    set: dict[Variable, Plain] = Field(
        min_length=1, description="Variables and their values, in quotes."
    )

    @property
    def variables(self) -> Mapping[str, str]:
        return self.set

    @property
    def place(self) -> Place:
        return Place("set", tuple(self.set), "sets the same variable")

    def description(self) -> str:
        return "started with " + ", ".join(f"{name}={value}" for name, value in self.set.items())

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Give the ranks their variables; every rank tells what it sees of them."""
        return launch.with_variables(ranks=ranks, variables=self.set)

    def proof(self, history: History, *, rank: int) -> Proof:
        """Started so, and what the rank sees."""
        struck = proof.noted(history, proof.STRUCK, fault=self.id, rank=rank)
        said = history.said(rank, SEEN)
        if struck is None or not said:
            return proof.missed(history, rank=rank, what="it did not report the value that it sees")
        # The harness may hear of the rank's start after the rank has spoken.
        first, second = sorted((struck.line, said[0].line))
        lines = (first, second)
        fresh = history.about().get("start") == "fresh"
        for key in ("values", "at_start") if fresh else ("values",):
            values = said[0].event.values.get(key)
            if key == "at_start" and values is None:
                continue  # a system that does not say
            wrong = self._wrong(values)
            if wrong:
                return not_proved(wrong, lines)
        shown = ", ".join(f"{name} is {value!r}" for name, value in self.set.items())
        return Proof(proved=True, description=f"there {shown}", lines=lines)

    def _wrong(self, values: object) -> str:
        seen: Mapping[object, object] = values if isinstance(values, dict) else {}
        for name, value in self.set.items():
            if seen.get(name) != value:
                return f"{name} is {seen.get(name)!r}, not {value!r}"
        return ""
