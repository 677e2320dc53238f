"""Faults of folders and files: `read-only`, `no-space`, `permission-denied`, `truncated` and
`replaced`.

A place is `shared` (the folder that all ranks of the trial share), `home`, `temporary`, `work` (the
rank's current folder when it starts) or `inputs/NAME`, or a folder or file below it:
`shared/cache/blobs`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from os import _exit
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from harness.faults.condition import ConditionFault
from harness.faults.fault import FROM_OUTSIDE, FaultAtEvent
from harness.faults.proof import Landing, Proof, first_after, milliseconds, not_proved
from harness.faults.world_control import L, WorldControl
from harness.forms.model import Line
from harness.forms.problem import Draft, Problem, complaint
from harness.forms.units import Size
from harness.history import History, Seen

COVERED = "rank.covered"
SPOILED = "rank.spoiled"
FIRST = ("shared", "home", "temporary", "work", "inputs")
# A page: a file system in memory has at least one.
LEAST_SPACE = 4096
# Flags of unshare(2).
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
            "must be shared, home, temporary, work or inputs/NAME, or a folder inside one of these,"
            " such as shared/cache"
        )
    return text


Place = Annotated[Line, Field(max_length=300), AfterValidator(_place)]


def belongs_to_the_user(place: str, draft: Draft) -> bool:
    """Tell whether a place holds files that are not the trial's own: a change to them would
    stay.
    """
    first = place.partition("/")[0]
    shared_home = draft.at("world", "home") == "shared"
    return first == "inputs" or (shared_home and first in ("home", "temporary"))


def unknown_input(place: str, draft: Draft) -> str:
    """Say why a place does not exist; empty where it may."""
    parts = place.split("/")
    inputs = draft.at("inputs")
    known = list(inputs) if isinstance(inputs, dict) else []
    if parts[0] == "inputs" and parts[1] not in known:
        return f"contains {parts[1]}, which is not an input of this scenario"
    return ""


class FolderFault(ConditionFault):
    """A folder of the rank is in a bad way, for the rank alone."""

    needs: ClassVar = (
        "an event of the subject to strike at; Linux, and root or unprivileged user namespaces,"
        " for the rank's own mount namespace. Files that are already open are not affected"
    )
    told: ClassVar = COVERED
    how: ClassVar[str]

    folder: Place = Field(
        description=(
            "shared, home, temporary, work or inputs/NAME, or a folder inside one of these, such as"
            " shared/cache."
        )
    )

    @staticmethod
    def refusal() -> str:
        return no_own_mounts()

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield the folders that cannot exist."""
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

    properties: ClassVar = FROM_OUTSIDE
    needs: ClassVar = (
        "an event of the subject to strike at, and a file of the trial that exists by then"
    )
    how: ClassVar[str]

    file: Place = Field(
        description="The file, below shared, home, temporary or work: shared/cache/tokenizer.json."
    )

    @property
    def keep(self) -> int:
        """Number that says how the file is spoiled."""
        raise NotImplementedError

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where it would spoil a file of the user."""
        for index, fault in faults.items():
            if belongs_to_the_user(fault.file, draft):
                message = (
                    "is your own file, and would stay changed; give a file that the trial creates"
                )
                yield draft.problem(("faults", index, "file"), message)

    def description(self) -> str:
        return f"{self.file} {self.how} ({self.keep}) at {self.at}"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Spoil it; the gate opens when that is done. It goes with the trial's folders."""
        del done
        world.press(rank, "spoil", place=self.file, how=self.how, keep=self.keep)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, struck, spoiled; the file is another one than before."""
        about = [
            seen
            for seen in history.served(rank, SPOILED)
            if seen.event.values.get("place") == self.file
        ]
        spoiled = first_after(
            [seen for seen in about if seen.event.values.get("how") == self.how], landed.struck
        )
        if spoiled is None:
            return not_proved("the file was not touched", landed.lines)
        values = spoiled.event.values
        lines = (*landed.lines, spoiled.line)
        before = values.get("before")
        now = values.get("now")
        if (
            not isinstance(before, dict)
            or not isinstance(now, dict)
            or before.get("sha256") == now.get("sha256")
        ):
            why = values.get("why") or "it did not change"
            return not_proved(f"{self.file} was not {self.how}: {why}", lines)
        sizes = f"{before.get('bytes')} bytes before, {now.get('bytes')} now"
        time = milliseconds(landed.gate, spoiled)
        shown = f"{self.file} {self.how} {time} after {self.at}: {sizes}"
        return Proof(proved=True, description=shown, lines=lines)


@cache
def no_own_mounts() -> str:
    """Say why no process here can have its own mounts; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "this system has no mount namespaces"
    if may_unshare(NEWNS):
        return ""
    return (
        "this system cannot give a process its own mounts; allow unprivileged user namespaces, or"
        " run as root"
    )


def may_unshare(flags: int) -> bool:
    """Tell whether a process here may make such namespaces, in a user namespace if it is not
    root.
    """
    import ctypes

    unshare = ctypes.CDLL(None, use_errno=True).unshare
    # Tried by a child: nothing that was read about a kernel says what a container forbids on top.
    if (child := os.fork()) == 0:
        _exit(unshare(flags if os.geteuid() == 0 else flags | NEWUSER) != 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Proof: the process that forked the rank mounted the folder so in the rank's own mount namespace,
# and found it so there.
class ReadOnlyFault(FolderFault):
    """A folder is read-only for the rank."""

    does: ClassVar = (
        "makes `folder` read-only for only this rank, from `at` on; writing fails with EROFS"
    )
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


# What the folder holds stays to be seen. What the rank writes there from then on lies in memory,
# up to `left` bytes, and its peers do not see it: a full disk lets nothing through either.
#
# Proof: the process that forked the rank mounted the folder so in the rank's own mount namespace,
# and found there how much can be written.
class NoSpaceFault(FolderFault):
    """A folder has no space left for the rank."""

    does: ClassVar = (
        "leaves only this rank `left` bytes of space in `folder`; then writing fails with ENOSPC"
    )
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: disk-is-full, kind: no-space, ranks: [1], at: download.begin, folder: home, left:"
        " 64KiB}"
    )
    how: ClassVar = "full"

    kind: Literal["no-space"]
    left: Size = Field(
        LEAST_SPACE, description="How much can still be written, with a unit, at least 4KiB."
    )

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem also where less than a page is left: no file system has less."""
        yield from super().lint(faults, draft)
        for index, fault in faults.items():
            if fault.left < LEAST_SPACE:
                yield draft.problem(
                    ("faults", index, "left"), f"must be at least {LEAST_SPACE}B, a page of memory"
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
        return (
            type(free) is int
            and type(was) is int
            and free <= self.left + LEAST_SPACE
            and free < was
        )

    def shown(self, seen: Seen) -> str:
        return f"{seen.event.values.get('free')} bytes left in {self.folder}"


# Proof: the process that forked the rank took all permissions away while the rank stood at its
# event, and read that back.
class PermissionDeniedFault(FolderFault):
    """A folder lets nobody in."""

    does: ClassVar = (
        "removes all permissions of `folder`, for every rank, from `at` on; using it fails with"
        " EACCES"
    )
    needs: ClassVar = (
        "an event of the subject to strike at, and a user who is not root, because root ignores"
        " permissions"
    )
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: cache-is-denied, kind: permission-denied, ranks: [1], at: load.begin, folder: shared}"
    )
    how: ClassVar = "denied"

    kind: Literal["permission-denied"]

    @staticmethod
    def refusal() -> str:
        return "root ignores file permissions; run as another user" if os.geteuid() == 0 else ""

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where it would touch the user's folders: a killed harness cannot give
        them back.
        """
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
                    "is your own folder, and would stay denied if the harness were killed; give a"
                    " folder of the trial"
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


class TruncatedFault(FileFault):
    """A file is cut off."""

    does: ClassVar = "truncates `file` after `left` bytes while the rank waits at `at`"
    effect: ClassVar = "silent"
    example: ClassVar = (
        "{id: half-a-file, kind: truncated, ranks: [0], at: saved, file: shared/model.safetensors,"
        " left: 1KiB}"
    )
    how: ClassVar = "truncated"

    kind: Literal["truncated"]
    left: Size = Field(
        0, description="How much of it stays, with a unit.", json_schema_extra={"default": "0B"}
    )

    @property
    def keep(self) -> int:
        return self.left


class ReplacedFault(FileFault):
    """A file is replaced by one in which a byte differs."""

    does: ClassVar = (
        "replaces `file` while the rank waits at `at` with a new file of the same size, in which"
        " all bits of the byte at `offset` are flipped; processes that have the old file open"
        " keep using it"
    )
    effect: ClassVar = "silent"
    example: ClassVar = (
        "{id: another-file, kind: replaced, ranks: [0], at: saved, file: shared/model.safetensors,"
        " offset: 4KiB}"
    )
    how: ClassVar = "replaced"

    kind: Literal["replaced"]
    offset: Size = Field(
        0,
        description="Offset of the byte that differs, with a unit.",
        json_schema_extra={"default": "0B"},
    )

    @property
    def keep(self) -> int:
        return self.offset
