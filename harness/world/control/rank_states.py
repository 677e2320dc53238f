"""What is known of the ranks of one world, and what the kernel counts of one that lives."""

from __future__ import annotations

from dataclasses import dataclass, field

import psutil

from harness.forms.strict_json import JSON


@dataclass(kw_only=True)
class RankStates:
    """What is known of the ranks so far.

    Attributes:
        size: world size.
        started: rank to pid, of those the keeper forked.
        begun: ranks that said `rank.begin`: from then on they can be asked for their stacks.
        finished: ranks whose subject returned.
        joined: ranks that have joined the group and wait at the start line, or have left it.
        exited: rank to the CLOCK_MONOTONIC nanoseconds of its end.
        lost: ranks on machines that were lost: whether they live, nobody here knows.
        wire: the process beside the ranks that joins their test hosts; None where there are none.
    """

    size: int
    started: dict[int, int] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)
    exited: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    wire: int | None = None

    def told(self, kind: str, rank: int, pid: int) -> None:
        """Take what the keeper says of a rank."""
        if kind == "started":
            self.started[rank] = pid

    def living(self) -> list[int]:
        """Ranks that were started and have not ended, as far as they are seen."""
        return [rank for rank in self.started if rank not in self.exited and rank not in self.lost]

    def is_over(self) -> bool:
        """Whether every rank has ended that is seen."""
        return len(self.exited.keys() | self.lost) == self.size


def probe(pid: int) -> dict[str, JSON] | None:
    """Read a process' own memory, processor time and traffic; None where the system does not tell.

    Returns:
        `private_bytes` (pages that are this process' alone: what a warm rank shares with its server
        is not in it), `cpu_seconds` (user and system), `read_bytes` and `written_bytes` (all that
        went through read and write, pipes and caches included).
    """
    try:
        process = psutil.Process(pid)
        used = process.cpu_times()
        traffic = process.io_counters()
        return {
            "private_bytes": process.memory_full_info().uss,
            "cpu_seconds": round(used.user + used.system, 3),
            "read_bytes": traffic.read_chars,
            "written_bytes": traffic.write_chars,
        }
    except (psutil.Error, AttributeError):
        return None
