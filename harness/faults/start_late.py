"""`start-late`: the rank is forked later than its peers.

Proof: the moments at which the process that forked them says it forked each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FOR, Fault, FaultProperties, Place
from harness.faults.proof import Proof
from harness.faults.world_control import L
from harness.forms.problem import Draft, Problem
from harness.forms.units import Duration
from harness.history import History, Seen


class StartLateFault(Fault):
    """The rank starts later than its peers."""

    does: ClassVar = "starts the rank `for` after the last of the ranks that are not late"
    needs: ClassVar = "a rank that is not late"
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "masked"
    example: ClassVar = "{id: rank-1-starts-late, kind: start-late, ranks: [1], for: 1s}"

    kind: Literal["start-late"]
    for_: Duration = Field(alias="for", description=FOR)

    @property
    def duration(self) -> float | None:
        return self.for_

    @property
    def place(self) -> Place:
        return Place("for", ("",), "is late too")

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """A rank is late only beside one that is not."""
        for size in draft.sizes():
            try:
                ranks = {rank for fault in faults.values() for rank in fault.ranks.of(size)}
            except ValueError:
                return  # ranks that are not there have a rule of their own
            if len(ranks) == size:
                message = f"leaves no rank that starts in time in a world of {size}; leave one out"
                yield draft.problem(("faults", max(faults), "ranks"), message)
                return

    def description(self) -> str:
        return f"started {self.for_:g} s after the others"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Hold the ranks back."""
        return launch.late(ranks=ranks, seconds=self.for_)

    def proof(self, history: History, *, rank: int) -> Proof:
        """The others were forked, the time passed, this one was forked."""
        late = set(self.ranks.of(history.size))
        others = [
            seen
            for other in range(history.size)
            if other not in late
            for seen in _started(history, other)
        ]
        mine = _started(history, rank)
        if not mine:
            return Proof(
                proved=False,
                description="it was never started: its world had ended before",
                overtaken=True,
            )
        struck = proof.noted(history, proof.STRUCK, fault=self.id, rank=rank)
        if not others or struck is None:
            return Proof(
                proved=False,
                description="nothing says when the others were started",
                lines=(mine[0].line,),
            )
        last = max(others, key=lambda seen: seen.event.ns)
        lines = (last.line, mine[0].line)
        if not proof.lasted(last, mine[0], seconds=self.for_):
            time = proof.milliseconds(last, mine[0])
            return Proof(
                proved=False,
                description=f"it was started only {time} after the others",
                lines=lines,
            )
        shown = f"started {proof.milliseconds(last, mine[0])} after rank {last.event.rank}"
        return Proof(proved=True, description=shown, lines=lines)


def _started(history: History, rank: int) -> list[Seen]:
    return list(history.served(rank, "rank.started"))[:1]
