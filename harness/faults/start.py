"""Faults of the start: `start-late` forks a rank later than its peers, `start-order` forks all
ranks
in another order than by their numbers.

Proof: the moments at which the process that forked the ranks says it forked each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FOR, Fault, FaultProperties, Place
from harness.faults.proof import Proof, not_proved
from harness.faults.world_control import L
from harness.forms.problem import Draft, Problem
from harness.forms.units import Duration
from harness.history import History, Seen


class StartLateFault(Fault):
    """The rank starts later than its peers."""

    does: ClassVar = "starts the rank `for` after the last of the other ranks"
    needs: ClassVar = "a rank that is not late"
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "masked"
    example: ClassVar = "{id: rank-1-starts-late, kind: start-late, ranks: [1], for: 1s}"

    kind: Literal["start-late"]
    for_: Duration = Field(alias="for", description=FOR)

    @property
    def place(self) -> Place:
        return Place("for", ("",), "also starts late")

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where no rank starts in time."""
        for size in draft.sizes():
            try:
                ranks = {rank for fault in faults.values() for rank in fault.ranks.of(size)}
            except ValueError:
                return  # ranks that are not there have a rule of their own
            if len(ranks) == size:
                yield draft.problem(
                    ("faults", max(faults), "ranks"),
                    f"makes every rank late in a world of {size}; leave one out",
                )
                return

    def description(self) -> str:
        return f"started {self.for_:g} s after the others"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Hold the ranks back."""
        return launch.late(ranks=ranks, seconds=self.for_)

    def proof(self, history: History, *, rank: int) -> Proof:
        """Work out whether the others were forked, the time passed, and then this one was."""
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
            return not_proved("the start times of the others are unknown", (mine[0].line,))
        last = max(others, key=lambda seen: seen.event.ns)
        lines = (last.line, mine[0].line)
        if not proof.lasted(last, mine[0], seconds=self.for_):
            time = proof.milliseconds(last, mine[0])
            return not_proved(f"it was started only {time} after the others", lines)
        return Proof(
            proved=True,
            description=f"started {proof.milliseconds(last, mine[0])} after rank {last.event.rank}",
            lines=lines,
        )


def _started(history: History, rank: int) -> list[Seen]:
    return list(history.served(rank, "rank.started"))[:1]


class StartOrderFault(Fault):
    """The ranks start in the opposite order, each some time after the one before."""

    does: ClassVar = "starts the ranks in the given `order`, each `gap` after the previous rank"
    needs: ClassVar = "a world of two ranks or more; `ranks: every`"
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "masked"
    example: ClassVar = (
        "{id: the-last-first, kind: start-order, ranks: every, order: reversed, gap: 200ms}"
    )

    kind: Literal["start-order"]
    order: Literal["reversed", "rank-0-last"] = Field(
        "reversed",
        description=(
            "reversed: the highest rank first; rank-0-last: rank 1 first, rank 0 after all others."
        ),
    )
    gap: Duration = Field(
        description="How long after the previous rank each rank starts, with a unit: 200ms, 10s."
    )

    @property
    def place(self) -> Place:
        return Place("gap", ("",), "also sets when ranks start")

    def of(self, size: int) -> Sequence[int]:
        """Return the ranks in the order in which they start."""
        return [*range(1, size), 0] if self.order == "rank-0-last" else list(reversed(range(size)))

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where a rank has no place in the order, there are fewer than two, or the
        last one starts too late.
        """
        for index, fault in faults.items():
            place = ("faults", index)
            if fault.ranks.which != "every":
                yield draft.problem(
                    (*place, "ranks"), 'must be "every", because an order applies to all ranks'
                )
            sizes = draft.sizes()
            if sizes and sizes[0] < 2:
                yield draft.problem(
                    place,
                    "needs more than one rank; leave 1 out of matrix.ranks",
                    at_key=True,
                )
            last = fault.gap * (sizes[-1] - 1) if sizes else 0.0
            if fault.gap <= 0 or (draft.deadline is not None and last >= draft.deadline):
                message = (
                    "must be more than 0s, and short enough that the last of"
                    f" {sizes[-1] if sizes else 2} ranks starts"
                )
                yield draft.problem((*place, "gap"), f"{message} before world.deadline")
            late = [other.id for other in draft.faults.values() if other.kind == "start-late"]
            if late:
                yield draft.problem(
                    place,
                    f"conflicts with the fault {late[0]}, which also sets when ranks start",
                    at_key=True,
                )

    def description(self) -> str:
        order = "the highest first" if self.order == "reversed" else "rank 0 last"
        return f"started {self.gap:g} s after each other, {order}"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Hold all but the first back."""
        for place, rank in enumerate(self.of(len(ranks))):
            launch = launch.late(ranks=[rank], seconds=place * self.gap) if place else launch
        return launch

    def proof(self, history: History, *, rank: int) -> Proof:
        """Each was forked after the one before it in this order, up to this rank."""
        order = self.of(history.size)
        started = {
            earlier: next(iter(history.served(earlier, "rank.started")), None) for earlier in order
        }
        if (mine := started[rank]) is None:
            return Proof(
                proved=False,
                description="it was never started: its world had ended before",
                overtaken=True,
            )
        struck = proof.noted(history, proof.STRUCK, fault=self.id, rank=rank)
        if struck is None:
            return not_proved("the harness did not see it start", (mine.line,))
        place = order.index(rank)
        before = [seen for earlier in order[:place] if (seen := started[earlier]) is not None]
        lines = tuple(sorted({*(seen.line for seen in (*before, mine)), struck.line}))
        in_order = all(
            first.event.ns < second.event.ns for first, second in pairwise([*before, mine])
        )
        if len(before) < place or not in_order:
            return not_proved(
                "ranks that should start before it started later, or not at all", lines
            )
        if not before:
            later = [seen for follower in order[1:] if (seen := started[follower]) is not None]
            first = all(mine.event.ns < seen.event.ns for seen in later)
            return Proof(
                proved=first,
                description="started first" if first else "another rank started before it",
                lines=lines,
            )
        since = proof.milliseconds(before[0], mine)
        if not proof.lasted(before[0], mine, seconds=place * self.gap):
            return not_proved(f"it started only {since} after rank {order[0]}", lines)
        return Proof(proved=True, description=f"started {since} after rank {order[0]}", lines=lines)
