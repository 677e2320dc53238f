"""Linux namespaces by system call: what makes a process a host of its own.

Standard library only, no thread but one.

Everything here works for any user where the kernel lets users have namespaces, because the first
that is made is a user namespace, in which its maker may make the others.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

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
    """The kernel, or what contains this process, does not let it make a namespace.

    The message says which step.
    """


def _call(step: str, name: str, *arguments: object) -> None:
    """Call the C library.

    Raises:
        NotAllowed: it failed; the message names the step and what the kernel says.
    """
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise NotAllowed(number, f"{step}: {os.strerror(number)}")


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
    _separate(CLONE_NEWNS, step="make a mount namespace")
    keep_mounts_private()


def own_clock(ahead: int) -> None:
    """Have a monotonic clock that is so many nanoseconds ahead of the machine's.

    With one thread.
    """
    _separate(CLONE_NEWTIME, step="make a time namespace")
    set_clock_ahead(ahead)
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
    """What this process may do beyond its user, as the kernel writes it."""
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
    """Whether this kernel gives a namespace a monotonic clock of its own (Linux 5.6 and newer)."""
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
