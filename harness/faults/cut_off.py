"""`cut-off`: the cable of the rank's machine is pulled out, for long enough that every machine
gives up the other ones.

It is done to test machines, made of this one (`--hosts test:3`), in a world over several. Proof:
the kernel's word that the machine's link was down, control's that it lost the machine after that,
and the link up again after the time asked. No time of two machines is compared: all of these are
told by control's clock. What becomes of the ranks on that machine is the fault's doing; how they
ended is asked by the check `host-lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FOR, FaultAtEvent, FaultProperties
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.problem import Draft, Problem
from harness.forms.units import Duration
from harness.history import (
    MACHINE_CUT,
    MACHINE_JOINED,
    MACHINE_LOST,
    History,
    machine_called,
    neighbours,
)

# The lease of a machine and the second that control waits beyond it: what is shorter, nobody has to
# notice.
NOTICED = 5.0


class CutOffFault(FaultAtEvent):
    """The machine of the rank is cut off from all others."""

    does: ClassVar = (
        "disconnects the rank's machine from the network, `after` it emitted `at`, and reconnects"
        " it after `for`"
    )
    needs: ClassVar = (
        "test machines (`--hosts test:3`, `matrix.hosts`), and an event of the subject to strike at"
    )
    properties: ClassVar = FaultProperties(
        needs_a_gate=True, inside=False, ends_rank=True, needs_a_hub=False
    )
    effect: ClassVar = "stopping"
    over_machines: ClassVar = True
    test_machines: ClassVar = (
        "cannot disconnect a real machine; run it over test machines, --hosts test:3"
    )
    example: ClassVar = (
        "{id: link-is-cut, kind: cut-off, ranks: [1], at: step.begin, after: 50ms, for: 8s}"
    )

    kind: Literal["cut-off"]
    after_: Duration = Field(
        0.0,
        alias="after",
        description=(
            "How long after the event, with a unit; the rank continues meanwhile. With 0s it"
            " waits at its event until its machine ends it."
        ),
        json_schema_extra={"default": "0s"},
    )
    for_: Duration = Field(alias="for", description=FOR)

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where the machines of its ranks are not said, or it is over before they
        are missed.
        """
        hosts = draft.at("matrix", "hosts")
        for index, fault in faults.items():
            if not isinstance(hosts, list) or 1 in hosts:
                message = "needs several machines; give their number, as in matrix: {hosts: [3]}"
                yield draft.problem(("faults", index, "kind"), message)
            if fault.for_ <= NOTICED:
                message = (
                    f"is not longer than it takes to notice a lost machine ({NOTICED:g} s), so"
                    " nothing would have to notice it"
                )
                yield draft.problem(("faults", index, "for"), message)

    def description(self) -> str:
        later = f" {self.after_:g} s after" if self.after_ else " at"
        return f"its machine cut off from all others{later} {self.at}, for {self.for_:g} s"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Cut it off; what it tells afterwards waits on its own disk."""

        def cut() -> None:
            world.cut_off(rank, fault=self.id)
            world.after(self.for_, done)

        if self.after_:
            world.after(self.after_, cut)
        else:
            cut()

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Join it again; what it wrote down can be collected."""
        world.join(rank, fault=self.id)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Link down, machine lost, link up, in this order by control's clock."""
        machine = machine_called(history, rank)
        lines = landed.lines
        cut = proof.first_after(
            [seen for seen in history.noted(MACHINE_CUT) if self._is(seen.event.values, machine)],
            landed.struck,
        )
        if cut is None:
            return proof.missed(
                history, rank=rank, what=f"its machine was not cut off after {self.at}"
            )
        if cut.event.values.get("link") != "down":
            return not_proved(
                f"the link of its machine was {cut.event.values.get('link')}", (*lines, cut.line)
            )
        lost = proof.first_after(
            [
                seen
                for seen in history.noted(MACHINE_LOST)
                if seen.event.values.get("machine") == machine
            ],
            cut,
        )
        if lost is None:
            return proof.cut_short(
                history,
                rank=rank,
                description="the loss of its machine was not noticed",
                lines=(*lines, cut.line),
            )
        joined = proof.first_after(
            [
                seen
                for seen in history.noted(MACHINE_JOINED)
                if self._is(seen.event.values, machine)
            ],
            lost,
        )
        if (
            joined is None
            or joined.event.values.get("link") != "up"
            or not proof.lasted(cut, joined, seconds=self.for_)
        ):
            return not_proved(
                f"its machine was not cut off for {self.for_:g} s and then connected again",
                (*lines, cut.line, lost.line),
            )
        shown = (
            f"its machine cut off, noticed after {proof.milliseconds(cut, lost)}, connected again"
            " after"
        )
        return Proof(
            proved=True,
            description=f"{shown} {proof.milliseconds(cut, joined)}",
            lines=(*lines, cut.line, lost.line, joined.line),
            ends=_was_ended(history, rank),
            beside=tuple(
                other for other in neighbours(history, rank) if _was_ended(history, other)
            ),
        )

    def _is(self, values: Mapping[str, Any], own: object) -> bool:
        return (values.get("fault"), values.get("machine")) == (self.id, own)


def _was_ended(history: History, rank: int) -> bool:
    """Tell whether somebody else ended a rank, not its own return or error."""
    end = history.exit(rank)
    return (
        end is not None
        and end.event.values.get("signal") == "SIGKILL"
        and history.returned(rank) is None
    )
