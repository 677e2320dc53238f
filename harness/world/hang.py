"""The proof of a hang: the world stood still for a window, then the stacks of its ranks, twice, as the last act.

What is proved is written down as `world.still`, with how long nothing moved, and as `rank.stack` for every rank and
both times. What is not is written down as `world.unproved`, with the reason. The judge decides what they are worth.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.faults.world_control import WorldControl
from harness.forms.strict_json import JSON
from harness.rank import lifecycle
from harness.world.rank_states import RankStates
from harness.world.stacks import Stack, inside, threads_of
from harness.world.stillness import Stillness
from harness.world.waits import PROC, Unreadable

# How often the kernel is asked, and how long after the last event for the first time.
EVERY = 0.1
SHOWN_FRAMES = 60
RUNTIME = os.path.realpath(lifecycle.__file__)


@dataclass(frozen=True, kw_only=True)
class Hang:
    """The order to watch for one.

    Attributes:
        window: seconds for which nothing may move.
        within: seconds after the ranks were let go by which it has to be proved.
        spins: the ranks are said to loop: their silence and their stacks count, not what their threads do.
    """

    window: float
    within: float
    spins: bool = False


Seen = Literal["moving", "still", "unproved"]


class HangWatch:
    """Watches one world for a hang. Use `heard` for every event of a rank, and `look` when `patience` is over.

    Attributes:
        next_look: CLOCK_MONOTONIC seconds.
    """

    def __init__(
        self, order: Hang, *, world: WorldControl, states: RankStates, deadline: float, busy: Callable[[], str]
    ) -> None:
        """Begin.

        Args:
            order: what to prove.
            world: who keeps the events.
            states: what is known of the ranks.
            deadline: CLOCK_MONOTONIC seconds when the world is stopped anyway.
            busy: why the harness itself keeps a rank waiting, in words; empty where it does not.
        """
        self._order = order
        self._world = world
        self._states = states
        self._busy = busy
        self._let_go: float | None = None
        self.next_look = math.inf
        self._stillness = Stillness(begun=time.monotonic(), deadline=deadline, spins=order.spins)
        self._unread = ""

    def begin(self) -> None:
        """The ranks were let go: from now on they have `within` seconds to come to stand still."""
        if self._let_go is None:
            self._let_go = time.monotonic()
            self.next_look = self._let_go + EVERY

    def heard(self) -> None:
        """A rank said something, or ended."""
        self._stillness.restart("a rank emitted an event")
        if self._let_go is not None:
            self.next_look = time.monotonic() + EVERY

    def look(self) -> Seen:
        """Ask the kernel; note what that proves."""
        now = time.monotonic()
        if self._let_go is None or now < self.next_look:
            return "moving"
        living = [self._states.started[rank] for rank in self._states.living()]
        if why := self._busy():
            self._stillness.restart(why)
        else:
            try:
                self._stillness.look(living, spare=self._states.wire)
            except Unreadable as error:
                return self._give_up("unreadable", str(error))
        window = self._stillness.window()
        if self._stillness.is_still(self._order.window) and self._stillness.since is not None:
            self._note(window, since=self._stillness.since - self._let_go)
            return "still"
        if now - self._let_go >= self._order.within:
            starved = "a thread was ready to run and hardly got the processor"
            short = starved if self._stillness.starving else f"it had stood still for {window:.1f} s only"
            moved = self._stillness.moved or short
            return self._give_up("moving", f"within {self._order.within:g} s it did not stand still: {moved}")
        left = self._order.window - window if self._stillness.since is not None else EVERY
        self.next_look = now + max(0.01, min(EVERY, left))
        return "moving"

    def _note(self, window: float, *, since: float) -> None:
        ranks = {pid: str(rank) for rank, pid in self._states.started.items()}
        spinning: dict[str, JSON] = {
            ranks.get(one.pid, "below"): {"user": one.user, "system": one.system} for one in self._stillness.spinning
        }
        waits: dict[str, JSON] = {}
        for rank in self._states.living():
            try:
                waits[str(rank)] = self._stillness.waiting(self._states.started[rank])
            except Unreadable:
                waits[str(rank)] = "none"
        self._world.note(
            "world.still",
            seconds=round(window, 3),
            after=round(since, 3),
            ranks=self._states.living(),
            waits=waits,
            spinning=spinning,
            spins=self._order.spins,
        )

    def _give_up(self, code: str, why: str) -> Seen:
        self._world.note("world.unproved", code=code, why=why)
        return "unproved"

    def conclude(self, rank: int, stacks: Sequence[Stack], *, folder: Path) -> None:
        """Look at the threads that the stacks show: those of the subject have to have stood still, too.

        Args:
            rank: whose stacks.
            stacks: its threads.
            folder: the arm's code.
        """
        if self._order.spins:
            return
        pid = self._states.started[rank]
        try:
            tids = threads_of(pid, stacks)
            for stack in stacks:
                tid = tids[stack.handle]
                if any(inside(frame, folder) is not None for frame in stack.frames):
                    if why := self._stillness.stood(pid, tid):
                        self._give_up("moving", f"rank {rank}: a thread that stands in the subject {why}")
                elif self._stillness.worked(pid, tid):
                    self._give_up("moving", f"rank {rank}: a Python thread used the processor")
        except (Unreadable, OSError) as error:
            self._give_up("unreadable", f"rank {rank}: {error}")


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, as the kernel says."""
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return False
    mask = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")), 0)
    return bool(mask >> (number - 1) & 1)


def holding_back(pid: int, number: int) -> frozenset[int]:
    """The threads of a process that hold a signal back: those in its handler do, from before it does anything."""
    found = set()
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):  # a thread may end meanwhile
                status = (task / "status").read_text()
                mask = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:")), 0)
                if mask >> (number - 1) & 1:
                    found.add(int(task.name))
    return frozenset(found)


def frames_as_evidence(stacks: Sequence[Stack], *, folder: Path, shorten: Callable[[str], str]) -> list[JSON]:
    """Stacks as an event keeps them: files of the arm relative to it, others as they are called on any machine."""
    shown: list[JSON] = []
    for stack in stacks:
        frames: list[JSON] = []
        for frame in stack.frames[:SHOWN_FRAMES]:
            own = inside(frame, folder)
            if own is None and os.path.realpath(frame.file) == RUNTIME:
                break  # from here on it is the rank's own runtime, and how it was forked
            file = shorten(f'File "{frame.file}"')[len('File "') : -1] if own is None else own
            frames.append({"file": file, "line": frame.line, "function": frame.function, "subject": own is not None})
        shown.append({"frames": frames})
    return shown
