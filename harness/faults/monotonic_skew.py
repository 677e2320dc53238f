"""`monotonic-skew`: the rank's monotonic clock is ahead of its peers', as those of two machines
are.

It is the kernel's own clock, in a time namespace: native code and programs see it too, and so does
time since boot. The clock on the wall is right. Proof: the offset that the kernel tells of the
rank's process, once it has spoken.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import Fault, FaultProperties, Place
from harness.faults.folder import may_unshare
from harness.faults.proof import Proof
from harness.faults.world_control import L
from harness.forms.problem import Draft, Problem
from harness.forms.units import Duration
from harness.history import RANK_CLOCK, History

NEWTIME = 0x80
# What the kernel adds and what it tells are whole nanoseconds; what is told of it passes through a
# float.
SLACK_NS = 1_000_000


class MonotonicSkewFault(Fault):
    """The rank's monotonic clock is ahead from its start."""

    does: ClassVar = (
        "starts the rank with a monotonic clock that is `by` ahead of its peers', for all code in"
        " it: what compares moments of two ranks is wrong by so much"
    )
    needs: ClassVar = "Linux 5.6 or newer, and root or unprivileged user namespaces"
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=False
    )
    effect: ClassVar = "masked"
    example: ClassVar = "{id: booted-earlier, kind: monotonic-skew, ranks: [1], by: 5min}"

    kind: Literal["monotonic-skew"]
    by: Duration = Field(description="By how much it is ahead, with a unit: 200ms, 5min.")

    @staticmethod
    def refusal() -> str:
        return no_own_clock()

    @property
    def place(self) -> Place:
        return Place("by", ("",), "sets the same clock")

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """It is ahead by something."""
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
            return proof.missed(history, rank=rank, what="nobody read its clock")
        lines = tuple(sorted((struck.line, clocks[0].line)))
        ahead = clocks[0].event.values.get("ahead")
        if type(ahead) is not int:
            return Proof(
                proved=False, description="what was read of its clock is not a number", lines=lines
            )
        shift = ahead - _of_host(history, rank)
        if abs(shift - round(self.by * 1e9)) > SLACK_NS:
            return Proof(
                proved=False, description=f"its clock was {shift / 1e9:g} s ahead", lines=lines
            )
        return Proof(
            proved=True,
            description=f"its clock was {shift / 1e9:g} s ahead, as the kernel tells it",
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
        return (
            "this system gives no process a monotonic clock of its own: Linux 5.6 does, and newer"
            " ones"
        )
    if may_unshare(NEWTIME):
        return ""
    return (
        "this system lets nobody make a time namespace: allow unprivileged user namespaces, or run"
        " as root"
    )
