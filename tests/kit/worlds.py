"""A pool of real servers, worlds of the subjects here, and a look for whatever they left."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.checks import Finding
from harness.checks import world as world_checks
from harness.events import Event
from harness.history import History
from harness.rank.process import inspect
from harness.world.below.preload import MODULES, Preload
from harness.world.control.capture import Capture
from harness.world.control.launch import Launch
from harness.world.control.world import World
from tests.kit.launches import launch_of

# Without transformers and a tokenizer, which take as long as all the others: few of these subjects
# load one.
ENGINES = Preload(
    modules=tuple(name for name in MODULES if name not in ("transformers", "tokenizers"))
)
SUBJECTS = Path(__file__).parents[1] / "world" / "subjects"


@dataclass(frozen=True)
class Lived:
    """A world that was."""

    capture: Capture
    history: History
    seconds: float

    @property
    def findings(self) -> dict[str, Finding]:
        """What is said of every trial, by check."""
        return {
            finding.check.removeprefix("world:"): finding
            for finding in world_checks.judge(self.history)
        }

    @property
    def passed(self) -> bool:
        """Nothing to complain about, and nothing of the harness went wrong."""
        return not self.void and all(finding.passed for finding in self.findings.values())

    @property
    def void(self) -> list[str]:
        """Errors of the harness."""
        return [str(seen.event.values["message"]) for seen in self.history.noted("harness.error")]

    def said(self, rank: int, name: str) -> list[Event]:
        """What a rank emitted under a name."""
        return [seen.event for seen in self.history.said(rank, name)]

    def ended(self, rank: int) -> Any:
        """Code, or name of the signal, a rank ended with."""
        found = self.history.exit(rank)
        assert found is not None
        return found.event.values["signal"] or found.event.values["code"]

    def error(self, rank: int) -> Any:
        """Values of the error a rank told of."""
        found = self.history.error(rank)
        return None if found is None else found.event.values

    @property
    def survivors(self) -> int:
        """How many processes were left when the ranks had ended."""
        return int(self.history.served(None, "world.survivors")[0].event.values["count"])


def marked(marker: str) -> set[int]:
    """Processes whose environment holds the marker, without this one."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                held = marker.encode() in (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if held and state not in "ZX":
                found.add(int(entry.name))
    return found


def survivors(marker: str, *, spare: set[int], within: float) -> set[int]:
    """What of the marked processes is there after some seconds; returns as soon as nothing is."""
    end = time.monotonic() + within
    while (left := marked(marker) - spare) and time.monotonic() < end:
        for pid in left:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            os.close(descriptor)
    return left


def wire_of(world: World) -> int:
    """The wire of a world on test hosts: it was forked from the same process as the ranks, before
    any of them.
    """
    keeper = inspect(next(iter(world.pids.values())))
    assert keeper is not None
    listed = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return min(
        pid for pid in listed if (one := inspect(pid)) is not None and one.parent == keeper.parent
    )


def networks(marker: str = "") -> set[str]:
    """The network namespaces, other than our own, in which there is a process.

    Of marked ones where a mark is given.
    """
    pids = (
        marked(marker)
        if marker
        else [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    )
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
    return found - {str(Path("/proc/self/ns/net").readlink())}


def dwellers(own: set[str]) -> set[int]:
    """Processes in one of these network namespaces, marked or not."""
    found = set()
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{pid}/ns/net").readlink()) in own:
                found.add(pid)
    return found


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def launch(
    entry: str,
    *,
    size: int = 2,
    warm: bool = True,
    arguments: dict[str, Any] | None = None,
    **rest: Any,
) -> Launch:
    """An order for a subject of this folder."""
    return launch_of(
        **{
            "about": {"trial": 0},
            "size": size,
            "backend": "gloo",
            "warm": warm,
            "entry": entry,
            "folder": SUBJECTS,
            "arguments": arguments or {},
            "inputs": {},
            "seeds": list(range(100, 100 + size)),
            "deadline": 20.0,
            "after_failure": 0.5,
            "preload": ENGINES,
            **rest,
        }
    )
