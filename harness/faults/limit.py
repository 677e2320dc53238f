"""Faults that lower a limit of the rank's process: `address-space`, `file-size`, `open-files` and
`memory`.

Proof: see `harness.faults.condition`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from harness.faults.condition import ConditionFault
from harness.faults.world_control import WorldControl
from harness.forms.kernel import cgroup_refusal
from harness.forms.problem import Draft, Problem
from harness.forms.units import Size
from harness.history import Seen

LIMITED = "rank.limited"
LEAST_MEMORY = 1024 * 1024
# The kernel counts whole pages, which are at most this large.
LARGEST_PAGE = 64 * 1024


class LimitFault(ConditionFault):
    """The rank's process has a lower limit of something."""

    told: ClassVar = LIMITED
    resource: ClassVar[str]

    @staticmethod
    def refusal() -> str:
        return (
            ""
            if sys.platform.startswith("linux")
            else "this system does not let a process change the limits of another process"
        )

    @property
    def amount(self) -> int:
        """Limit that is asked for, as the process that forked the rank gets it."""
        raise NotImplementedError

    def impose(self, world: WorldControl, *, rank: int) -> None:
        world.press(rank, "limit", name=self.resource, to=self.amount)

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Set the limit before, as far as the rank still lives."""
        world.press(rank, "limit", name=self.resource, to=None)

    def is_told_by(self, seen: Seen) -> bool:
        return seen.event.values.get("resource") == self.resource

    def is_in_force(self, seen: Seen) -> bool:
        """Tell whether the kernel holds the rank to the limit, and did not before."""
        now, before, mapped = (seen.event.values.get(key) for key in ("now", "before", "mapped"))
        if type(now) is not int or type(before) is not int:
            return False
        wanted = self.amount + (mapped if type(mapped) is int else 0)
        return now == wanted and (before < 0 or before > now)

    def shown(self, seen: Seen) -> str:
        now = seen.event.values.get("now")
        before = seen.event.values.get("before")
        return f"{self.resource} limited to {now} from {'no limit' if before == -1 else before}"


# The limit counts addresses, not pages: what a library maps and never touches counts too.
class AddressSpaceFault(LimitFault):
    """The rank can map only so much memory more."""

    does: ClassVar = (
        "lets the rank map only `more` bytes beyond what it has mapped at `at`; then allocations"
        " fail"
    )
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: memory-is-short, kind: address-space, ranks: [1], at: model.load.begin, more: 64MiB}"
    )
    resource: ClassVar = "address-space"

    kind: Literal["address-space"]
    more: Size = Field(description="How much it can still map, with a unit: 64MiB.")

    @property
    def amount(self) -> int:
        return self.more

    @property
    def condition(self) -> str:
        return f"at most {self.more} more bytes of address space"


class FileSizeFault(LimitFault):
    """The rank can write no file beyond a size."""

    does: ClassVar = (
        "limits the files that the rank writes to `to` from `at` on; in Python, writing fails"
        " with EFBIG, and a program gets SIGXFSZ"
    )
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: no-large-files, kind: file-size, ranks: [1], at: save.begin, to: 64KiB}"
    )
    resource: ClassVar = "file-size"

    kind: Literal["file-size"]
    to: Size = Field(
        description="The largest size of a file, with a unit: 64KiB. A larger file keeps its size."
    )

    @property
    def amount(self) -> int:
        return self.to

    @property
    def condition(self) -> str:
        return f"no file beyond {self.to} bytes"


class OpenFilesFault(LimitFault):
    """The rank can open no further file or socket."""

    does: ClassVar = (
        "lets the rank have only descriptors below `to` from `at` on; opening another file or"
        " socket fails with EMFILE, but open files stay open"
    )
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: no-more-files, kind: open-files, ranks: [1], at: decode.begin, to: 0, for: 1s}"
    )
    resource: ClassVar = "open-files"

    kind: Literal["open-files"]
    to: Annotated[int, Field(ge=0, le=2**20)] = Field(
        description="Descriptors must have a lower number; with 0, nothing more can be opened."
    )

    @property
    def amount(self) -> int:
        return self.to

    @property
    def condition(self) -> str:
        return f"only descriptors below {self.to}"


# The kernel counts the pages in use, in a cgroup that holds only the rank and what it starts, and
# ends a rank that takes more with SIGKILL.
class MemoryFault(LimitFault):
    """The rank can take only so much memory more."""

    does: ClassVar = (
        "lets the rank take only `more` more bytes of memory from `at` on, in its own cgroup;"
        " then it is killed"
    )
    needs: ClassVar = (
        "an event of the subject to strike at; Linux, and a memory cgroup: as root, or delegated"
    )
    example: ClassVar = (
        "{id: memory-runs-out, kind: memory, ranks: [1], at: model.load.begin, more: 256MiB}"
    )
    effect: ClassVar = "breaking"
    resource: ClassVar = "memory"

    kind: Literal["memory"]
    more: Size = Field(description="How much more memory it may use, with a unit, at least 1MiB.")

    @staticmethod
    def refusal() -> str:
        return LimitFault.refusal() or cgroup_refusal()

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where so little is left that no process could go on."""
        for index, fault in faults.items():
            if fault.more < LEAST_MEMORY:
                yield draft.problem(
                    ("faults", index, "more"),
                    "must be at least 1MiB, because a process needs some memory to continue",
                )

    @property
    def amount(self) -> int:
        return self.more

    @property
    def condition(self) -> str:
        return f"at most {self.more} more bytes of memory, then killed"

    def is_in_force(self, seen: Seen) -> bool:
        """Tell whether its group holds it to the limit, in whole pages, and did not before."""
        now = seen.event.values.get("now")
        before = seen.event.values.get("before")
        if (
            type(now) is not int
            or type(before) is not int
            or seen.event.values.get("holds") is not True
        ):
            return False
        return self.more - LARGEST_PAGE < now <= self.more and (before < 0 or before > now)
