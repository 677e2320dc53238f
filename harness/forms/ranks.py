"""Sets of ranks, as a scenario writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from harness.forms.problem import closest, complaint
from harness.forms.units import written

# The largest world on one machine.
MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class RankSet:
    """A set of ranks that is known before the trial: every rank, every rank but 0, or a list."""

    which: Literal["every", "nonzero"] | tuple[int, ...]

    def of(self, size: int) -> tuple[int, ...]:
        """Return the ranks of a world of ``size``, ascending.

        Raises ValueError for a rank that this world lacks.
        """
        if self.which == "every":
            return tuple(range(size))
        if self.which == "nonzero":
            return tuple(range(1, size))
        ranks = sorted(self.which)
        if ranks[-1] >= size:
            raise ValueError(f"a world of {size} has no rank {ranks[-1]}")
        return tuple(ranks)

    def __str__(self) -> str:
        return self.which if isinstance(self.which, str) else f"[{', '.join(map(str, self.which))}]"


EVERY_RANK = RankSet("every")


def rank_set(value: Any) -> RankSet:
    """Read "every", "nonzero" or a list of distinct ranks from 0."""
    if value == "every":
        return EVERY_RANK
    if value == "nonzero":
        return RankSet("nonzero")
    wanted = "must be every, nonzero, or a list of ranks like [0, 2]"
    if not isinstance(value, list | tuple):
        hint = (
            f"[{value}]"
            if type(value) is int and value >= 0
            else closest(value, ["every", "nonzero"])
        )
        raise complaint(wanted, suggestion=hint)
    if not value:
        raise complaint(f"is an empty list, so nothing would be asked of any rank; it {wanted}")
    seen: set[int] = set()
    for index, rank in enumerate(value):
        if type(rank) is not int or rank < 0:
            raise complaint("must be a rank: a whole number from 0", at=index)
        if rank in seen:
            raise complaint("is in the list twice; keep one", at=index)
        seen.add(rank)
    return RankSet(tuple(value))


_LIST = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0},
    "minItems": 1,
    "uniqueItems": True,
}
Ranks = Annotated[RankSet, *written(rank_set, {"anyOf": [{"enum": ["every", "nonzero"]}, _LIST]})]
