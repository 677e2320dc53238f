"""What a living process holds and has used, as the kernel counts it, read from outside."""

from __future__ import annotations

import psutil

from harness.forms.strict_json import JSON


def probe(pid: int) -> dict[str, JSON] | None:
    """Read a process' own memory, processor time and traffic; None where the system does not tell.

    Returns:
        `private_bytes` (pages that are this process' alone: what a warm rank shares with its server is not in it),
        `cpu_seconds` (user and system), `read_bytes` and `written_bytes` (all that went through read and write, pipes
        and caches included).
    """
    try:
        process = psutil.Process(pid)
        used, traffic = process.cpu_times(), process.io_counters()
        return {
            "private_bytes": process.memory_full_info().uss,
            "cpu_seconds": round(used.user + used.system, 3),
            "read_bytes": traffic.read_chars,
            "written_bytes": traffic.write_chars,
        }
    except (psutil.Error, AttributeError):
        return None
