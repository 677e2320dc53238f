"""What is done to the processes of an engine on purpose: one is stopped for a moment, or killed.

Struck is the process that used the most processor time while it answered. In an engine of several
processes that is a worker and not the one that speaks HTTP; it is found, not stated.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import psutil

from harness.conformance.exchange import StrikeFacts, StrikeKind

FROZEN: Final = 0.7
"""Seconds for which a process is stopped."""
SETTLES: Final = 1.0
"""Seconds in which the kernel has done what a signal asks for."""
EXITS: Final = 5.0
"""Seconds in which an engine that lost a worker may end."""
POLL: Final = 0.005


class EngineStrike:
    """Strikes one process of an engine once, and can say what came of it.

    Args:
        processes: of the engine, its own first.
        exit_code: waits so many seconds for the engine to end, and returns its exit code.

    Attributes:
        struck: is set when the process has been struck.
        is_lethal: whether a process was killed.
    """

    def __init__(
        self,
        processes: Callable[[], Sequence[psutil.Process]],
        exit_code: Callable[[float], int | None],
    ) -> None:
        self.struck = threading.Event()
        self.is_lethal = False
        self._processes = processes
        self._exit_code = exit_code
        self._before = _used(processes())
        self._clock: Callable[[], int] = lambda: 0
        self._facts: StrikeFacts | None = None
        self._thaw: threading.Timer | None = None

    def strike(self, kind: StrikeKind, clock: Callable[[], int]) -> None:
        """Stop or kill the busiest process. `clock` gives the milliseconds of the exchange."""
        self._clock = clock
        now = _used(self._processes())
        if not now:
            return
        busiest = max(now, key=lambda process: now[process] - self._before.get(process, 0.0))
        number = signal.SIGSTOP if kind == "freeze" else signal.SIGKILL
        self.is_lethal = kind == "kill"
        try:
            busiest.send_signal(number)
        except psutil.Error:
            return
        state = _state_after(busiest, kind)
        self._facts = StrikeFacts(kind=kind, ms=clock(), processes=len(now), state=state)
        if kind == "freeze":
            self._thaw = threading.Timer(FROZEN, self._let_go, (busiest,))
            self._thaw.start()
        self.struck.set()

    def facts(self) -> StrikeFacts | None:
        """Return what was done, when all of it was; None where nothing was."""
        if self._thaw is not None:
            self._thaw.join()
        if self._facts is not None and self.is_lethal:
            code = self._exit_code(EXITS)
            self._facts = self._facts.model_copy(update={"exit_code": code})
        return self._facts

    def _let_go(self, process: psutil.Process) -> None:
        assert self._facts is not None
        # The time before the signal: whatever is answered earlier was answered without the process.
        self._facts = self._facts.model_copy(update={"until_ms": self._clock()})
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)


def _used(processes: Sequence[psutil.Process]) -> dict[psutil.Process, float]:
    """Return the processor time of each process."""
    found: dict[psutil.Process, float] = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _state_after(process: psutil.Process, kind: StrikeKind) -> str:
    """Return what the kernel says of a process, when it has done what was asked for."""
    wanted = ("stopped",) if kind == "freeze" else ("gone", "zombie")
    begun = time.monotonic()
    while True:
        try:
            state = str(process.status())
        except psutil.Error:
            state = "gone"
        if state in wanted or time.monotonic() - begun > SETTLES:
            return state
        time.sleep(POLL)
