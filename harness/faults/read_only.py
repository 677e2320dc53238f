"""`read-only`: the rank can write nothing in a folder, and its peers can.

Proof: the process that forked the rank mounted the folder so in the rank's own mount namespace, and
found it so there.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.condition import FROM_OUTSIDE
from harness.faults.folder import FolderFault
from harness.history import Seen


class ReadOnlyFault(FolderFault):
    """A folder is read-only for the rank."""

    does: ClassVar = (
        "makes `folder` read-only for the rank alone, from `at` on: writing fails with EROFS"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: cache-is-read-only, kind: read-only, ranks: [1], at: load.begin, folder: home}"
    )
    how: ClassVar = "read-only"

    kind: Literal["read-only"]

    @property
    def condition(self) -> str:
        return f"{self.folder} read-only"

    def is_in_force(self, seen: Seen) -> bool:
        before = seen.event.values.get("before")
        was = before.get("read_only") if isinstance(before, dict) else None
        return was is False and seen.event.values.get("read_only") is True

    def shown(self, seen: Seen) -> str:
        return (
            f"{self.folder}"
            f" {'read-only' if seen.event.values.get('read_only') is True else 'not read-only'}"
        )
