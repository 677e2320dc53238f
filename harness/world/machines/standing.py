"""Where the ranks of this machine stand, asked before they are ended: their stacks, once nobody writes any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from harness.rank.lifecycle import STACK_SIGNAL, STACKS
from harness.rank.process import inspect
from harness.world.control.capture import read_stack
from harness.world.control.ending import QUIET, STACKS_EACH, STACKS_WITHIN, WRITTEN_WITHIN
from harness.world.control.hang import holding_back
from harness.world.control.waits import catches


class Standing:
    """Asks once, and tells when all have answered or had their time."""

    def __init__(self, scratch: Path, *, say: Callable[..., None], signal: Callable[[int, int], None]) -> None:
        self._scratch = scratch
        self._say = say
        self._signal = signal
        self._pids: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._held_back: dict[int, frozenset[int]] = {}
        self._since = 0.0
        self.is_asked = False

    def ask(self, living: Mapping[int, int], *, able: Collection[int]) -> None:
        """Ask.

        Args:
            living: rank to pid.
            able: ranks that have begun and are not programs: the signal would end the others.
        """
        self.is_asked, self._since = True, time.monotonic()
        for rank, pid in living.items():
            process = inspect(pid)
            state = process.state if process else "gone"
            self._say({"is": "state", "rank": rank, "state": state})
            if rank in able and state not in ("T", "t", "Z", "gone") and catches(pid, STACK_SIGNAL):
                self._pids[rank], self._sizes[rank] = pid, -1
                self._held_back[rank] = holding_back(pid, STACK_SIGNAL)
                self._signal(STACK_SIGNAL, rank)

    def look(self) -> float:
        """Tell where they stand if they have said it; else after how many seconds to look again."""
        latest = self._since + STACKS_WITHIN + STACKS_EACH * len(self._sizes)
        quiet, now = self._is_quiet(), time.monotonic()
        if not quiet and (now < latest or (now < latest + WRITTEN_WITHIN and self._writing())):
            return QUIET
        for rank in self._sizes:
            told: dict[str, Any] = {"is": "stack", "rank": rank}
            self._say(told, read_stack(self._scratch / f"rank-{rank}" / STACKS) or b"")
        self._say({"is": "stood"})
        self.is_asked = False
        return 0.0

    def _is_quiet(self) -> bool:
        quiet = True
        for rank in self._sizes:
            try:
                size = (self._scratch / f"rank-{rank}" / STACKS).stat().st_size
            except OSError:
                size = 0
            gone = inspect(self._pids[rank]) is None
            quiet = quiet and (gone or (size > 0 and size == self._sizes[rank]))
            self._sizes[rank] = size
        return quiet and not self._writing()

    def _writing(self) -> bool:
        return any(holding_back(pid, STACK_SIGNAL) - self._held_back[rank] for rank, pid in self._pids.items())
