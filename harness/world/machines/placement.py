"""Where the ranks of one world are: the machine of each, and how that is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def local(of: Sequence[int], rank: int) -> tuple[int, int]:
    """Which of the ranks on its host a rank is, and how many there are.

    Args:
        of: the host of each rank.
        rank: of the world.
    """
    ranks = [other for other, host in enumerate(of) if host == of[rank]]
    return ranks.index(rank), len(ranks)


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The machines of one world.

    Attributes:
        of: the machine of each rank, by its place in the hostfile.
        called: what evidence calls each machine of the hostfile.
        reached: the address of each.
    """

    of: tuple[int, ...]
    called: tuple[str, ...]
    reached: tuple[str, ...]

    @property
    def addresses(self) -> list[str]:
        """The address of each rank's machine."""
        return [self.reached[machine] for machine in self.of]

    @property
    def used(self) -> list[int]:
        """The machines that have a rank, in order."""
        return sorted(set(self.of))

    def local(self, rank: int) -> tuple[int, int]:
        """Which of the ranks on its machine a rank is, and how many there are."""
        return local(self.of, rank)

    def ranks(self, machine: int) -> list[int]:
        """The ranks on a machine."""
        return [rank for rank, other in enumerate(self.of) if other == machine]
