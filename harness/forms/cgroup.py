"""Linux' memory cgroups, version 1 and 2: where a process is, where it may have one made, and what
limits it there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CONTROLLER = "memory"
PREFIX = "rankproof-"
"""Of the name of every group that we make."""
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}


def refusal() -> str:
    """Why no group can be made here; empty where one can. Makes one to find out."""
    try:
        version, parent = place()
        if (
            version == 2
            and CONTROLLER not in (parent / "cgroup.subtree_control").read_text().split()
        ):
            return (
                f"{parent} counts no memory for groups below it: have a memory cgroup delegated to"
                " this user"
            )
        tried = parent / f"{PREFIX}{os.getpid()}"
        tried.mkdir()
        tried.rmdir()
    except OSError as error:
        return (
            f"no memory cgroup can be made here ({error}): run as root, or have one delegated to"
            " this user"
        )
    return ""


def place(who: str = "self", *, itself: bool = False) -> tuple[int, Path]:
    """The version that counts memory, and the group below which a process can have one made.

    Or its own group `itself`.

    Raises:
        OSError: this system has none.
    """
    groups = Path(f"/proc/{who}/cgroup").read_text()
    return located(groups, Path("/proc/self/mountinfo").read_text(), itself=itself)


def located(groups: str, mounts: str, *, itself: bool = False) -> tuple[int, Path]:
    """The same, of what the kernel says of a process's groups (`/proc/PID/cgroup`) and of mounts
    (`mountinfo`).

    Below a group of version 2 that has processes there can be none that counts memory: there they
    go beside it.

    Raises:
        OSError: no version is mounted that counts memory.
    """
    own: dict[int, str] = {}
    for line in groups.splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if CONTROLLER in controllers.split(","):
            own[1] = path
        elif hierarchy == "0":
            own[2] = path
    version = 1 if 1 in own else 2
    for kind, root, mounted in _mounted(mounts):
        if kind == version and version in own:
            group = mounted / os.path.relpath(own[version], root)
            return version, group if itself or version == 1 or group == mounted else group.parent
    raise OSError("no cgroup file system that counts memory is mounted")


def _mounted(mounts: str) -> Iterator[tuple[int, str, Path]]:
    """Version, the group at its root, and the place of each mounted cgroup file system that may
    count memory.
    """
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, root, where = before.split(" ")[:5]
        if kind == "cgroup2":
            yield 2, root, Path(where)
        elif kind == "cgroup" and CONTROLLER in options.split(","):
            yield 1, root, Path(where)


def number(path: Path) -> int:
    """A limit in bytes; -1 for none."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:  # of version 2, the group of all
        return -1
    return -1 if text == "max" or int(text) > 2**62 else int(text)
