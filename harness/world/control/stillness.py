"""Stillness of a world: nobody in it can go on unless somebody else in it does.

Stacks alone prove slowness: a rank whose peer computes, sleeps or polls shows the same lines again
and again. So first the kernel is asked, for a window of time: in every rank and every process below
one, the main thread sits in the same system call, one that does not end by itself, without a tick
of the processor and without a switch. Other threads may idle or spin, but not work: a ring whose
peer is silent asks its socket again and again, which is a system call each time and touches no new
page, while a thread that computes spends its time outside the kernel.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.history import LEAST
from harness.rank.process import inspect
from harness.world.below.leftovers import processes
from harness.world.control.waits import PROC, Ended, UnreadableProcess, Wait, sleeps_in, waits_in

# Per second of the window: what a thread that idles or polls may use of the processor.
IDLE_TICKS = 3
IDLE_SHARE = 0.03
# A thread that asks the kernel again and again: at least this share of its ticks is the kernel's.
# Measured: a ring that waits for its peer 0.58, a matrix product 0.02 to 0.09.
SPIN_SHARE = 0.25
SPIN_FAULTS = 4
# A thread that loops runs, or is ready to, for at least this share of the time; one that sleeps in
# between does not.
BUSY_SHARE = 0.9
# So often, and once in a tick that it runs, it may give the processor away by itself: it is asked
# where it is.
SPIN_SWITCHES = 25
# Shorter than this, in seconds, a share is not told from what reading it takes.
SPIN_LEAST = 0.5


class ThreadState(NamedTuple):
    """One thread, as the kernel lists it.

    Attributes:
        state: letter of ps.
        user, system: processor time in ticks.
        faults: minor page faults.
        switches: times it gave the processor away by itself.
        call: text of its /proc/…/syscall.
        busy: nanoseconds for which it ran, or was ready to (/proc/…/schedstat).
        at: CLOCK_MONOTONIC seconds when it was read.
    """

    state: str
    user: int
    system: int
    faults: int
    switches: int
    call: str
    busy: int = 0
    at: float = 0.0

    @property
    def place(self) -> tuple[str | int, ...]:
        """Return what is the same for as long as it stands still."""
        return self[:6]


Threads = Mapping[tuple[int, int], ThreadState]
"""(pid, tid) to what the thread did so far."""


class Spinning(NamedTuple):
    """Native thread that asked the kernel again and again during the window.

    Ticks of the processor.
    """

    pid: int
    user: int
    system: int


@dataclass(kw_only=True)
class Stillness:
    """Watches a set of processes and everything below them.

    Attributes:
        begun: CLOCK_MONOTONIC seconds when the world began.
        deadline: CLOCK_MONOTONIC seconds when it is stopped anyway: a wait that ends before is
            sleep.
        needed: seconds for which nothing may move: a native thread may idle in shorter waits, one
            after the other.
        spins: the control is said to loop: a thread that is always busy stands, too.
        polls: main threads of these processes may idle in short waits; whoever sees their stacks
            judges them.
        since: CLOCK_MONOTONIC seconds since when nothing has moved; None before the first look.
        moved: what moved last, in words.
        spinning: native threads that spun during the window.
        starving: whether a thread was ready to run and hardly got the processor: what it does
            cannot be told yet.
    """

    begun: float
    deadline: float
    needed: float = LEAST
    spins: bool = False
    polls: Collection[int] = ()
    since: float | None = None
    moved: str = ""
    spinning: list[Spinning] = field(default_factory=list)
    starving: bool = False
    _looked: float = 0.0
    # The process whose main thread moved last: it is looked at first, so that most looks are short.
    _mover: int = 0
    _first: Threads = field(default_factory=dict)
    _last: Threads = field(default_factory=dict)
    # Since when each thread has been seen in the place in which it is: a lower bound of how long it
    # has been there.
    _since: dict[tuple[int, int], tuple[tuple[str | int, ...], float]] = field(default_factory=dict)
    # Threads that were seen asleep during the window, however short, to what they slept in; no main
    # ones of processes that are no ranks.
    _slept: dict[tuple[int, int], str] = field(default_factory=dict)

    def look(
        self, pids: Collection[int], *, spare: int | None = None, until: float = math.inf
    ) -> None:
        """Compare with what was seen before; where something moved, begin anew.

        A look ends at the first main thread that moves. Where more ranks compute than there are
        cores, reading all threads takes longer than the world has: each read waits for its turn.

        Args:
            pids: processes of the ranks that live.
            spare: a process that is no rank, and says itself whether it keeps them waiting.
            until: CLOCK_MONOTONIC seconds after which no further thread is read.

        Raises:
            UnreadableProcess: the kernel does not show it.
        """
        now = time.monotonic()
        self._looked = now
        threads: dict[tuple[int, int], ThreadState] = {}
        self._last = threads
        # The process that moved last is the likeliest to move again.
        ranks = sorted(pids, key=lambda pid: pid != self._mover)
        for who, thread in snapshot(ranks, spare=spare):
            threads[who] = thread
            if who not in self._since or self._since[who][0] != thread.place:
                self._since[who] = thread.place, now
            if why := self._moved_at_sight(who, thread, now, until=until):
                self._mover = who[0]
                self.restart(why)
                return
        # Nobody to look at proves nothing: not where a rank has just ended, and not where /proc
        # shows none.
        unseen = [pid for pid in pids if (pid, pid) not in threads]
        try:
            self.moved = (
                f"process {unseen[0]} does not exist"
                if unseen
                else self._difference(threads, now, ranks=pids)
            )
        except Ended as error:
            self.moved = str(error)
        if self.since is None or self.moved:
            # One look may take seconds: what it saw first may have moved by its end.
            self.since = time.monotonic()
            self._first = threads
            self.spinning = []
            self._slept = {}

    def _moved_at_sight(
        self, who: tuple[int, int], thread: ThreadState, now: float, *, until: float
    ) -> str:
        """Why the rest of a look can be spared; empty where it has to be read."""
        if time.monotonic() > until:
            return "reading the state of all its threads took longer than the time that was left"
        pid, tid = who
        if pid != tid:
            return ""
        # Without a window there is nothing to compare with: it only has to be in a wait.
        first = thread if self.since is None else self._first.get(who, thread)
        try:
            why = self._main(pid, first, thread, now)
        except Ended as error:
            return str(error)
        return why and f"process {pid} {why}"

    def restart(self, why: str) -> None:
        """Forget what was seen: something that is known otherwise moved."""
        self.since = None
        self.moved = why

    def is_still(self, seconds: float) -> bool:
        """Return whether nothing has moved for so long, and everybody who could have had the
        processor for it.
        """
        return self.since is not None and self.window() >= seconds and not self.starving

    def window(self) -> float:
        """Seconds for which nothing has moved: from the end of the first look until the begin of
        the last one.
        """
        return 0.0 if self.since is None else max(0.0, self._looked - self.since)

    def stood(self, pid: int, tid: int) -> str:
        """Why a thread did not stand still for the whole window, in words; empty where it did.

        Raises:
            UnreadableProcess: the kernel does not show it.
        """
        first = self._first.get((pid, tid))
        last = self._last.get((pid, tid))
        if first is None or last is None:
            return "did not exist for the whole window"
        if self.spins and spun(first, last):
            return ""
        return self._stands(pid, first, last)

    def family(self) -> set[int]:
        """Return the processes that were seen last."""
        return {pid for pid, _ in self._last}

    def doubts(self) -> dict[tuple[int, int], str]:
        """Which threads sleep, and which beside the main ones are in another wait that ends by
        itself: (pid, tid) to what it is in words.

        One that is shorter than the window is left to the idle rule: gloo's loop waits for 10 ms at
        a time. But who sleeps waits for nobody, and does something afterwards.

        Raises:
            UnreadableProcess: the kernel does not show it.
        """
        sleeping = {who: f"repeatedly sleeps in {call}" for who, call in self._slept.items()}
        for (pid, tid), thread in self._last.items():
            if pid != tid and thread.state not in "RZX" and (why := self._doubt(pid, tid, thread)):
                sleeping[pid, tid] = why
        return sleeping

    def _doubt(self, pid: int, tid: int, thread: ThreadState) -> str:
        wait = self._wait(pid, thread)
        if wait is None:
            return ""
        if not wait.is_known:
            return f"is in {wait.call}, and it is not known whether this call ends by itself"
        if wait.outlasts(self.deadline) or wait.ends is None:
            return ""
        length = wait.span if wait.span is not None else wait.ends - self._since[pid, tid][1]
        if length < self.needed:
            return ""
        return f"waits in {wait.call} with a timeout of {length:.1f} s"

    def worked(self, pid: int, tid: int) -> bool:
        """Return whether a thread used the processor during the window."""
        first = self._first.get((pid, tid))
        last = self._last.get((pid, tid))
        return (
            first is None or last is None or last.user + last.system - first.user - first.system > 1
        )

    def is_busy(self, pid: int, tid: int) -> bool:
        """Return whether a thread was busy for the whole window."""
        first = self._first.get((pid, tid))
        last = self._last.get((pid, tid))
        return first is not None and last is not None and spun(first, last)

    def busy(self) -> set[int]:
        """Return the processes of which a thread was busy for the whole window."""
        return {pid for pid, tid in self._last if self.is_busy(pid, tid)}

    def polls_in_a_thread(self, pid: int) -> bool:
        """Return whether a thread of a process, beside its main one, went on during the window."""
        return any(
            owner == pid and first.place != self._last[owner, tid].place
            for (owner, tid), first in self._first.items()
        )

    def waiting(self, pid: int) -> str:
        """Return the system call that the main thread of a process waits in.

        Raises:
            UnreadableProcess: the kernel does not show it.
        """
        thread = self._last.get((pid, pid))
        wait = self._wait(pid, thread) if thread else None
        return wait.call if wait else "none"

    def outlives(self, pid: int) -> float | None:
        """How many seconds after the deadline the wait of a main thread ends by itself; None where
        it does not.

        Raises:
            UnreadableProcess: the kernel does not show it.
        """
        thread = self._last.get((pid, pid))
        wait = self._wait(pid, thread) if thread else None
        return None if wait is None or wait.ends is None else round(wait.ends - self.deadline, 3)

    def _difference(self, threads: Threads, now: float, *, ranks: Collection[int]) -> str:
        """Return what moved since the window began, in words; empty where nothing did."""
        first = self._first
        self.spinning = []
        self.starving = False
        if first.keys() != threads.keys():
            return (
                "a process or a thread began or ended"
                if first
                else ("there was no earlier observation")
            )
        for (pid, tid), last in threads.items():
            if pid == tid:
                if why := self._main(pid, first[pid, tid], last, now):
                    return f"process {pid} {why}"
            elif why := self._idles(pid, first[pid, tid], last, now):
                return f"a thread of process {pid} {why}"
            # The main thread of a rank waits for somebody, unless it is stated to poll. That of
            # another process may sleep for as long as the world lives, as `sleep infinity` does.
            is_free = pid in self.polls or pid not in ranks
            if (call := sleeps_in(last.call)) and not (pid == tid and is_free):
                self._slept[pid, tid] = call
        return ""

    def _main(self, pid: int, first: ThreadState, last: ThreadState, now: float) -> str:
        """Why the main thread of a process does not stand still."""
        why = self._stands(pid, first, last)
        if not why:
            return ""
        if self.spins and last.at - first.at < SPIN_LEAST:
            return ""
        if self.spins:
            return "" if spun(first, last) else f"{why}, and is not always busy"
        return self._idles(pid, first, last, now) if pid in self.polls else why

    def _stands(self, pid: int, first: ThreadState, last: ThreadState) -> str:
        """Why a thread that has to stand still does not."""
        if last.state != "S":
            return f"is in state {last.state}"
        wait = self._wait(pid, last)
        if wait is None:
            return "runs"
        if not wait.is_known:
            return f"is in {wait.call}, and it is not known whether this call ends by itself"
        if not wait.outlasts(self.deadline):
            return f"sleeps in {wait.call}, which ends by itself"
        if last.place != first.place:
            return "went on"
        return ""

    def _idles(self, pid: int, first: ThreadState, last: ThreadState, now: float) -> str:
        """Why a thread of a library works, so that others may wait for it."""
        user = last.user - first.user
        system = last.system - first.system
        window = now - (self.since or now)
        if user + system <= IDLE_TICKS + IDLE_SHARE * window * os.sysconf("SC_CLK_TCK"):
            # On a busy machine one that computes gets as little of the processor as one that idles;
            # but it asks for it. And one that waits for a disk goes on when that answers.
            self.starving = self.starving or last.state in "RD"
            return ""
        if self.spins and spun(first, last):
            return ""
        if system < SPIN_SHARE * (user + system) or last.faults - first.faults > SPIN_FAULTS:
            return "computes"
        self.spinning.append(Spinning(pid, user, system))
        return ""

    def _wait(self, pid: int, thread: ThreadState) -> Wait | None:
        return waits_in(pid, thread.call, begun=self.begun)


def spun(first: ThreadState, last: ThreadState) -> bool:
    """Return whether a thread was busy all the time: it ran, or waited for a processor.

    On a busy machine one that sleeps in between waits for the processor most of the time, too; but
    it gives it away by itself after a moment.
    """
    passed = last.at - first.at
    if passed < SPIN_LEAST or last.busy - first.busy < BUSY_SHARE * passed * 1e9:
        return False
    ran = last.user + last.system - first.user - first.system
    return last.switches - first.switches <= ran + SPIN_SWITCHES


def snapshot(
    pids: Collection[int], *, spare: int | None = None
) -> Iterator[tuple[tuple[int, int], ThreadState]]:
    """Every thread of these processes, then of those below their keeper; zombies have none.

    They are read one by one as they are asked for.

    Raises:
        UnreadableProcess: the kernel does not show it.
    """
    if not (PROC / "self" / "task").is_dir():
        raise UnreadableProcess(
            "on this system, /proc does not show which system calls threads are blocked in"
        )
    for pid in _ranks_first(pids, spare=spare):
        try:
            tids = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()]
        except OSError:
            continue  # it has just ended; whoever compares sees that it is not there
        for tid in tids:
            if (thread := read_thread(pid, tid)) is not None:
                yield (pid, tid), thread


def read_thread(pid: int, tid: int) -> ThreadState | None:
    """One thread; None when it has ended.

    Raises:
        UnreadableProcess: the kernel does not show what it waits in.
    """
    folder = PROC / str(pid) / "task" / str(tid)
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text()
        scheduled = (folder / "schedstat").read_text().split()
    except OSError:
        return None
    at = time.monotonic()
    if fields[0] in "ZX":
        return None
    try:
        call = (folder / "syscall").read_text().strip()
    except OSError as error:
        if not (folder / "stat").exists():
            return None  # it ended meanwhile
        raise UnreadableProcess(
            f"cannot determine which system call a process is blocked in: {error.strerror}"
        ) from None
    switches = next(
        (
            int(line.split()[1])
            for line in status.splitlines()
            if line.startswith("voluntary_ctxt_switches")
        ),
        -1,
    )
    busy = int(scheduled[0]) + int(scheduled[1])
    return ThreadState(
        fields[0], int(fields[11]), int(fields[12]), int(fields[7]), switches, call, busy, at
    )


def _ranks_first(pids: Collection[int], *, spare: int | None) -> Iterator[int]:
    """Yield the ranks, and every other process below their keeper, who adopts what ranks leave
    behind.
    """
    yield from pids
    children = _children()
    keepers = {process.parent for pid in pids if (process := inspect(pid)) is not None}
    queue = [child for keeper in keepers for child in children(keeper)]
    while queue:
        pid = queue.pop()
        if pid == spare:
            continue
        queue += children(pid)
        if pid not in pids:
            yield pid


def _children() -> Callable[[int], list[int]]:
    """Return what lists the children of a process.

    The kernel lists them by their parent. One that does not (CONFIG_PROC_CHILDREN) leaves only the
    list of all processes of the machine.
    """
    is_listed = (PROC / "thread-self" / "children").exists()
    return _children_of if is_listed else children_of_all()


def children_of_all() -> Callable[[int], list[int]]:
    """Return what lists the children of a process, from every process of the machine."""
    known: defaultdict[int, list[int]] = defaultdict(list)
    for process in processes():
        known[process.parent].append(process.pid)
    return lambda pid: known[pid]


def _children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, zombies too: other threads may live."""
    children: list[int] = []
    with suppress(OSError):  # the process has just ended
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):  # this thread of it has
                children += map(int, (task / "children").read_text().split())
    return children
