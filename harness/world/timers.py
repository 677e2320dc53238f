"""What a world has to do later, in its own thread: waiting for one thing never blocks the others."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable


class Timers:
    """Actions, each due at a moment of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def add(self, seconds: float, do: Callable[[], None]) -> None:
        """Have `do` called not before `seconds` from now."""
        self._count += 1  # two actions that are due at once are called in the order they were added
        heapq.heappush(self._due, (time.monotonic_ns() + round(seconds * 1e9), self._count, do))

    def patience(self) -> float:
        """Seconds until the next one is due; infinite where there is none."""
        return max(0.0, (self._due[0][0] - time.monotonic_ns()) / 1e9) if self._due else math.inf

    def run(self) -> None:
        """Call what is due."""
        while self._due and self._due[0][0] <= time.monotonic_ns():
            heapq.heappop(self._due)[2]()
