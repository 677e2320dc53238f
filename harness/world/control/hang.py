"""Proof of a hang: the world stood still for a window, then the stacks of its ranks, twice, as the
last act.

What is proved is written down as `world.still`, with how long nothing moved, and as `rank.stack`
for every rank and both times. What is not is written down as `world.unproved`, with the reason. The
judge decides what they are worth.

One trial of a cell is watched for the whole of `within`, because /proc does not show everything
that ends a wait. In every trial, what it does show of that is a doubt, and a doubt is no proof.
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
from harness.world.control.capture import Stack, inside, threads_of
from harness.world.control.doubts import doubts
from harness.world.control.ranks import RankStates
from harness.world.control.stillness import Stillness
from harness.world.control.waits import PROC, UnreadableProcess

# How often the kernel is asked, and how long after the last event for the first time.
EVERY = 0.1
# Between two looks passes so many times the processor time that one took: 64 ranks on few cores
# want it, too.
REST = 4
# Seconds by which a look may outlast the time that is left.
LOOK_WITHIN = 1.0
SHOWN_FRAMES = 60
RUNTIME = os.path.realpath(lifecycle.__file__)


@dataclass(frozen=True, kw_only=True)
class Hang:
    """Order to watch for a hang.

    Attributes:
        window: seconds for which nothing may move.
        within: seconds after the ranks were let go by which nothing has moved for a window.
        spins: the ranks are said to loop: a thread that is always busy stands, too.
        polls: functions of Python threads that may ask again and again, and change nothing by it.
        watched: whether the world has to stand still for all of `within`, from when it began to.
        of_programs: whether the ranks are programs: nobody knows their threads, nor those of what
            they start.
    """

    window: float
    within: float
    spins: bool = False
    polls: tuple[str, ...] = ()
    watched: bool = False
    of_programs: bool = False

    @property
    def needed(self) -> float:
        """Seconds for which this world has to stand still."""
        return max(self.window, self.within) if self.watched else self.window


Seen = Literal["moving", "still", "unproved", "sample"]
# So often ranks that loop are asked where they stand, while they are watched.
SAMPLES = 20
REMEDY = (
    "if a Python thread polls without making progress, name its function in must_fail.hang.polls"
)


class HangWatch:
    """Watches one world for a hang.

    Use `heard` for every event of a rank, and `look` when `patience` is over.

    Attributes:
        next_look: CLOCK_MONOTONIC seconds.
    """

    def __init__(
        self,
        order: Hang,
        *,
        world: WorldControl,
        states: RankStates,
        deadline: float,
        busy: Callable[[], str],
        served: int | None = None,
    ) -> None:
        """Begin.

        Args:
            order: what to prove.
            world: who keeps the events.
            states: what is known of the ranks.
            deadline: CLOCK_MONOTONIC seconds when the world is stopped anyway.
            busy: why the harness itself keeps a rank waiting, in words; empty where it does not.
            served: the process that serves the ranks where the harness does, and of which `busy`
                tells.
        """
        self._order = order
        self._world = world
        self._states = states
        self._busy = busy
        self._let_go: float | None = None
        self.next_look = math.inf
        self._deadline = deadline
        self._served = served
        self._stillness = Stillness(
            begun=time.monotonic(), deadline=deadline, needed=order.window, spins=order.spins
        )
        # For how long it had stood still, once that was as long as a window.
        self._had_stood = 0.0
        self._went_on = ""
        self._sampled = 0
        # Threads that wait for what ends by itself: excused where their stacks show a function that
        # polls.
        self._doubts: dict[tuple[int, int], str] = {}

    def begin(self) -> None:
        """Let the time run: from now on the ranks have `within` seconds to come to stand still."""
        if self._let_go is None:
            self._let_go = time.monotonic()
            self.next_look = self._let_go + EVERY

    def heard(self) -> None:
        """Take the fact that a rank emitted something, or ended."""
        self._restart("a rank emitted an event")
        if self._let_go is not None:
            self.next_look = time.monotonic() + EVERY

    def _restart(self, why: str) -> None:
        self._stillness.restart(why)
        if self._had_stood:
            self._went_on = self._went_on or why

    def look(self) -> Seen:
        """Ask the kernel; note what that proves."""
        now = time.monotonic()
        begun = time.thread_time()
        if self._let_go is None or now < self.next_look:
            return "moving"
        living = [self._states.started[rank] for rank in self._states.living()]
        self._stillness.polls = living if self._order.polls else ()
        if why := self._busy():
            self._restart(why)
        else:
            try:
                self._stillness.look(living, spare=self._states.wire, until=self._look_until(now))
            except UnreadableProcess as error:
                return self._give_up("unreadable", str(error))
        # In whole milliseconds, as it is written down: the judge must not find it too short by what
        # rounding took away.
        window = math.floor(self._stillness.window() * 1000) / 1000
        if self._had_stood and (moved := self._went_on or self._stillness.moved):
            return self._give_up(
                "moved-later",
                f"it made no progress for {self._had_stood:.1f} s, but then was active again:"
                f" {moved}",
            )
        if self._stillness.is_still(self._order.window) and self._stillness.since is not None:
            self._had_stood = window
            if window >= self._order.needed:
                return self._prove(window, since=self._stillness.since - self._let_go)
        elif not self._had_stood and now - self._let_go >= self._order.within:
            starved = "a thread was ready to run, but got almost no processor time"
            short = (
                starved
                if self._stillness.starving
                else f"it had made no progress for only {window:.1f} s"
            )
            moved = self._stillness.moved or short
            return self._give_up(
                "moving",
                f"it was still active after {self._order.within:g} s: {moved}",
            )
        if self._is_sample_due(window):
            self._sampled += 1
            return "sample"
        left = self._order.needed - window if self._stillness.since is not None else EVERY
        spent = time.thread_time() - begun
        self.next_look = now + max(0.01, min(EVERY, left), spent * REST)
        return "moving"

    def _look_until(self, now: float) -> float:
        """When a look has to be over: the deadline waits for none, nor does the end of `within`."""
        end = self._deadline
        if not self._had_stood and self._let_go is not None:
            end = min(end, self._let_go + self._order.within)
        return max(end, now + LOOK_WITHIN)

    def _is_sample_due(self, window: float) -> bool:
        each = self._order.needed / (SAMPLES + 1)
        return (
            self._order.spins and self._sampled < SAMPLES and window >= each * (self._sampled + 1)
        )

    def looping(self) -> list[int]:
        """Ranks whose main thread loops: asking them where they stand wakes nobody who waits."""
        started = self._states.started
        return [
            rank
            for rank in self._states.living()
            if self._stillness.is_busy(started[rank], started[rank])
        ]

    def _prove(self, window: float, *, since: float) -> Seen:
        """Nothing moved for long enough: note that, unless what the kernel shows says that
        something will.
        """
        left = self._deadline - time.monotonic()
        family = self._stillness.family()
        try:
            self._doubts = self._stillness.doubts()
        except UnreadableProcess as error:
            return self._give_up("unreadable", str(error))
        ranks = [self._states.started[rank] for rank in self._states.living()]
        for (pid, tid), why in self._doubts.items():
            # A rank's other threads are told from each other by its stacks, which are asked for
            # next.
            if pid not in ranks or self._order.of_programs or tid == pid:
                which = "the main thread" if tid == pid else "a thread"
                return self._give_up("doubtful", f"{which} of {self._called(pid)} {why}")
        for pid in () if self._order.of_programs else family.difference(ranks):
            if self._stillness.polls_in_a_thread(pid):
                return self._give_up(
                    "doubtful", f"a thread of {self._called(pid)} polls repeatedly"
                )
        try:
            why = next(doubts(family, left=left, served=self._served, name=self._called), "")
        except UnreadableProcess as error:
            return self._give_up("unreadable", str(error))
        if not why and self._order.spins and not self._stillness.busy():
            why = "must_fail.hang.spins is set, but no thread was busy all the time"
        if why:
            return self._give_up("doubtful", why)
        self._note(window, since=since)
        return "still"

    def _called(self, pid: int) -> str:
        rank = next((rank for rank, known in self._states.started.items() if known == pid), None)
        return "a process below a rank" if rank is None else f"rank {rank}"

    def _note(self, window: float, *, since: float) -> None:
        ranks = {pid: str(rank) for rank, pid in self._states.started.items()}
        spinning: dict[str, JSON] = {
            ranks.get(thread.pid, "below"): {"user": thread.user, "system": thread.system}
            for thread in self._stillness.spinning
        }
        waits: dict[str, JSON] = {}
        ends: dict[str, JSON] = {}
        for rank in self._states.living():
            with suppress(UnreadableProcess):
                waits[str(rank)] = self._stillness.waiting(self._states.started[rank])
            waits.setdefault(str(rank), "none")
            ends[str(rank)] = None
            with suppress(UnreadableProcess):
                ends[str(rank)] = self._stillness.outlives(self._states.started[rank])
        self._world.note(
            "world.still",
            seconds=window,
            after=round(since, 3),
            ranks=self._states.living(),
            waits=waits,
            ends=ends,
            spinning=spinning,
            spins=self._order.spins,
            polls=[*self._order.polls],
            watched=self._order.watched,
            busy=[
                rank
                for rank in self._states.living()
                if self._states.started[rank] in self._stillness.busy()
            ],
        )

    def unasked(self, rank: int) -> None:
        """Give up where a rank does not say where it stands, so that its threads cannot be told
        apart.
        """
        if not self._order.of_programs:
            self._give_up("unreadable", f"rank {rank} did not report its position")

    def _give_up(self, code: str, why: str) -> Seen:
        self._world.note("world.unproved", code=code, why=why)
        return "unproved"

    def conclude(self, rank: int, stacks: Sequence[Stack], *, folder: Path) -> None:
        """Look at the threads that the stacks show: those of the subject have to have stood still,
        too.

        Args:
            rank: whose stacks.
            stacks: its threads.
            folder: the arm's code.
        """
        pid = self._states.started[rank]
        try:
            tids = threads_of(pid, stacks)
            for stack in stacks:
                if not any(frame.function in self._order.polls for frame in stack.frames):
                    self._demand_stood(rank, tids[stack.handle], stack, folder=folder)
                self._doubts.pop((pid, tids[stack.handle]), None)
            for (owner, _), why in self._doubts.items():
                if owner == pid:
                    self._give_up("doubtful", f"a thread of rank {rank} {why}")
        except (UnreadableProcess, OSError) as error:
            self._give_up("unreadable", f"rank {rank}: {error}")

    def _demand_stood(self, rank: int, tid: int, stack: Stack, *, folder: Path) -> None:
        """Demand that a Python thread stood still: one that asks now and then may be what goes
        on.
        """
        pid = self._states.started[rank]
        why = self._doubts.get((pid, tid)) or self._stillness.stood(pid, tid)
        if not why:
            return
        frames = [
            frame for frame in stack.frames if inside(frame, folder) is not None
        ] or stack.frames
        # The function that the scenario would name: the outermost one is the thread's own.
        called = frames[0].function if frames else "?"
        if self._stillness.worked(pid, tid):
            self._give_up("moving", f"rank {rank}: a Python thread in {called} used the processor")
            return
        self._give_up("doubtful", f"rank {rank}: a Python thread in {called} {why}; {REMEDY}")


def holding_back(pid: int, number: int) -> frozenset[int]:
    """Return the threads of a process that hold a signal back: those in its handler do, from before
    it does anything.
    """
    threads = set()
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):  # a thread may end meanwhile
                status = (task / "status").read_text()
                mask = next(
                    (
                        int(line.split()[1], 16)
                        for line in status.splitlines()
                        if line.startswith("SigBlk:")
                    ),
                    0,
                )
                if mask >> (number - 1) & 1:
                    threads.add(int(task.name))
    return frozenset(threads)


def frames_as_evidence(
    stacks: Sequence[Stack], *, folder: Path, shorten: Callable[[str], str]
) -> list[JSON]:
    """Stacks as an event keeps them: files of the arm relative to it, others as they are called on
    any machine.
    """
    shown: list[JSON] = []
    for stack in stacks:
        frames: list[JSON] = []
        for frame in stack.frames[:SHOWN_FRAMES]:
            relative = inside(frame, folder)
            if relative is None and os.path.realpath(frame.file) == RUNTIME:
                break  # from here on it is the rank's own runtime, and how it was forked
            file = (
                shorten(f'File "{frame.file}"')[len('File "') : -1]
                if relative is None
                else relative
            )
            frames.append(
                {
                    "file": file,
                    "line": frame.line,
                    "function": frame.function,
                    "subject": relative is not None,
                }
            )
        shown.append({"frames": frames})
    return shown
