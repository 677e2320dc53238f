"""Faults of clocks: `clock-skew` changes the wall clock that Python tells, `monotonic-skew` the
kernel's monotonic clock of the rank.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import FROM_INSIDE, Fault, FaultAtEvent, FaultProperties, Place
from harness.faults.folder import may_unshare
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import L, WorldControl
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.forms.units import Duration
from harness.history import RANK_CLOCK, History, Seen

SKEWED = "fault.skewed"
# The longest time that may pass between the two readings of the wall clock.
WALL_SLACK_NS = 1_000_000_000
# Flag of unshare(2).
NEWTIME = 0x80
# The kernel adds and reports whole nanoseconds, but the offset passes through a float.
MONOTONIC_SLACK_NS = 1_000_000


# Proof: the rank tells which functions it replaced, and what the first of them said before and
# after.
class ClockSkewFault(FaultAtEvent):
    """The rank's wall clock is wrong from the event on."""

    does: ClassVar = (
        "sets the rank's wall clock ahead or back by `by` from `at` to its end, for `time.time`,"
        " `time.time_ns`, `time.localtime`, `time.gmtime` and `datetime`; functions imported by"
        " name earlier, and native code, still see the real time"
    )
    needs: ClassVar = "an event of the subject to strike at, and a Python subject (`subject.entry`)"
    properties: ClassVar = FROM_INSIDE
    effect: ClassVar = "silent"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: clock-is-late, kind: clock-skew, ranks: [1], at: subject.loaded, by: 5min, way: back}"
    )
    inside_file: ClassVar = Path(__file__).with_name("clock_skew_inside.py")

    kind: Literal["clock-skew"]
    by: Duration = Field(description="How much, with a unit: 200ms, 5min.")
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
        """Return the order that goes with the answer to the gate."""
        return {"offset": self._offset}

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, and two readings of the clock that are so far apart."""
        skewed = proof.first_after(
            [
                seen
                for seen in history.said(rank, SKEWED)
                if seen.event.values.get("fault") == self.id
            ],
            landed.struck,
        )
        if skewed is None:
            return not_proved("its clock was not set", landed.lines)
        values = skewed.event.values
        lines = (*landed.lines, skewed.line)
        if (
            (apart := _apart(skewed)) is None
            or abs(apart - self._offset) > WALL_SLACK_NS
            or not self._offset
        ):
            return not_proved("its clock shows the same time as before", lines)
        functions = values.get("functions")
        names = ", ".join(map(str, functions)) if isinstance(functions, list) else ""
        return Proof(
            proved=True,
            description=f"{apart / 1e9:+.3f} s from {self.at} on, by {names}",
            lines=lines,
        )


def _apart(skewed: Seen) -> int | None:
    before = skewed.event.values.get("before")
    after = skewed.event.values.get("after")
    return after - before if type(before) is int and type(after) is int else None


# The rank is in a time namespace, so native code and programs see the wrong clock too, and so does
# time since boot. The wall clock stays right.
#
# Proof: the offset that the kernel reports for the rank's process, once it has spoken.
class MonotonicSkewFault(Fault):
    """The rank's monotonic clock is ahead from its start."""

    does: ClassVar = (
        "starts the rank with a monotonic clock that is `by` ahead of its peers', for all of its"
        " code, so comparing times of two ranks is wrong by that amount"
    )
    needs: ClassVar = "Linux 5.6 or newer, and root or unprivileged user namespaces"
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "masked"
    example: ClassVar = "{id: booted-earlier, kind: monotonic-skew, ranks: [1], by: 5min}"

    kind: Literal["monotonic-skew"]
    by: Duration = Field(description="How much it is ahead, with a unit: 200ms, 5min.")

    @staticmethod
    def refusal() -> str:
        return no_own_clock()

    @property
    def place(self) -> Place:
        return Place("by", ("",), "sets the same clock")

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where it is ahead by nothing."""
        for index, fault in faults.items():
            if not fault.by:
                yield draft.problem(("faults", index, "by"), "must be more than 0")

    def description(self) -> str:
        return f"monotonic clock {self.by:g} s ahead"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Give the ranks clocks of their own."""
        return launch.with_clock_ahead(ranks=ranks, seconds=self.by)

    def proof(self, history: History, *, rank: int) -> Proof:
        """Struck, and the offset that the kernel told, beyond that of the rank's host."""
        struck = proof.noted(history, proof.STRUCK, fault=self.id, rank=rank)
        clocks = history.noted(RANK_CLOCK, rank)
        if struck is None or not clocks:
            return proof.missed(history, rank=rank, what="its clock was not read")
        lines = tuple(sorted((struck.line, clocks[0].line)))
        ahead = clocks[0].event.values.get("ahead")
        if type(ahead) is not int:
            return not_proved("the reading of its clock is not a number", lines)
        shift = ahead - _of_host(history, rank)
        if abs(shift - round(self.by * 1e9)) > MONOTONIC_SLACK_NS:
            return not_proved(f"its clock was {shift / 1e9:g} s ahead", lines)
        return Proof(
            proved=True,
            description=f"its clock was {shift / 1e9:g} s ahead, according to the kernel",
            lines=lines,
        )


def _of_host(history: History, rank: int) -> int:
    """Nanoseconds that the clock of a rank's test host is ahead; 0 without one."""
    placed = history.about().get("hosts")
    made = history.served(None, "hosts.made")
    hosts = made[0].event.values.get("hosts") if made else None
    if not isinstance(placed, list) or not isinstance(hosts, list) or rank >= len(placed):
        return 0
    host = (
        hosts[placed[rank]]
        if type(placed[rank]) is int and 0 <= placed[rank] < len(hosts)
        else None
    )
    ahead = host.get("clock_ahead") if isinstance(host, dict) else None
    return ahead if type(ahead) is int else 0


@cache
def no_own_clock() -> str:
    """Why no process here can have a monotonic clock of its own; empty where it can."""
    if not sys.platform.startswith("linux") or not Path("/proc/self/ns/time_for_children").exists():
        return "this system cannot give a process its own monotonic clock; Linux 5.6 or newer can"
    if may_unshare(NEWTIME):
        return ""
    return (
        "this system does not allow a time namespace; allow unprivileged user namespaces, or run"
        " as root"
    )
