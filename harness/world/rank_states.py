"""The roll of one world: which ranks were started, have begun, finished, ended."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        wire: the process beside the ranks that joins their test hosts; None where there are none.
    """

    size: int
    started: dict[int, int] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)
    exited: dict[int, int] = field(default_factory=dict)
    wire: int | None = None

    def living(self) -> list[int]:
        """Ranks that were started and have not ended."""
        return [rank for rank in self.started if rank not in self.exited]

    def is_over(self) -> bool:
        """Whether every rank has ended."""
        return len(self.exited) == self.size
