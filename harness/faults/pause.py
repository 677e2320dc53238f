"""`pause`: the rank's process is stopped at an event, and continued after some time.

Proof: the process that forked the rank saw it stop, nothing came from it, the harness continued it after the time
asked, and the same process saw it continue: while its gate was still shut, so that it cannot have ended before. Where
it ended without its gate all the same, its end shows it, unless that was SIGKILL, which ends a stopped process too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from typing import ClassVar

from harness.checks.history import History
from harness.faults import proof
from harness.faults.proof import Landing, Proof
from harness.faults.stage import L, Stage
from harness.scenario import PauseFault


class Pause:
    """SIGSTOP at the gate; SIGCONT, and the answer to the gate, when the time is over."""

    does: ClassVar[str] = "stops the rank's process where it emits `at`, and continues it after `for`"
    needs: ClassVar[str] = "an event of the subject to strike at"
    properties: ClassVar = PauseFault.properties

    def __init__(self, options: PauseFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """Why it cannot run on this machine; empty where it can."""
        return "" if hasattr(os, "WCONTINUED") else "this system does not tell when a process is stopped or continued"

    def told(self) -> str:
        """What is done, in words."""
        return f"stopped for {self._options.for_:g} s at {self._options.at}"

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Make the event a gate."""
        del ranks
        return launch.gated(at=self._options.at)

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """Stop the rank where it waits. The time runs from when it was seen to have stopped."""
        stage.hold(rank)
        stage.once("rank.stopped", rank=rank, do=lambda: stage.after(self._options.for_, done))
        stage.signal(signal.SIGSTOP, rank=rank)

    def inside(self, *, fault: str) -> None:
        """Nothing happens in the rank."""

    def undo(self, stage: Stage, *, rank: int) -> None:
        """Continue the rank; its gate opens when that has landed."""
        stage.signal(signal.SIGCONT, rank=rank)
        stage.release(rank)

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Event, stopped, nothing, resumed, and the time between."""
        found = proof.landing(history, fault=fault, at=self._options.at, rank=rank)
        if not isinstance(found, Landing):
            return found
        stopped = proof.first_after(history.served(rank, "rank.stopped"), found.struck)
        if stopped is None or stopped.event.values.get("signal") != "SIGSTOP":
            return Proof(proved=False, told="nobody saw it stop", lines=found.lines)
        lines = (*found.lines, stopped.line)
        undone = proof.noted(history, proof.UNDONE, fault=fault, rank=rank)
        if undone is None or not proof.lasted(stopped, undone, seconds=self._options.for_):
            told = f"it was not stopped for {self._options.for_:g} s"
            return proof.cut_short(history, rank=rank, told=told, lines=lines)
        if (said := proof.said_between(history, rank, stopped, undone)) is not None:
            return Proof(proved=False, told="it spoke while it was stopped", lines=(*lines, said.line))
        resumed = proof.first_after(history.served(rank, "rank.continued"), undone)
        if resumed is None:
            told = "nobody saw it continue"
            end = history.exit(rank)
            if end is not None and end.event.values.get("signal") == "SIGKILL":
                told = f"{told} before SIGKILL ended it, which ends a stopped process too"
            return proof.cut_short(history, rank=rank, told=told, lines=(*lines, undone.line))
        time = proof.milliseconds(stopped, resumed)
        told = f"stopped {proof.milliseconds(found.gate, stopped)} after {self._options.at}, continued {time} later"
        if resumed.event.values.get("shown_by"):
            told = f"{told} at the latest, as its end shows"
        return Proof(proved=True, told=told, lines=(*lines, undone.line, resumed.line))
