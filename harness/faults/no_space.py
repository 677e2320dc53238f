"""`no-space`: the rank can write only so much more in a folder; then its disk is full.

What the folder holds stays to be seen. What the rank writes there from then on lies in memory, up
to `left` bytes, and its peers do not see it: a full disk lets nothing through either.

Proof: the process that forked the rank mounted the folder so in the rank's own mount namespace, and
found there how much can be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE
from harness.faults.folder import FolderFault
from harness.faults.world_control import WorldControl
from harness.forms.problem import Draft, Problem
from harness.forms.units import Size
from harness.history import Seen

LEAST = 4096
"""A page: a file system in memory has at least one."""


class NoSpaceFault(FolderFault):
    """A folder has no space left for the rank."""

    does: ClassVar = (
        "leaves the rank, not its peers, `left` bytes of space in `folder`: then writing fails with"
        " ENOSPC"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: disk-is-full, kind: no-space, ranks: [1], at: download.begin, folder: home, left:"
        " 64KiB}"
    )
    how: ClassVar = "full"

    kind: Literal["no-space"]
    left: Size = Field(
        LEAST, description="How much can still be written, with a unit, at least 4KiB."
    )

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """And a page is left: no file system has less."""
        yield from super().lint(faults, draft)
        for index, fault in faults.items():
            if fault.left < LEAST:
                yield draft.problem(
                    ("faults", index, "left"), f"must be at least {LEAST}B, a page of memory"
                )

    @property
    def condition(self) -> str:
        return f"{self.left} bytes left in {self.folder}"

    def impose(self, world: WorldControl, *, rank: int) -> None:
        world.press(rank, "cover", place=self.folder, how=self.how, space=self.left)

    def is_in_force(self, seen: Seen) -> bool:
        """Pages are whole; and there was more before."""
        free = seen.event.values.get("free")
        before = seen.event.values.get("before")
        was = before.get("free") if isinstance(before, dict) else None
        return type(free) is int and type(was) is int and free <= self.left + LEAST and free < was

    def shown(self, seen: Seen) -> str:
        return f"{seen.event.values.get('free')} bytes left in {self.folder}"
