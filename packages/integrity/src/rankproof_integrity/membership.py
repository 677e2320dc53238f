"""Who takes part, and as which start of itself: every rank's epoch, and the view that follows from
all of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from .problem import Misused
from .store import Store, next_epoch


@dataclass(frozen=True, kw_only=True)
class View:
    """The epochs of all ranks at one time. Ranks are in step under one view only.

    Attributes:
        epochs: by rank.
    """

    epochs: tuple[int, ...]

    @property
    def name(self) -> str:
        """Short, and another one for other epochs."""
        return hashlib.sha256(repr(self.epochs).encode()).hexdigest()[:16]


class Membership:
    """One rank's place in a group.

    Args:
        store: what the ranks share.
        group: the group's name.
        rank, world_size: of this rank.

    Attributes:
        epoch: how often this rank has begun, this time included: the first is 1.
    """

    def __init__(self, *, store: Store, rank: int, world_size: int, group: str = "world") -> None:
        if not 0 <= rank < world_size:
            raise Misused(f"rank {rank} is not in a group of {world_size}")
        self.store = store
        self.group = group
        self.rank = rank
        self.world_size = world_size
        self.epoch = next_epoch(store, f"{group}/{rank}")

    def epochs(self) -> tuple[int, ...]:
        """Return the epoch of every rank now; 0 for one that has not begun."""
        return tuple(
            int(self.store.get(f"epoch/{self.group}/{rank}") or b"0")
            for rank in range(self.world_size)
        )

    def view(self) -> View | None:
        """Return the view now; None while a rank has not begun."""
        epochs = self.epochs()
        return View(epochs=epochs) if all(epochs) else None
