"""Isolation of a process by Linux: namespaces, mounts of one rank alone, and a memory cgroup.

Standard library only, by system call, in processes of one thread.

Everything about namespaces works for any user where the kernel lets users have them, because the
first that is made is a user namespace, in which its maker may make the others. A mount namespace
ends with its rank, however the rank ends, and takes with it what its keeper put over a folder
there. A memory cgroup, of version 1 or 2, takes root or a delegated group: it counts what a process
takes once it is in the group, and what it had before counts where it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from os import _exit
from pathlib import Path
from typing import TypedDict

from harness.forms.kernel import CGROUP_LIMIT, CGROUP_PREFIX, cgroup_bytes, cgroup_place
from harness.rank.process import PROC

CLONE_NEWNS = 0x20000
CLONE_NEWUTS = 0x4000000
CLONE_NEWIPC = 0x8000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
CLONE_NEWTIME = 0x80
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
# Of capget and capset: version 3, two halves of effective, permitted and inheritable.
_CAPABILITIES = "6I"
_HEADER = struct.pack("Ii", 0x20080522, 0)
OWN = Path("/proc/self/ns")
_MAPS = ("uid_map", "gid_map")


class NotAllowed(OSError):
    """Refusal of a namespace by the kernel, or by what contains this process.

    The message says which step.
    """


def _call(step: str, name: str, *arguments: object) -> None:
    """Call the C library.

    Raises:
        NotAllowed: it failed; the message names the step and what the kernel says.
    """
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise NotAllowed(number, f"cannot {step}: {os.strerror(number)}")


def unshare(flags: int, *, step: str) -> None:
    """Leave the namespaces of these kinds for new ones.

    Of time, only children forked later are in the new one.
    """
    _call(step, "unshare", flags)


def enter(descriptor: int, *, step: str) -> None:
    """Enter the namespace that a descriptor stands for."""
    _call(step, "setns", descriptor, 0)


def mount(
    target: Path,
    *,
    kind: str | None = None,
    source: Path | str = "none",
    flags: int = 0,
    data: str = "",
) -> None:
    """Mount something at a place in this mount namespace, or change what is mounted there."""
    texts = [os.fsencode(text) for text in (source, target)]
    what = [
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    ]
    _call(f"mount at {target}", "mount", *texts, *what)


def mount_over(source: Path, target: Path) -> None:
    """Have a file or folder appear at another place too, in this mount namespace."""
    mount(target, source=source, flags=MS_BIND | MS_REC)


def mount_memory(target: Path) -> None:
    """Have an empty folder in memory, in which everybody may write, at a place in this mount
    namespace.
    """
    mount(target, kind="tmpfs", source="tmpfs", data="mode=1777")


def unmount(target: Path) -> None:
    """Take away what was mounted last at a place, for all who do not use it already."""
    _call(f"unmount {target}", "umount2", os.fsencode(target), MNT_DETACH)


def keep_mounts_private() -> None:
    """Mounts made in this namespace are made in no other."""
    mount(Path("/"), flags=MS_REC | MS_PRIVATE)


def own_mounts() -> None:
    """Leave the mount namespace for one of this process's own, and of what it starts."""
    _separate(CLONE_NEWNS, step="create a mount namespace")
    keep_mounts_private()


def own_clock(ahead: int) -> None:
    """Have a monotonic clock that is so many nanoseconds ahead of the machine's.

    With one thread.
    """
    _separate(CLONE_NEWTIME, step="create a time namespace")
    # While nobody is in it: afterwards the kernel lets nobody set it.
    set_clock_ahead(ahead)
    # Only children are born into a new time namespace: this process itself has to enter it.
    namespace = os.open(OWN / "time_for_children", os.O_RDONLY | os.O_CLOEXEC)
    enter(namespace, step="enter a time namespace")
    os.close(namespace)


def _separate(flags: int, *, step: str) -> None:
    """Leave namespaces for new ones.

    Who is not root makes a user namespace around them, with that user alone in it.
    """
    user = os.geteuid()
    group = os.getegid()
    unshare(flags | (0 if user == 0 else CLONE_NEWUSER), step=step)
    if user != 0:
        # The kernel takes a map of groups from no user before that.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def map_users(pid: int) -> None:
    """Give a process that has just made its user namespace its users: everybody for root, else
    itself alone.

    To be called from the namespace above: in its own, a process may map itself and nobody else.

    Raises:
        OSError: the kernel refuses.
    """
    place = Path("/proc", str(pid))
    if os.geteuid() == 0:
        # Of a container's root, everybody is those whom the container has.
        known = [
            [line.split() for line in Path(f"/proc/self/{name}").read_text().splitlines()]
            for name in _MAPS
        ]
        maps = [
            "".join(f"{inside} {inside} {count}\n" for inside, _, count in lines) for lines in known
        ]
    else:
        maps = [f"{number} {number} 1" for number in (os.geteuid(), os.getegid())]
        (place / "setgroups").write_text("deny")
    for name, text in zip(_MAPS, maps, strict=True):
        (place / name).write_text(text)


def capabilities() -> tuple[int, ...]:
    """Return what this process may do beyond its user, as the kernel writes it."""
    held = ctypes.create_string_buffer(struct.calcsize(_CAPABILITIES))
    _call("capget", "capget", _HEADER, held)
    return struct.unpack(_CAPABILITIES, held.raw)


def keep_capabilities(before: tuple[int, ...]) -> None:
    """Give up what this process may not have done before: inside a user namespace, its maker may do
    everything.
    """
    kept = [now & then for now, then in zip(capabilities(), before, strict=True)]
    _call("capset", "capset", _HEADER, struct.pack(_CAPABILITIES, *kept))


def has_clocks() -> bool:
    """Return whether this kernel gives a namespace a monotonic clock of its own (Linux 5.6 and
    newer).
    """
    return (OWN / "time_for_children").exists()


def set_clock_ahead(ahead: int) -> None:
    """Set the clocks of a new time namespace, in which nobody is yet: monotonic time and time since
    boot.

    Args:
        ahead: nanoseconds that they are ahead of the machine's own, whatever namespace this one was
            made in.

    Raises:
        OSError: the kernel refuses.
    """
    seconds, rest = divmod(ahead, 1_000_000_000)
    Path("/proc/self/timens_offsets").write_text(
        f"monotonic {seconds} {rest}\nboottime {seconds} {rest}\n"
    )


def without_ipv6() -> None:
    """Let no interface of this network namespace speak of itself by IPv6, where the kernel has
    it.
    """
    for name in ("all", "default"):
        with suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")


# What a mount may not lose when it is mounted again in a user namespace.
LOCKED = MS_NOSUID | MS_NODEV | MS_NOEXEC
AWKWARD = ",:\\"


class FolderState(TypedDict):
    """Folder as a process finds it.

    Attributes:
        read_only: whether nobody can write there.
        free: bytes that can still be written.
    """

    read_only: bool
    free: int


class Covered(FolderState):
    """Folder as a process finds it now, and found it before."""

    before: FolderState


class NotCovered(TypedDict):
    """Reason why nothing was done to a folder."""

    why: str


def cover(pid: int, folder: Path, *, layer: Path, space: int | None) -> Covered | NotCovered:
    """Make a folder read-only for a process that has mounts of its own, or leave it so much space.

    Args:
        pid: the process; who calls must be its parent, or root.
        folder: absolute path; what lies in it stays to be seen.
        layer: a folder of the keeper's own, of which what is written is made.
        space: bytes that can still be written; None makes the folder read-only.

    Returns:
        `read_only` and `free` (bytes), as the process finds the folder now and found it `before`;
        or `why` not.
    """

    def act() -> Covered:
        before = _state(folder)
        if space is None:
            mount_over(folder, folder)
            locked = os.statvfs(folder).f_flag & LOCKED
            mount(folder, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | locked)
            return {"before": before, **_state(folder)}
        if any(character in f"{folder}{layer}" for character in AWKWARD):
            raise OSError(
                "its path contains a character that an overlay mount does not accept (one of"
                f" {' '.join(AWKWARD)}); use a path without these characters"
            )
        flags = MS_NOSUID | MS_NODEV
        mount(layer, kind="tmpfs", flags=flags, data=f"size={space},mode=700")
        for name in ("upper", "work"):
            (layer / name).mkdir()
        options = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work,userxattr"
        mount(folder, kind="overlay", flags=flags, data=options)
        unmount(layer)
        return {"before": before, **_state(folder)}

    return _inside(pid, act)


def uncover(pid: int, folder: Path) -> Covered | NotCovered:
    """Take away what `cover` put over a folder; what was written to it meanwhile is lost."""

    def act() -> Covered:
        before = _state(folder)
        unmount(folder)
        return {"before": before, **_state(folder)}

    return _inside(pid, act)


def _state(folder: Path) -> FolderState:
    if not folder.is_dir():
        raise OSError("the folder does not exist")
    state = os.statvfs(folder)
    return {"read_only": bool(state.f_flag & os.ST_RDONLY), "free": state.f_bavail * state.f_frsize}


def _inside(pid: int, act: Callable[[], Covered]) -> Covered | NotCovered:
    """Return what a child of this process finds that has entered the mounts of another one."""
    # A child, because a process cannot go back to its mounts once it has entered a user namespace.
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as stream:
        try:
            child = os.fork()
            if child == 0:
                try:
                    os.write(writes, json.dumps(_entered(pid, act)).encode())
                finally:
                    # Never back into the keeper's loop: two processes would speak in its place.
                    _exit(0)
        finally:
            # Before reading: the end of the stream is the end of the child.
            os.close(writes)
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        return {"why": "the process for this step ended"}
    outcome: Covered | NotCovered = json.loads(text)
    return outcome


def _entered(pid: int, act: Callable[[], Covered]) -> Covered | NotCovered:
    theirs = PROC / str(pid) / "ns"
    try:
        here = PROC / "self" / "ns"
        places = [
            name
            for name in ("user", "mnt")
            if (theirs / name).readlink() != (here / name).readlink()
        ]
        if "mnt" not in places:
            return {"why": "it does not have its own mounts"}
        # Opened before the first is entered: afterwards rights and mounts are the rank's. The user
        # namespace is entered first: it gives the right to enter the mounts.
        descriptors = [os.open(theirs / name, os.O_RDONLY) for name in places]
        for descriptor in descriptors:
            enter(descriptor, step="enter the rank's mounts")
        return act()
    except OSError as error:
        return {"why": str(error)}


EMPTY_WITHIN = 2.0


class GroupEvidence(TypedDict):
    """Memory group as the kernel shows it.

    Attributes:
        now: its limit in bytes.
        before: the limit of the group that the process came from.
        holds: whether the process is in it.
        cgroup: version of the kernel's interface.
    """

    now: int
    before: int
    holds: bool
    cgroup: int


class MemoryGroup:
    """Memory cgroup that holds one process.

    Made, used and disbanded by the process that forked that one.
    """

    def __init__(self, pid: int, *, limit: int, links: Path) -> None:
        """Make it and put the process in.

        Args:
            pid: the process.
            limit: bytes that it, and what it starts, can take from now on.
            links: a folder in which a link to the group lies as long as there is one, for whoever
                clears up.

        Raises:
            OSError: no group can be made here, or not with this process in it; nothing is left of
                it then.
        """
        version, parent = cgroup_place()
        self._version = version
        self._pid = pid
        _, self._former = cgroup_place(str(pid), itself=True)
        self.before = cgroup_bytes(self._former / CGROUP_LIMIT[version])
        self.path = parent / f"{CGROUP_PREFIX}{os.getpid()}-{pid}"
        self._link = links / f"group-{os.getpid()}-{pid}"
        # Before the group is made: who is killed in between leaves a link to nothing, and not a
        # group that nobody knows of.
        self._link.symlink_to(self.path)
        try:
            self.path.mkdir()
            (self.path / CGROUP_LIMIT[version]).write_text(str(limit))
            # What is swapped out would count as not taken.
            with contextlib.suppress(OSError):
                name, value = _WITHOUT_SWAP[version]
                (self.path / name).write_text(value if value is not None else str(limit))
            (self.path / "cgroup.procs").write_text(str(pid))
            self.now = cgroup_bytes(self.path / CGROUP_LIMIT[version])
            self._holds = str(pid) in (self.path / "cgroup.procs").read_text().split()
        except OSError:
            self.disband()
            raise

    def evidence(self) -> GroupEvidence:
        """Return whether the group holds the process, its limit as the kernel tells it, and that of
        the group it came from.
        """
        return {
            "now": self.now,
            "before": self.before,
            "holds": self._holds,
            "cgroup": self._version,
        }

    def leave(self) -> int:
        """Put the process back where it was, with what it has taken; returns the limit there.

        Raises:
            OSError: the kernel refuses.
        """
        (self._former / "cgroup.procs").write_text(str(self._pid))
        return cgroup_bytes(self._former / CGROUP_LIMIT[self._version])

    def disband(self, *, within: float = 0.0) -> bool:
        """Remove the group, if nobody is in it any more or will be for long.

        Returns whether it is gone.
        """
        if is_gone := _remove(self.path, within=within):
            self._link.unlink(missing_ok=True)
        return is_gone


_WITHOUT_SWAP: dict[int, tuple[str, str | None]] = {
    1: ("memory.memsw.limit_in_bytes", None),
    2: ("memory.swap.max", "0"),
}


def disband_left(links: Path) -> None:
    """Remove the groups whose makers have ended without doing so.

    To be called when nobody of theirs is left.
    """
    for link in links.glob("group-*"):
        with contextlib.suppress(OSError):
            target = link.readlink()
            if target.name.startswith(CGROUP_PREFIX):
                _remove(target, within=EMPTY_WITHIN)


def _remove(path: Path, *, within: float) -> bool:
    end = time.monotonic() + within
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # who was in it is known to the kernel for a moment longer
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
        else:
            return True
