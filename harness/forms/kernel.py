"""The kernel's names: of signals, and of memory cgroups (Linux, version 1 and 2).

Standard library only, and little of it: every keeper of ranks imports this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path


def signal_name(number: int) -> str:
    """Name a signal: `SIGKILL` for 9, `SIGRTMIN+3` for a real-time signal.

    One that this system does not know is named by its number.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        first = getattr(signal, "SIGRTMIN", None)
        return f"SIGRTMIN+{number - first}" if first is not None and number > first else str(number)


CONTROLLER = "memory"
CGROUP_PREFIX = "rankproof-"
"""Of the name of every group that we make."""
CGROUP_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
"""File of a group that limits its memory, by version."""


def cgroup_refusal() -> str:
    """Make a group to find out why none can be made here; empty where one can."""
    try:
        version, parent = cgroup_place()
        if (
            version == 2
            and CONTROLLER not in (parent / "cgroup.subtree_control").read_text().split()
        ):
            return (
                f"{parent} does not count the memory of its child cgroups; run as root, or"
                " delegate a memory cgroup to this user"
            )
        trial = parent / f"{CGROUP_PREFIX}{os.getpid()}"
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        return (
            f"cannot create a memory cgroup ({error}); run as root, or delegate a memory cgroup"
            " to this user"
        )
    return ""


def cgroup_place(who: str = "self", *, itself: bool = False) -> tuple[int, Path]:
    """Find the version that counts memory, and the group below which a process can have one made.

    Args:
        who: its pid.
        itself: return the group that it is in.

    Raises:
        OSError: this system has none.
    """
    groups = Path(f"/proc/{who}/cgroup").read_text()
    return located_cgroup(groups, Path("/proc/self/mountinfo").read_text(), itself=itself)


def located_cgroup(groups: str, mounts: str, *, itself: bool = False) -> tuple[int, Path]:
    """Find the same in the text of a process's groups (`/proc/PID/cgroup`) and of mounts
    (`mountinfo`).

    Below a group of version 2 that has processes there can be none that counts memory, so a
    new group goes beside it.

    Raises:
        OSError: no version is mounted that counts memory.
    """
    groups_of: dict[int, str] = {}
    for line in groups.splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if CONTROLLER in controllers.split(","):
            groups_of[1] = path
        elif hierarchy == "0":
            groups_of[2] = path
    version = 1 if 1 in groups_of else 2
    for kind, root, mounted in _mounted(mounts):
        if kind == version and version in groups_of:
            group = mounted / os.path.relpath(groups_of[version], root)
            return version, group if itself or version == 1 or group == mounted else group.parent
    raise OSError("no cgroup file system with the memory controller is mounted")


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


def cgroup_bytes(path: Path) -> int:
    """Read a limit in bytes; -1 for none."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:  # of version 2, the group of all
        return -1
    return -1 if text == "max" or int(text) > 2**62 else int(text)
