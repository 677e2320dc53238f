"""What a living process holds and has used, as the kernel counts it, read from outside."""

from __future__ import annotations

import os
from pathlib import Path

from harness.forms.strict_json import JSON

PROC = Path("/proc")


def probe(pid: int) -> dict[str, JSON] | None:
    """Read a process' own memory, processor time and traffic; None where the system does not tell.

    Returns:
        `private_bytes` (pages that are this process' alone, from `smaps_rollup`: what a warm rank shares with its
        server is not in it), `cpu_seconds` (user and system), `read_bytes` and `written_bytes` (all that went through
        read and write, pipes and caches included).
    """
    folder = PROC / str(pid)
    try:
        rollup = (folder / "smaps_rollup").read_text()
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        io = (folder / "io").read_text()
    except OSError:
        return None
    ticks = int(stat[11]) + int(stat[12])
    return {
        "private_bytes": _private(rollup),
        "cpu_seconds": round(ticks / os.sysconf("SC_CLK_TCK"), 3),
        "read_bytes": _field(io, "rchar:"),
        "written_bytes": _field(io, "wchar:"),
    }


def footprint(pid: int) -> tuple[int, int]:
    """Memory of a process in bytes: its own alone, and that with its share of what it has in common with others.

    Raises:
        OSError: it is gone, or the system does not tell.
    """
    rollup = (PROC / str(pid) / "smaps_rollup").read_text()
    return _private(rollup), _field(rollup, "Pss:") * 1024


def _private(rollup: str) -> int:
    return 1024 * sum(_field(rollup, name) for name in ("Private_Clean:", "Private_Dirty:"))


def _field(text: str, name: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(name)), 0)
