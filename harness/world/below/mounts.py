"""A mount namespace for one rank, and what its keeper puts over a folder there: the rank alone sees
it.

The namespace ends with the rank, however it ends, and what was mounted with it. Linux only; who is
not root needs unprivileged user namespaces. Every call here is made in a process of one thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from os import _exit
from pathlib import Path
from typing import Any

from harness.rank.process import PROC
from harness.world.below import namespaces
from harness.world.below.namespaces import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
)

# What a mount may not lose when it is mounted again in a user namespace.
LOCKED = MS_NOSUID | MS_NODEV | MS_NOEXEC
AWKWARD = ",:\\"


def cover(pid: int, folder: Path, *, layer: Path, space: int | None) -> dict[str, Any]:
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

    def act() -> dict[str, Any]:
        before = _state(folder)
        if space is None:
            namespaces.mount_over(folder, folder)
            locked = os.statvfs(folder).f_flag & LOCKED
            namespaces.mount(folder, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | locked)
            return {"before": before, **_state(folder)}
        if any(character in f"{folder}{layer}" for character in AWKWARD):
            raise OSError(f"its path holds one of {AWKWARD}, which no overlay takes")
        flags = MS_NOSUID | MS_NODEV
        namespaces.mount(layer, kind="tmpfs", flags=flags, data=f"size={space},mode=700")
        for name in ("upper", "work"):
            (layer / name).mkdir()
        options = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work,userxattr"
        namespaces.mount(folder, kind="overlay", flags=flags, data=options)
        namespaces.unmount(layer)
        return {"before": before, **_state(folder)}

    return _inside(pid, act)


def uncover(pid: int, folder: Path) -> dict[str, Any]:
    """Take away what `cover` put over a folder; what was written to it meanwhile is lost."""

    def act() -> dict[str, Any]:
        before = _state(folder)
        namespaces.unmount(folder)
        return {"before": before, **_state(folder)}

    return _inside(pid, act)


def _state(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise OSError("there is no such folder")
    state = os.statvfs(folder)
    return {"read_only": bool(state.f_flag & os.ST_RDONLY), "free": state.f_bavail * state.f_frsize}


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
        places = [
            name for name in ("user", "mnt") if (own / name).readlink() != (here / name).readlink()
        ]
        if "mnt" not in places:
            return {"why": "it has no mounts of its own"}
        descriptors = [os.open(own / name, os.O_RDONLY) for name in places]
        for descriptor in descriptors:
            namespaces.enter(descriptor, step="enter the rank's mounts")
        return act()
    except OSError as error:
        return {"why": str(error)}
