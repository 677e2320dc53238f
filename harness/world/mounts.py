"""A mount namespace for one rank, and what its keeper puts over a folder there: the rank alone sees it.

The namespace ends with the rank, however it ends, and what was mounted with it. Linux only; who is not root needs
unprivileged user namespaces. Every call here is made in a process of one thread.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from os import _exit
from pathlib import Path
from typing import Any

from harness.rank.process import PROC

NEWNS, NEWUSER = 0x00020000, 0x10000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 0x1, 0x2, 0x4, 0x8, 0x20, 0x1000, 0x4000, 0x40000
DETACH = 2
# What a mount may not lose when it is mounted again in a user namespace.
LOCKED = NOSUID | NODEV | NOEXEC
AWKWARD = ",:\\"


def separate() -> None:
    """Give this process, and what it starts, mounts of its own.

    Raises:
        OSError: the system does not let it.
    """
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        _call("unshare", NEWUSER | NEWNS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    else:
        _call("unshare", NEWNS)
    _mount("none", "/", None, REC | PRIVATE)


def cover(pid: int, folder: Path, *, layer: Path, space: int | None) -> dict[str, Any]:
    """Make a folder read-only for a process that has mounts of its own, or leave it so much space.

    Args:
        pid: the process; who calls must be its parent, or root.
        folder: absolute path; what lies in it stays to be seen.
        layer: a folder of the keeper's own, of which what is written is made.
        space: bytes that can still be written; None makes the folder read-only.

    Returns:
        `read_only` and `free` (bytes), as the process finds the folder now and found it `before`; or `why` not.
    """

    def act() -> dict[str, Any]:
        before = _state(folder)
        if space is None:
            _mount(str(folder), str(folder), None, BIND | REC)
            _mount("none", str(folder), None, REMOUNT | BIND | RDONLY | (os.statvfs(folder).f_flag & LOCKED))
            return {"before": before, **_state(folder)}
        if any(character in f"{folder}{layer}" for character in AWKWARD):
            raise OSError(f"its path holds one of {AWKWARD}, which no overlay takes")
        _mount("tmpfs", str(layer), "tmpfs", NOSUID | NODEV, f"size={space},mode=700")
        for name in ("upper", "work"):
            (layer / name).mkdir()
        options = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work,userxattr"
        _mount("overlay", str(folder), "overlay", NOSUID | NODEV, options)
        _call("umount2", os.fsencode(layer), DETACH)
        return {"before": before, **_state(folder)}

    return _inside(pid, act)


def uncover(pid: int, folder: Path) -> dict[str, Any]:
    """Take away what `cover` put over a folder; what was written to it meanwhile is lost."""

    def act() -> dict[str, Any]:
        before = _state(folder)
        _call("umount2", os.fsencode(folder), DETACH)
        return {"before": before, **_state(folder)}

    return _inside(pid, act)


def _state(folder: Path) -> dict[str, Any]:
    found = os.statvfs(folder)
    return {"read_only": bool(found.f_flag & os.ST_RDONLY), "free": found.f_bavail * found.f_frsize}


def _inside(pid: int, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a child of this process finds that has entered the mounts of another one."""
    told, tell = os.pipe()
    if child := os.fork():
        os.close(tell)
        with os.fdopen(told, "rb") as stream:
            text = stream.read()
        os.waitpid(child, 0)
        return dict(json.loads(text)) if text else {"why": "whoever was to do it ended"}
    try:
        os.write(tell, json.dumps(_entered(pid, act)).encode())
    finally:
        _exit(0)


def _entered(pid: int, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    own = PROC / str(pid) / "ns"
    try:
        here = PROC / "self" / "ns"
        places = [name for name in ("user", "mnt") if (own / name).readlink() != (here / name).readlink()]
        if "mnt" not in places:
            return {"why": "it has no mounts of its own"}
        descriptors = [os.open(own / name, os.O_RDONLY) for name in places]
        for descriptor in descriptors:
            _call("setns", descriptor, 0)
        return act()
    except OSError as error:
        return {"why": str(error)}


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def _call(name: str, *arguments: Any) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
