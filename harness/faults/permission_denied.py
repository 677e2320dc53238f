"""`permission-denied`: nobody may enter or read a folder, until it is over.

Proof: the process that forked the rank took all permissions away while the rank stood at its event,
and read that back.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Literal, Self

from harness.faults.condition import FROM_OUTSIDE
from harness.faults.fault import FaultAtEvent
from harness.faults.folder import FolderFault, belongs_to_the_user
from harness.faults.world_control import L
from harness.forms.problem import Draft, Problem
from harness.history import Seen


class PermissionDeniedFault(FolderFault):
    """A folder lets nobody in."""

    does: ClassVar = (
        "takes all permissions of `folder` away, for every rank, from `at` on: using it fails with"
        " EACCES"
    )
    needs: ClassVar = (
        "an event of the subject to strike at, and a user who is not root, whom nothing is denied"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: cache-is-denied, kind: permission-denied, ranks: [1], at: load.begin, folder: shared}"
    )
    how: ClassVar = "denied"

    kind: Literal["permission-denied"]

    @staticmethod
    def refusal() -> str:
        return (
            "root may read and write whatever the permissions are: run as another user"
            if os.geteuid() == 0
            else ""
        )

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Nothing of the user's is touched: a harness that is killed could not give it back."""
        yield from super().lint(
            {
                index: fault
                for index, fault in faults.items()
                if not belongs_to_the_user(fault.folder, draft)
            },
            draft,
        )
        for index, fault in faults.items():
            if belongs_to_the_user(fault.folder, draft):
                message = (
                    "is a folder of yours, and would stay denied if the harness were killed; name"
                    " one of the trial's"
                )
                yield draft.problem(("faults", index, "folder"), message)

    @property
    def condition(self) -> str:
        return f"{self.folder} without permissions"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Permissions are the file system's own: no mount namespace is needed."""
        return FaultAtEvent.prepare(self, launch, ranks=ranks)

    def is_in_force(self, seen: Seen) -> bool:
        return seen.event.values.get("mode") == 0 and seen.event.values.get("before") not in (
            0,
            None,
        )

    def shown(self, seen: Seen) -> str:
        mode = seen.event.values.get("mode")
        return (
            f"{self.folder} with permissions {mode:o}"
            if type(mode) is int
            else f"{self.folder} unchanged"
        )
