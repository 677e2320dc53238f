"""When a world stands still, by the rules alone: what the kernel says of its threads is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from harness.world.control import stillness
from harness.world.control.stillness import Spinning, Stillness, ThreadState, spun
from harness.world.control.waits import NUMBERS, Ended, Wait

RANK = 999_999_999  # no process has this number
OTHER = 999_999_998
TICKS = os.sysconf("SC_CLK_TCK")
SECOND = 1_000_000_000  # nanoseconds


def call(name: str, *arguments: int) -> str:
    """A line of /proc/…/syscall."""
    number = next(number for number, known in NUMBERS[os.uname().machine].items() if known == name)
    words = [hex(argument) for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    return f"{number} {' '.join(words)} 0x0 0x0"


WAITS = call("rt_sigsuspend")
NOBODY = Wait("pause", None)
UNKNOWN = "99999 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0"


def poll(seconds: float) -> str:
    """A wait for a descriptor that ends by itself after so many seconds."""
    return call("epoll_pwait", 3, 0, 1, round(seconds * 1000))


def thread(
    state: str = "S",
    *,
    user: int = 0,
    system: int = 0,
    faults: int = 0,
    switches: int = 0,
    said: str = WAITS,
    busy: float = 0.0,
    at: float = 0.0,
) -> ThreadState:
    """A thread that waits for a signal, but for what is said; `busy` in seconds."""
    return ThreadState(state, user, system, faults, switches, said, round(busy * SECOND), at)


class World:
    """Shows a `Stillness` one state of threads after the other, on a clock that stands unless it is
    set.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, watch: Stillness) -> None:
        self.watch = watch
        self.now = watch.begun
        self.shown: dict[tuple[int, int], ThreadState] = {}
        monkeypatch.setattr(stillness, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(stillness, "snapshot", lambda _pids, **_: iter(self.shown.items()))

    def show(self, at: float, threads: dict[tuple[int, int], ThreadState]) -> str:
        """Look at these threads, so many seconds after the begin; what moved, in words."""
        self.now = self.watch.begun + at
        self.shown = {who: one._replace(at=self.now) for who, one in threads.items()}
        self.watch.look([RANK])
        return self.watch.moved


MAIN, HELPER, CHILD = (RANK, RANK), (RANK, RANK + 1), (OTHER, OTHER)


def world(monkeypatch: pytest.MonkeyPatch, *, spins: bool = False, needed: float = 1.0) -> World:
    return World(monkeypatch, Stillness(begun=100.0, deadline=160.0, needed=needed, spins=spins))


def test_a_window_runs_from_the_first_look_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known before the first look.

    A window is as long as what lies between two, and its end counts.
    """
    made = world(monkeypatch)
    assert made.watch.window() == 0.0
    assert not made.watch.is_still(0.0)
    assert made.show(1.0, {MAIN: thread()}) == "there was no earlier observation"
    assert (made.watch.window(), made.watch.since) == (0.0, 101.0)
    assert made.show(3.0, {MAIN: thread()}) == ""
    assert made.watch.window() == 2.0
    assert made.watch.is_still(2.0)
    assert not made.watch.is_still(2.1)
    made.watch.restart("an event")
    assert (made.watch.window(), made.watch.moved) == (0.0, "an event")


def test_a_window_begins_when_its_first_look_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slow look saw first may have moved by its end."""
    made = world(monkeypatch)

    def slow(_pids: object, **_: object) -> Iterator[tuple[tuple[int, int], ThreadState]]:
        made.now += 5.0
        yield MAIN, thread()

    monkeypatch.setattr(stillness, "snapshot", slow)
    made.watch.look([RANK])
    assert (made.watch.since, made.watch.window()) == (105.0, 0.0)


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (thread("R"), "is in state R"),
        (thread("D"), "is in state D"),
        (thread(said="running"), "runs"),
        (thread(said=UNKNOWN), "and it is not known whether this call ends by itself"),
        (thread(said=poll(59.999)), "which ends by itself"),
        (thread(user=1), "went on"),
        (thread(system=1), "went on"),
        (thread(faults=1), "went on"),
        (thread(switches=1), "went on"),
        (thread(said=call("rt_sigsuspend", 1)), "went on"),
    ],
)
def test_a_main_thread_that_does_not_stand(
    last: ThreadState, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any tick, page or switch moves it, and so does a wait that ends before the deadline or in a
    way unknown.
    """
    made = world(monkeypatch)
    made.show(0.0, {MAIN: thread()})
    assert made.show(1.0, {MAIN: last}).endswith(why)
    assert made.watch.since is None
    assert not made.watch.is_still(0.0)


def test_a_wait_that_ends_after_the_deadline_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted from the world's begin, for nobody knows how much of it is over."""
    made = world(monkeypatch)
    beyond = {MAIN: thread(said=poll(60.001))}
    made.show(0.0, beyond)
    assert made.show(2.0, beyond) == ""
    assert made.watch.waiting(RANK) == "epoll_pwait"
    assert made.watch.outlives(RANK) == pytest.approx(0.001)
    assert made.watch.outlives(OTHER) is None
    assert (made.watch.waiting(OTHER), made.watch.family()) == ("none", {RANK})
    made.show(3.0, {MAIN: thread()})
    assert made.watch.outlives(RANK) is None


def test_a_thread_that_begins_or_ends_moves_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does the rank that does not exist any more."""
    made = world(monkeypatch)
    made.show(0.0, {MAIN: thread()})
    assert (
        made.show(1.0, {MAIN: thread(), HELPER: thread()}) == "a process or a thread began or ended"
    )
    assert made.show(2.0, {MAIN: thread()}) == "a process or a thread began or ended"
    assert made.show(3.0, {HELPER: thread()}) == f"process {RANK} does not exist"


def test_what_ends_while_it_is_looked_at_moves_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose memory is gone has just ended: no error, and no stillness."""
    made = world(monkeypatch)
    made.show(0.0, {MAIN: thread()})

    def gone(*_: object, **__: object) -> None:
        raise Ended("process 1 has ended")

    monkeypatch.setattr(stillness, "waits_in", gone)
    assert made.show(1.0, {MAIN: thread()}) == "process 1 has ended"
    assert made.watch.window() == 0.0


def idle(seconds: float) -> int:
    """The most ticks that a thread of a library may take in a window and idle."""
    return int(3 + 0.03 * seconds * TICKS)


@pytest.mark.parametrize("seconds", [1.0, 10.0])
def test_a_thread_beside_may_idle(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ticks and three hundredths of the window; one tick more is work."""
    for more, why in ((0, ""), (1, f"a thread of process {RANK} computes")):
        made = world(monkeypatch)
        made.show(0.0, {MAIN: thread(), HELPER: thread()})
        user = idle(seconds) + more
        assert made.show(seconds, {MAIN: thread(), HELPER: thread(user=user)}) == why
        half = (user + 1) // 2
        made = world(monkeypatch)
        made.show(0.0, {MAIN: thread(), HELPER: thread()})
        mixed = made.show(seconds, {MAIN: thread(), HELPER: thread(user=half, system=user - half)})
        assert (mixed, len(made.watch.spinning)) == ("", more)


@pytest.mark.parametrize(("state", "starves"), [("R", True), ("D", True), ("S", False)])
def test_a_thread_without_a_processor_is_not_still(
    state: str, *, starves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is ready, or waits for a disk, used little and may do anything.

    A later look forgets it.
    """
    made = world(monkeypatch)
    both = {MAIN: thread(), HELPER: thread(state)}
    made.show(0.0, both)
    assert made.show(5.0, both) == ""
    assert made.watch.starving is starves
    assert made.watch.is_still(5.0) is not starves
    made.show(6.0, {MAIN: thread(), HELPER: thread()})
    assert made.watch.is_still(6.0)


@pytest.mark.parametrize(
    ("user", "system", "faults", "spins"),
    [
        (75, 25, 4, True),
        (76, 24, 4, False),
        (75, 25, 5, False),
        (0, 100, 0, True),
        (100, 0, 0, False),
    ],
)
def test_a_thread_that_asks_the_kernel_again_and_again(
    user: int, system: int, faults: int, *, spins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of its ticks is the kernel's, and it touches at most four new pages.

    Else it computes.
    """
    made = world(monkeypatch)
    before = thread(user=1000, system=1000, faults=1000)
    made.show(0.0, {MAIN: thread(), HELPER: before})
    after = thread("R", user=1000 + user, system=1000 + system, faults=1000 + faults)
    assert made.show(1.0, {MAIN: thread(), HELPER: after}) == (
        "" if spins else f"a thread of process {RANK} computes"
    )
    assert made.watch.spinning == ([Spinning(RANK, user, system)] if spins else [])
    made.show(1.1, {MAIN: thread(), HELPER: before})
    assert made.watch.spinning == []


BUSY = thread("R", said="running")


@pytest.mark.parametrize(
    ("passed", "busy", "ran", "switches", "is_spun"),
    [
        (0.5, 0.45, 0, 25, True),
        (0.499, 0.499, 50, 0, False),
        (0.5, 0.449, 50, 0, False),
        (0.5, 0.45, 0, 26, False),
        (0.5, 0.45, 50, 75, True),
        (0.5, 0.45, 50, 76, False),
        (10.0, 9.0, 1000, 0, True),
        (10.0, 8.99, 1000, 0, False),
    ],
)
def test_a_thread_that_was_busy_all_the_time(
    passed: float, busy: float, ran: int, switches: int, *, is_spun: bool
) -> None:
    """For nine tenths of half a second or more, and it gave the processor away at most 25 times and
    once in a tick.
    """
    first = thread(user=7, system=9, switches=11, busy=3.0, at=1000.0)
    last = thread(
        user=7 + ran // 2,
        system=9 + ran - ran // 2,
        switches=11 + switches,
        busy=3.0 + busy,
        at=1000.0 + passed,
    )
    assert spun(first, last) is is_spun


def test_a_main_thread_that_loops_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `spins` is stated, one that is always busy stands, and one that is not does not."""
    made = world(monkeypatch, spins=True)
    made.show(0.0, {MAIN: BUSY})
    assert made.show(0.4, {MAIN: BUSY._replace(user=1)}) == ""  # too short a time to tell
    assert made.show(1.0, {MAIN: BUSY._replace(user=90, busy=SECOND)}) == ""
    assert made.watch.is_still(1.0)
    assert made.watch.is_busy(*MAIN)
    assert made.watch.busy() == {RANK}
    assert made.watch.stood(*MAIN) == ""
    assert made.show(2.0, {MAIN: BUSY._replace(user=90, busy=SECOND)}).endswith(
        "is not always busy"
    )
    assert made.show(2.5, {MAIN: BUSY._replace(user=90, busy=SECOND)}).endswith(
        "is not always busy"
    )


def test_a_loop_that_nobody_stated_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A main thread that is always busy computes, unless the control is said to loop."""
    made = world(monkeypatch)
    made.show(0.0, {MAIN: BUSY})
    assert made.show(1.0, {MAIN: BUSY._replace(user=90, busy=SECOND)}).endswith("is in state R")
    made.show(1.0, {MAIN: BUSY})
    assert not made.watch.is_busy(*HELPER)


def test_a_thread_beside_that_loops_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may compute, where `spins` is stated and it is always busy.

    Where it is not stated, it may not.
    """
    for spins, why in ((True, ""), (False, f"a thread of process {RANK} computes")):
        made = world(monkeypatch, spins=spins)
        made.show(0.0, {MAIN: thread(), HELPER: BUSY})
        assert made.show(1.0, {MAIN: thread(), HELPER: BUSY._replace(user=95, busy=SECOND)}) == why


def test_a_python_thread_that_loops_did_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop stands where `spins` is stated.

    Where it is not, a thread that asked the kernel all the time ran.
    """
    for spins, why in ((True, ""), (False, "is in state R")):
        made = world(monkeypatch, spins=spins)
        made.show(0.0, {MAIN: thread(), HELPER: BUSY})
        assert made.show(1.0, {MAIN: thread(), HELPER: BUSY._replace(system=95, busy=SECOND)}) == ""
        assert made.watch.stood(*HELPER) == why


def test_a_main_thread_that_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may idle in short waits where its function is named, and where it is not named it may
    not.
    """
    for polls, why in (
        ([RANK], ""),
        ([], f"process {RANK} sleeps in epoll_pwait, which ends by itself"),
    ):
        made = world(monkeypatch)
        made.watch.polls = polls
        made.show(0.0, {MAIN: thread(said=poll(0.5))})
        assert made.show(1.0, {MAIN: thread(said=poll(0.5), switches=2)}) == why


def test_what_one_thread_did_during_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ticks are work, one is not; where it went on, stood or was not there is told of each."""
    made = world(monkeypatch)
    others = {MAIN: thread(), CHILD: thread()}
    made.show(0.0, {**others, HELPER: thread()})
    made.show(1.0, {**others, HELPER: thread(user=1)})
    assert not made.watch.worked(*HELPER)
    assert made.watch.stood(*HELPER) == "went on"
    assert made.watch.polls_in_a_thread(RANK)
    assert not made.watch.polls_in_a_thread(OTHER)
    assert made.watch.stood(*MAIN) == ""
    assert made.watch.stood(RANK, 1) == "did not exist for the whole window"
    assert made.watch.worked(RANK, 1)
    made.show(2.0, {**others, HELPER: thread(user=1, system=1)})
    assert made.watch.worked(*HELPER)
    assert made.watch.family() == {RANK, OTHER}


def test_a_main_thread_alone_asks_in_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process with a named polling function its other threads are asked.

    Those of other processes are not.
    """
    made = world(monkeypatch)
    made.show(0.0, {MAIN: thread(), CHILD: thread()})
    made.show(1.0, {MAIN: thread(), CHILD: thread()})
    assert not made.watch.polls_in_a_thread(RANK)


def doubt(monkeypatch: pytest.MonkeyPatch, first: ThreadState, *, seen_for: float = 2.0) -> str:
    made = world(monkeypatch)
    made.show(0.0, {MAIN: thread(), HELPER: first})
    made.show(seen_for, {MAIN: thread(), HELPER: first})
    return made.watch.doubts().get(HELPER, "")


@pytest.mark.parametrize(
    ("state", "said", "why"),
    [
        ("S", WAITS, ""),
        ("S", poll(0.999), ""),
        ("S", poll(1.0), "waits in epoll_pwait with a timeout of 1.0 s"),
        ("S", poll(60.001), ""),
        ("S", UNKNOWN, "and it is not known whether this call ends by itself"),
        ("S", "running", ""),
        ("R", poll(2.0), ""),
        ("Z", poll(2.0), ""),
        ("X", poll(2.0), ""),
    ],
)
def test_a_wait_of_a_thread_beside_is_a_doubt(
    state: str, said: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From as long as the window until the deadline.

    One that runs or has ended waits for nothing.
    """
    found = doubt(monkeypatch, thread(state, said=said))
    assert found.endswith(why)
    assert bool(found) is bool(why)


def test_who_sleeps_in_short_steps_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the sleep is that it was seen in; what begins anew forgets it."""
    made = world(monkeypatch)
    asleep = thread(said=poll(0.01))
    monkeypatch.setattr(stillness, "sleeps_in", lambda line: "poll" if line == asleep.call else "")
    both = {MAIN: thread(), HELPER: asleep}
    made.show(0.0, both)
    assert made.watch.doubts().get(HELPER, "") == ""
    made.show(1.0, both)
    assert made.watch.doubts()[HELPER] == "repeatedly sleeps in poll"
    made.show(2.0, {MAIN: thread(user=1), HELPER: asleep})
    made.show(2.5, {MAIN: thread(user=1), HELPER: asleep})
    assert "repeatedly" not in made.watch.doubts().get(HELPER, "")


SLEEPS = call("clock_nanosleep", 0, 0, 1)
SLEEPING = "repeatedly sleeps in clock_nanosleep"


@pytest.mark.parametrize(
    ("who", "polls", "why"),
    [
        (MAIN, (), SLEEPING),
        (MAIN, (RANK,), ""),
        (MAIN, (OTHER,), SLEEPING),
        (HELPER, (), SLEEPING),
        (HELPER, (RANK,), SLEEPING),
        (CHILD, (), ""),
        (CHILD, (OTHER,), ""),
        ((OTHER, OTHER + 2), (), SLEEPING),
    ],
)
def test_who_sleeps_is_a_doubt_but_where_it_may(
    who: tuple[int, int], polls: tuple[int, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread of a rank waits for somebody, unless it is stated to poll; that of another
    process may sleep for as long as the world lives.
    """
    watch = Stillness(begun=100.0, deadline=160.0, needed=1.0, polls=polls)
    made = World(monkeypatch, watch)
    monkeypatch.setattr(stillness, "waits_in", lambda *_, **__: NOBODY)
    shown = {MAIN: thread(), who: thread(said=SLEEPS)}
    made.show(0.0, shown)
    assert made.show(1.5, shown) == ""
    assert watch.doubts() == ({who: why} if why else {})


@pytest.mark.parametrize(("since", "is_doubtful"), [(0.0, True), (1.0, True), (1.5, False)])
def test_a_wait_until_a_moment_is_as_long_as_it_was_seen(
    since: float, *, is_doubtful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a call is given a moment and no span, it is counted from when the thread came to that
    place.
    """
    made = world(monkeypatch)
    until = Wait("futex", made.watch.begun + 2.0)
    monkeypatch.setattr(
        stillness, "waits_in", lambda _pid, line, **_: until if line == UNKNOWN else NOBODY
    )
    there = thread(said=UNKNOWN)
    if since:
        made.show(0.0, {MAIN: thread(), HELPER: thread()})
    for at in (since, 1.75):
        made.show(at, {MAIN: thread(), HELPER: there})
    assert bool(made.watch.doubts()) is is_doubtful


def test_the_doubt_of_a_main_thread_is_not_told_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A main thread in such a wait does not stand still at all."""
    made = world(monkeypatch)
    made.show(0.0, {MAIN: thread(said=poll(2.0))})
    assert made.watch.doubts() == {}


def test_a_look_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its last moment no further thread is read, and nothing stands still.

    At that moment one still is.
    """
    for until, why in (
        (100.0, ""),
        (99.9, "reading the state of all its threads took longer than the time that was left"),
    ):
        made = world(monkeypatch)
        made.show(0.0, {MAIN: thread()})
        made.watch.look([RANK], until=until)
        assert made.watch.moved == why
        assert (made.watch.since is None) is bool(why)
