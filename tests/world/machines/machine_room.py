"""Test machines as tests have them: skipped where none can be made, and asked what still lives on
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from harness.world.starters.test_machines import CLOCKS, TestMachines, made, refusal

__all__ = ["CLOCKS", "Room", "room"]


class Room(TestMachines):
    """Machines that are there."""

    def living(self, index: int) -> list[str]:
        """The command lines of Rankproof's processes on a machine."""
        own, found = Path(f"/proc/{self.pids[index]}/ns/net").stat().st_ino, []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (
                    (process / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                )
                if "harness" in words and (process / "ns/net").stat().st_ino == own:
                    found.append(f"{process.name}: {words[:200]}")
        return found


@contextlib.contextmanager
def room(folder: Path, count: int, *, slots: int = 2) -> Iterator[Room]:
    """Make machines, and take them away again."""
    if why := refusal():
        pytest.skip(why)
    with made(folder, count, slots=slots) as there:
        yield Room(**{one.name: getattr(there, one.name) for one in fields(there)})
