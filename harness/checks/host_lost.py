"""`host-lost`: when a machine of the world was cut off, every rank ended in time, and none
returned.

On the machine itself by its own clock: it must say that it had not heard control for its lease, and
have ended its ranks then. Elsewhere by control's clock: who did not end by an error of its own was
stopped, as long after the loss as the scenario gives the others. Times of two machines are never
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import NO_VALUE, FailsAt, RankCheck
from harness.checks.finding import RankFinding, failed, finite
from harness.checks.survivors import is_error
from harness.forms.model import Id
from harness.forms.problem import Draft, Problem, closest
from harness.forms.units import Duration
from harness.history import (
    MACHINE_COLLECTED,
    MACHINE_CUT,
    MACHINE_ENDED,
    MACHINE_LOST,
    MACHINES_JOINED,
    History,
    Seen,
    ended,
    machine_called,
)


class HostLostCheck(RankCheck):
    """When a machine is lost, its ranks are ended by its lease and all others by an error or by the
    harness. No rank returns.
    """

    properties: ClassVar = replace(
        NO_VALUE,
        compares_ranks=True,
        demands_an_error=True,
        may_be_stopped=True,
        wrong=FailsAt.RANK_END,
        missing=FailsAt.WORLD_END,
    )
    example: ClassVar = (
        "{id: nobody-goes-on, kind: host-lost, ranks: every, fault: link-is-cut, limit: 1s}"
    )

    kind: Literal["host-lost"]
    fault: Id = Field(description="The fault that cuts a machine off.")
    limit: Duration = Field(
        1.0,
        description=(
            "How late a rank may be ended, with a unit: by its machine after the lease, by the"
            " harness after world.after_failure."
        ),
        json_schema_extra={"default": "1s"},
    )

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Returning is success, and nothing else may be said of a world that lost a machine."""
        end = history.exit(rank)
        cut = [
            seen
            for seen in history.noted(MACHINE_CUT)
            if seen.event.values.get("fault") == self.fault
        ]
        if not cut or end is None:
            why = "its exit was not observed" if cut else "no machine was cut off"
            return failed(rank, why, missing=True)
        if (returned := history.returned(rank)) is not None:
            return failed(
                rank, "it returned although a machine of its world was lost", returned.line
            )
        machine = machine_called(history, rank)
        if any(seen.event.values.get("machine") == machine for seen in cut):
            reason = self._there(history, machine, end)
        else:
            reason = self._elsewhere(
                history, rank, [seen.event.values.get("machine") for seen in cut], end
            )
        observed = ended(end.event.values)
        return RankFinding(
            rank=rank, passed=not reason, observed=observed, reason=reason, line=end.line
        )

    def _there(self, history: History, own: object, end: Seen) -> str:
        """Why its machine did not end it as it has to; empty where it did."""
        ended = _of(history, MACHINE_ENDED, own)
        whole = _of(history, MACHINE_COLLECTED, own)
        if ended is None:
            return "its machine did not report that it ended the rank"
        silent = finite(ended.event.values.get("silent"))
        lease = finite(_joined(history, "lease"))
        if silent is None or lease is None:
            return "its machine did not report how long it had not heard from control"
        if not lease - 0.5 <= silent <= lease + self.limit:
            return (
                f"its machine ended it after {silent:g} s without control, but its lease is"
                f" {lease:g} s"
            )
        # Both by the clock of that machine.
        if (took := (end.event.ns - ended.event.ns) / 1e9) > self.limit:
            return f"it ended {took:.1f} s after its machine was to end it"
        if whole is None or whole.event.values.get("why") != "":
            why = (
                "its events were not collected" if whole is None else whole.event.values.get("why")
            )
            return f"the journal of its machine is incomplete: {why}"
        return ""

    def _elsewhere(self, history: History, rank: int, cut: list[object], end: Seen) -> str:
        """Why it did not end as it has to on a machine that stayed; empty where it did."""
        if not history.was_stopped(rank):
            return "" if is_error(end.event.values) else f"it ended with {ended(end.event.values)}"
        lost = [
            seen for seen in history.noted(MACHINE_LOST) if seen.event.values.get("machine") in cut
        ]
        stopped = history.noted("world.stopped")
        grace = finite(_joined(history, "after_failure"))
        if not lost or grace is None:
            return "it was stopped for a reason other than the lost machine"
        # Both by control's clock.
        if (took := (stopped[0].event.ns - lost[0].event.ns) / 1e9) > grace + self.limit:
            return (
                f"it was stopped {took:.1f} s after the machine was lost; the others have"
                f" {grace:g} s"
            )
        return ""

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield faults that do not cut machines off."""
        cutting = [fault.id for fault in draft.faults.values() if fault.test_machines]
        stated = draft.at("faults")
        readable = len(stated) == len(draft.faults) if isinstance(stated, list) else True
        for index, check in checks.items():
            if check.fault not in cutting and readable:
                message = (
                    "must be the id of a fault of kind cut-off, because otherwise no machine is"
                    " lost"
                )
                hint = closest(check.fault, cutting) if cutting else None
                yield draft.problem(("checks", index, "fault"), message, suggestion=hint)


def _of(history: History, name: str, machine: object) -> Seen | None:
    return next(
        (seen for seen in history.noted(name) if seen.event.values.get("machine") == machine), None
    )


def _joined(history: History, key: str) -> object:
    found = history.noted(MACHINES_JOINED)
    return found[0].event.values.get(key) if found else None
