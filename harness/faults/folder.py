"""What faults on folders and files share: the places that a scenario can name, and who may be
struck there.

A place is `shared` (the folder that all ranks of the trial share), `home`, `temporary`, `work` (the
rank's current folder when it starts) or `inputs/NAME`, and what lies below it:
`shared/cache/blobs`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from os import _exit
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field

from harness.faults.condition import ConditionFault
from harness.faults.fault import FaultAtEvent
from harness.faults.proof import Landing, Proof, first_after, milliseconds
from harness.faults.world_control import L, WorldControl
from harness.forms.model import Line
from harness.forms.problem import Draft, Problem, complaint
from harness.history import History, Seen

COVERED = "rank.covered"
SPOILED = "rank.spoiled"
FIRST = ("shared", "home", "temporary", "work", "inputs")
NEWNS = 0x00020000
NEWUSER = 0x10000000


def _place(text: str) -> str:
    parts = text.split("/")
    if (
        parts[0] not in FIRST
        or any(part in ("", ".", "..") for part in parts)
        or parts == ["inputs"]
    ):
        raise complaint(
            "must be shared, home, temporary, work or inputs/NAME, or lie below one: shared/cache"
        )
    return text


Place = Annotated[Line, Field(max_length=300), AfterValidator(_place)]


def belongs_to_the_user(place: str, draft: Draft) -> bool:
    """Whether a place holds files that are not the trial's own: what is done to them would stay."""
    first = place.partition("/")[0]
    shared_home = draft.at("world", "home") == "shared"
    return first == "inputs" or (shared_home and first in ("home", "temporary"))


def unknown_input(place: str, draft: Draft) -> str:
    """Why a place is not there; empty where it may be."""
    parts = place.split("/")
    inputs = draft.at("inputs")
    known = list(inputs) if isinstance(inputs, dict) else []
    if parts[0] == "inputs" and parts[1] not in known:
        return f"names {parts[1]}, which is not an input of this scenario"
    return ""


class FolderFault(ConditionFault):
    """A folder of the rank is in a bad way, for the rank alone."""

    needs: ClassVar = (
        "an event of the subject to strike at; Linux, and root or unprivileged user namespaces for"
        " a mount namespace of the rank's own. Files that are open already are not touched"
    )
    told: ClassVar = COVERED
    how: ClassVar[str]

    folder: Place = Field(
        description=(
            "shared, home, temporary, work or inputs/NAME, or a folder below one: shared/cache."
        )
    )

    @staticmethod
    def refusal() -> str:
        return no_own_mounts()

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """The folder can be there."""
        for index, fault in faults.items():
            if why := unknown_input(fault.folder, draft):
                yield draft.problem(("faults", index, "folder"), why)

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Give the ranks mounts of their own, so that no peer, and nobody else, sees what is
        done.
        """
        return super().prepare(launch, ranks=ranks).with_own_mounts(ranks=ranks)

    def impose(self, world: WorldControl, *, rank: int) -> None:
        world.press(rank, "cover", place=self.folder, how=self.how)

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Take away what covers the folder; where the rank has ended, that went with it."""
        world.press(rank, "cover", place=self.folder, how="open")

    def is_told_by(self, seen: Seen) -> bool:
        return seen.event.values.get("place") == self.folder and seen.event.values.get("how") in (
            self.how,
            "open",
        )


class FileFault(FaultAtEvent):
    """A file is spoiled on disk, for all who read it.

    It lies in a folder of the trial's own, which goes with it.

    Proof: the process that forked the rank did it while the rank stood at its event, and says size,
    digest and inode of the file before and after.
    """

    needs: ClassVar = (
        "an event of the subject to strike at, and a file of the trial's own that is there by then"
    )
    how: ClassVar[str]

    file: Place = Field(
        description="The file, below shared, home, temporary or work: shared/cache/tokenizer.json."
    )

    @property
    def keep(self) -> int:
        """The number that says how."""
        raise NotImplementedError

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Nothing of the user's is spoiled."""
        for index, fault in faults.items():
            if belongs_to_the_user(fault.file, draft):
                message = (
                    "is a file of yours, and would stay as it is made; name one that the trial"
                    " itself makes"
                )
                yield draft.problem(("faults", index, "file"), message)

    def description(self) -> str:
        return f"{self.file} {self.how} ({self.keep}) at {self.at}"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Spoil it; the gate opens when that is done. It goes with the trial's folders."""
        del done
        world.press(rank, "spoil", place=self.file, how=self.how, keep=self.keep)

    def proof_after(self, found: Landing, history: History, *, rank: int) -> Proof:
        """Event, struck, spoiled; the file is another one than before."""
        about = [
            seen
            for seen in history.served(rank, SPOILED)
            if seen.event.values.get("place") == self.file
        ]
        spoiled = first_after(
            [seen for seen in about if seen.event.values.get("how") == self.how], found.struck
        )
        if spoiled is None:
            return Proof(proved=False, description="nobody touched the file", lines=found.lines)
        values = spoiled.event.values
        lines = (*found.lines, spoiled.line)
        before = values.get("before")
        now = values.get("now")
        if (
            not isinstance(before, dict)
            or not isinstance(now, dict)
            or before.get("sha256") == now.get("sha256")
        ):
            why = values.get("why") or "it is as it was"
            return Proof(
                proved=False, description=f"{self.file} was not {self.how}: {why}", lines=lines
            )
        sizes = f"{before.get('bytes')} bytes before, {now.get('bytes')} now"
        shown = (
            f"{self.file} {self.how} {milliseconds(found.gate, spoiled)} after {self.at}: {sizes}"
        )
        return Proof(proved=True, description=shown, lines=lines)


@cache
def no_own_mounts() -> str:
    """Why no process here can have mounts of its own; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "this system has no mount namespaces"
    if may_unshare(NEWNS):
        return ""
    return (
        "this system gives no process mounts of its own: allow unprivileged user namespaces, or run"
        " as root"
    )


def may_unshare(flags: int) -> bool:
    """Whether a process here may make such namespaces, around which one makes a user namespace who
    is not root.
    """
    import ctypes

    unshare = ctypes.CDLL(None, use_errno=True).unshare
    # Tried by a child: nothing that was read about a kernel says what a container forbids on top.
    if (child := os.fork()) == 0:
        _exit(unshare(flags if os.geteuid() == 0 else flags | NEWUSER) != 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
