"""`memory`: the rank can take so much memory more.

Where it takes more than that, the kernel ends it with SIGKILL.

Proof: see `harness.faults.condition`. The kernel counts pages that are used, in a cgroup that holds
the rank alone, and what it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE, LimitFault
from harness.forms.problem import Draft, Problem
from harness.forms.process import cgroup_refusal
from harness.forms.units import Size
from harness.history import Seen

LEAST = 1024 * 1024
# The kernel counts whole pages, which are this large at most.
PAGE = 64 * 1024


class MemoryFault(LimitFault):
    """The rank can take only so much memory more."""

    does: ClassVar = (
        "lets the rank take `more` bytes of memory from `at` on, in a cgroup of its own: then it is"
        " killed"
    )
    needs: ClassVar = (
        "an event of the subject to strike at; Linux, and a memory cgroup: as root, or delegated"
    )
    properties: ClassVar = FROM_OUTSIDE
    example: ClassVar = (
        "{id: memory-runs-out, kind: memory, ranks: [1], at: model.load.begin, more: 256MiB}"
    )
    effect: ClassVar = "breaking"
    resource: ClassVar = "memory"

    kind: Literal["memory"]
    more: Size = Field(description="How much it can still take, with a unit, at least 1MiB.")

    @staticmethod
    def refusal() -> str:
        return LimitFault.refusal() or cgroup_refusal()

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """So little that no process could go on is not meant."""
        for index, fault in faults.items():
            if fault.more < LEAST:
                yield draft.problem(
                    ("faults", index, "more"),
                    "must be at least 1MiB: a process needs some to go on",
                )

    @property
    def amount(self) -> int:
        return self.more

    @property
    def condition(self) -> str:
        return f"{self.more} bytes of memory more, then killed"

    def is_in_force(self, seen: Seen) -> bool:
        """Whether its group holds it to what was asked for, in whole pages, and that before did
        not.
        """
        now = seen.event.values.get("now")
        before = seen.event.values.get("before")
        if (
            type(now) is not int
            or type(before) is not int
            or seen.event.values.get("holds") is not True
        ):
            return False
        return self.more - PAGE < now <= self.more and (before < 0 or before > now)
