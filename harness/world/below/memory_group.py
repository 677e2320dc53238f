"""A memory cgroup for one process: what it may still take, enforced by the kernel, which ends it
where it takes more.

Linux, cgroup version 1 or 2, where who calls may make a group: as root as a rule, or where one is
delegated. A group counts what a process takes once it is in it; what it had before counts where it
was.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from harness.forms.process import CGROUP_LIMIT, CGROUP_PREFIX, cgroup_bytes, cgroup_place

EMPTY_WITHIN = 2.0


class MemoryGroup:
    """A group that holds one process.

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

    def evidence(self) -> dict[str, Any]:
        """Whether the group holds the process, its limit as the kernel tells it, and that of the
        group it came from.
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
