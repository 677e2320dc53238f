"""Faults that a keeper applies to a rank from outside, beside signals: limits of its own, company
on its core, folders and files.

Linux only: other systems let no process change another one's limits. Everything is read back from
the kernel, and what was read is the evidence.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Mapping
from os import _exit
from pathlib import Path
from typing import Any

from harness.forms.digest import sha256_of
from harness.rank.process import PROC, die_with_parent
from harness.rank.spec import SHARED
from harness.world.below import isolation
from harness.world.below.isolation import EMPTY_WITHIN, MemoryGroup

RESOURCES = {
    "open-files": resource.RLIMIT_NOFILE,
    "file-size": resource.RLIMIT_FSIZE,
    "address-space": resource.RLIMIT_AS,
}
WORK = "work"  # a rank's current folder, below its scratch folder
PRESSED = {"limit": "limited", "crowd": "crowded", "cover": "covered", "spoil": "spoiled"}
"""What it is told to do, and as what it tells of it."""
LAYER = "layer"
GONE = "it had ended"
PAGE = resource.getpagesize()


class Grip:
    """Hold of a keeper on the ranks of its world.

    Each method that `PRESSED` names takes the rank's process, which is not reaped yet, or None once
    it is, and its spec as JSON, and returns what the kernel said, or `why` it could not.
    """

    def __init__(self, temporary: Mapping[int, str] | None = None) -> None:
        """Begin with nobody in it.

        Args:
            temporary: rank to the folder that it has as its temporary one, where it is on a test
                host.
        """
        self._temporary = temporary or {}
        self._before: dict[tuple[int, str], int] = {}
        self._burners: dict[int, list[int]] = {}
        self._cores: dict[int, set[int]] = {}
        self._modes: dict[Path, int] = {}
        self._groups: dict[int, MemoryGroup] = {}

    def limit(
        self, pid: int | None, *, spec: dict[str, Any], name: str, to: int | None
    ) -> dict[str, Any]:
        """Set a soft limit, or take it back.

        Args:
            pid: the rank's process.
            spec: of the rank.
            name: `open-files`, `file-size` (bytes), `address-space` (bytes beyond what it has
                mapped), or `memory` (bytes beyond what it has taken, in a cgroup of its own).
            to: the limit; None for the one before the first.

        Returns:
            `resource`, `before` and `now` (soft limits, -1 for none), for the address space
            `mapped` (bytes), for memory the version of the `cgroup`, and whether it `holds` the
            process.
        """
        if pid is None:
            return {"resource": name, "why": GONE}
        try:
            if name == "memory":
                return {"resource": name, **self._confine(pid, spec, to)}
            number = RESOURCES[name]
            mapped = {"mapped": mapped_by(pid)} if name == "address-space" else {}
            soft, hard = resource.prlimit(pid, number)
            self._before.setdefault((pid, name), soft)
            wanted = self._before[pid, name] if to is None else to + mapped.get("mapped", 0)
            resource.prlimit(pid, number, (wanted, hard))
            now, _ = resource.prlimit(pid, number)
        except (OSError, ValueError, KeyError) as error:
            return {"resource": name, "why": str(error)}
        return {"resource": name, "before": soft, "now": now, **mapped}

    def _confine(self, pid: int, spec: dict[str, Any], to: int | None) -> dict[str, Any]:
        if to is not None:
            group = self._groups[pid] = MemoryGroup(
                pid, limit=to, links=Path(spec["scratch"]).parents[1]
            )
            return {**group.evidence()}
        group = self._groups[pid]
        return {"before": group.now, "now": group.leave(), "holds": False}

    def disband(self) -> None:
        """Remove the memory groups of all ranks: once nobody of them is left."""
        while self._groups:
            self._groups.popitem()[1].disband(within=EMPTY_WITHIN)

    def crowd(self, pid: int | None, *, spec: dict[str, Any], burners: int) -> dict[str, Any]:
        """Put a rank on one core, and so many processes that only compute beside it.

        None: take that back.

        Returns:
            `burners`, `core` (None once it may run on all of its own again), and `ran` and
            `waited`, the nanoseconds that its threads have run, and were ready to run and did not,
            since they began.
        """
        del spec
        if pid is None:
            return {"burners": burners, "why": GONE}
        try:
            if burners:
                core = min(os.sched_getaffinity(pid))
                self._cores.setdefault(pid, os.sched_getaffinity(pid))
                evidence: dict[str, Any] = {
                    "burners": burners,
                    "core": core,
                    **_processor_time(pid),
                }
                _put(pid, {core})
                self._burners.setdefault(pid, []).extend(_burner(core) for _ in range(burners))
                return evidence
            evidence = {"burners": 0, "core": None, **_processor_time(pid)}
            _put(pid, self._cores.get(pid, os.sched_getaffinity(pid)))
        except (OSError, ValueError) as error:
            evidence = {"burners": burners, "why": str(error)}
        self.release(pid)
        return evidence

    def cover(
        self,
        pid: int | None,
        *,
        spec: dict[str, Any],
        place: str,
        how: str,
        space: int | None = None,
    ) -> dict[str, Any]:
        """Make a folder `read-only`, `full` or `denied`, or `open` again: permissions outlive a
        rank.

        Returns:
            `place`, `how`, and what `harness.world.below.isolation` tells; of a folder that is
            denied its `mode` and the one `before`.
        """
        about = {"place": place, "how": how}
        try:
            folder, seen = self._located(place, spec)
            if how == "denied" or folder in self._modes:
                before = folder.stat().st_mode & 0o7777
                if how == "denied":
                    self._modes.setdefault(folder, before)
                folder.chmod(0 if how == "denied" else self._modes.pop(folder))
                return {**about, "before": before, "mode": folder.stat().st_mode & 0o7777}
            if pid is None:
                return {**about, "why": GONE}
            if how == "open":
                return {**about, **isolation.uncover(pid, seen)}
            layer = Path(spec["scratch"]) / LAYER
            layer.mkdir(exist_ok=True)
            return {
                **about,
                **isolation.cover(pid, seen, layer=layer, space=space if how == "full" else None),
            }
        except (OSError, ValueError) as error:
            return {**about, "why": str(error)}

    def spoil(
        self, pid: int | None, *, spec: dict[str, Any], place: str, how: str, keep: int
    ) -> dict[str, Any]:
        """Cut a file off, or put another one in its place.

        Returns:
            `place`, `how`, and `bytes`, `sha256` and `inode` of the file, `before` and `now`.
        """
        del pid
        about = {"place": place, "how": how}
        try:
            file, _ = self._located(place, spec)
            before = _file(file)
            if how == "truncated":
                os.truncate(file, keep)
            else:
                content = bytearray(file.read_bytes())
                content[keep] ^= 0xFF
                other = file.with_name(f".{file.name}.replacement")
                other.write_bytes(content)
                other.chmod(file.stat().st_mode & 0o7777)
                other.replace(file)
            return {**about, "before": before, "now": _file(file)}
        except (OSError, ValueError, IndexError) as error:
            return {**about, "why": str(error)}

    def _located(self, place: str, spec: dict[str, Any]) -> tuple[Path, Path]:
        """Return a place as it is found from here, and as the rank finds it."""
        temporary = (
            self._temporary.get(spec.get("rank", -1))
            if place.partition("/")[0] == "temporary"
            else None
        )
        if temporary is None:
            path = located(place, spec)
            return path, path
        path = located(place, spec, root=temporary)
        return path, located("temporary", spec) / path.relative_to(os.path.realpath(temporary))

    def forget(self, pid: int) -> None:
        """Drop a child that the keeper has reaped: its pid may be another process's by now."""
        for burners in self._burners.values():
            if pid in burners:
                burners.remove(pid)

    def release(self, *pids: int) -> None:
        """End the company of these ranks, or of all: before anybody looks for what ranks left
        behind.
        """
        for rank in pids or tuple(self._burners):
            # None of them is reaped yet (`forget`), so each pid is still the burner's.
            for burner in self._burners.pop(rank, ()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(burner, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(burner, 0)


def located(place: str, spec: dict[str, Any], *, root: str | None = None) -> Path:
    """Return the path of a place: `shared`, `home`, `temporary`, `work` or `inputs/NAME`, and what
    lies below.

    Where `root` is given, the first of these is there.

    Raises:
        ValueError: the rank has no such place, or a link leads out of it: what lies elsewhere is
            not the trial's.
    """
    first, _, rest = place.partition("/")
    variables = {**os.environ, **spec["env"]}
    scratch = Path(spec["scratch"])
    if first == "inputs":
        first, _, rest = rest.partition("/")
        outside = spec["inputs"].get(first)
    else:
        places = {
            "shared": str(scratch.with_name(SHARED)),
            "work": str(scratch / WORK),
            "home": variables.get("HOME"),
        }
        # Where Python looks.
        outside = {**places, "temporary": variables.get("TMPDIR", "/tmp")}.get(first)  # noqa: S108
    if outside is None:
        raise ValueError(f"the rank has no {first}")
    top = Path(os.path.realpath(root or outside))
    path = Path(os.path.realpath(top / rest))
    if not path.is_relative_to(top):
        raise ValueError(f"a link points outside {first}")
    return path


def _file(path: Path) -> dict[str, Any]:
    state = path.stat()
    return {"bytes": state.st_size, "sha256": sha256_of(path), "inode": state.st_ino}


def mapped_by(pid: int) -> int:
    """Bytes of address space that a process has mapped."""
    return int((PROC / str(pid) / "statm").read_text().split()[0]) * PAGE


def _processor_time(pid: int) -> dict[str, int]:
    """Return what the scheduler counted of all threads of a process (CONFIG_SCHED_INFO)."""
    ran = waited = 0
    for thread in (PROC / str(pid) / "task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = Path(thread, "schedstat").read_text().split()
            ran += int(text[0])
            waited += int(text[1])
    return {"ran": ran, "waited": waited}


def _put(pid: int, cores: set[int]) -> None:
    """Let every thread of a process run on these cores alone."""
    for thread in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def _burner(core: int) -> int:
    """Start a process that does nothing but compute on one core, and ends with this one."""
    keeper = os.getpid()
    # The keeper has one thread, so no lock is held in the copy.
    if pid := os.fork():
        return pid
    try:
        # The keeper's alarm: a signal here would be written into its pipe.
        signal.set_wakeup_fd(-1)
        die_with_parent(keeper)
        # Where the kernel shares a core among sessions, each burner counts as much as the rank,
        # which has its own.
        os.setsid()
        # It holds no pipe of a rank open: their ends would not be seen.
        os.closerange(0, 4096)
        os.sched_setaffinity(0, {core})
        while True:
            pass
    finally:
        # Never back into the keeper's loop.
        _exit(0)
