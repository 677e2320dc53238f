"""AdaptiveStrictness: more is checked after a failure, and less again when enough tokens were clean
to say so.
"""

from __future__ import annotations

import math

from .problem import Misused
from .records import Level


class AdaptiveStrictness:
    """The level of a stream's checks.

    A failure raises it to full at once. It falls back to the floor after so many clean tokens that
    a failure rate of `rate` would have shown itself with a probability of `confidence`: 2,995 for
    0.1 % and 95 %. Each further failure at full doubles that number, up to `patience` times; once
    the floor has lasted as long, it is as at the beginning. Off stays off: who wants no checks gets
    none.

    Args:
        floor: the level when all is well, and of the beginning.
        rate: failures for each token that would be worth seeing.
        confidence: with which clean tokens speak against that rate.
        patience: how many times longer it stays at full at most.

    Attributes:
        level: as it is now.

    Raises:
        Misused: a number is out of its range.
    """

    def __init__(
        self,
        *,
        floor: Level = Level.LIGHT,
        rate: float = 1e-3,
        confidence: float = 0.95,
        patience: int = 32,
    ) -> None:
        if not (0 < rate < 1 and 0 < confidence < 1 and patience >= 1):
            raise Misused(
                f"a rate of {rate}, a confidence of {confidence} and a patience of {patience} mean"
                " nothing"
            )
        self.floor = self.level = Level(floor)
        self.enough = math.ceil(math.log(1 - confidence) / math.log1p(-rate))
        self._patience = patience
        self._times = 1
        self._clean = 0

    @property
    def remaining(self) -> int:
        """How many clean tokens it takes until the level falls; 0 where it is at its floor."""
        return 0 if self.level is self.floor else self.enough * self._times - self._clean

    def clean(self, tokens: int = 1) -> Level:
        """So many tokens were checked, and nothing was wrong with them.

        Gives the level from now on.
        """
        if self._times > 1 or self.level is not self.floor:
            self._clean += tokens
            if self._clean >= self.enough * self._times:
                if self.level is self.floor:
                    self._times = 1
                self.level = self.floor
                self._clean = 0
        return self.level

    def failed(self) -> Level:
        """Something was wrong; gives the level from now on."""
        if self.floor is Level.LIGHT:
            if self.level is Level.FULL:
                self._times = min(self._patience, self._times * 2)
            self.level = Level.FULL
            self._clean = 0
        return self.level
