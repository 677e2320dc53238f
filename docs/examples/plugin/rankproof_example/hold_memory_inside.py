"""What `hold-memory` does inside a rank.

Standard library only: an arm's environment need not have this package.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HELD: list[bytearray] = []


def inside(order: Mapping[str, Any], emit: Callable[[str, dict[str, Any]], None]) -> None:
    """Take the memory, touch every page of it, and report by how much the process has grown."""
    before = resident()
    held = bytearray(order["size"])
    held[:: resource.getpagesize()] = b"x" * len(range(0, len(held), resource.getpagesize()))
    HELD.append(held)
    emit("example.memory_held", {"fault": order["fault"], "grown": resident() - before})


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
