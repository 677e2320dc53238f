"""When a hang is proved, by the rules alone: what the kernel shows and which ranks there are is
given.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.world.control import hang
from harness.world.control.capture import Frame, Stack
from harness.world.control.hang import Hang, HangWatch, frames_as_evidence, holding_back
from harness.world.control.ranks import RankStates
from harness.world.control.stillness import Spinning
from harness.world.control.waits import UnreadableProcess

PIDS = {0: 100, 1: 101}
BELOW = 200


class Kernel:
    """Says of a world what a test has it say, as `Stillness` does of a real one.

    Attributes:
        since: when it came to stand still; `still_for` is counted from there to now.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.since: float | None = None
        self.moved = ""
        self.starving = False
        self.polls: Sequence[int] = ()
        self.spinning: list[Spinning] = []
        self.looks = 0
        self.error: Exception | None = None
        self.doubtful: dict[tuple[int, int], str] = {}
        self.standing: dict[tuple[int, int], str] = {}
        self.workers: set[tuple[int, int]] = set()
        self.busy_pids: set[int] = set()
        self.pids = set(PIDS.values())
        self.asks: set[int] = set()
        self.unreadable: set[int] = set()

    def look(self, _pids: Sequence[int], **_: object) -> None:
        self.looks += 1
        if self.error:
            raise self.error
        if self.since is None:
            self.since = self.now
            self.moved = ""

    def restart(self, why: str) -> None:
        self.since, self.moved = None, why

    def window(self) -> float:
        return 0.0 if self.since is None else self.now - self.since

    def is_still(self, seconds: float) -> bool:
        return self.since is not None and self.window() >= seconds and not self.starving

    def doubts(self) -> dict[tuple[int, int], str]:
        return dict(self.doubtful)

    def family(self) -> set[int]:
        return set(self.pids)

    def polls_in_a_thread(self, pid: int) -> bool:
        return pid in self.asks

    def busy(self) -> set[int]:
        return self.busy_pids

    def is_busy(self, pid: int, tid: int) -> bool:
        return pid == tid and pid in self.busy_pids

    def stood(self, pid: int, tid: int) -> str:
        return self.standing.get((pid, tid), "")

    def worked(self, pid: int, tid: int) -> bool:
        return (pid, tid) in self.workers

    def waiting(self, pid: int) -> str:
        if pid in self.unreadable:
            raise UnreadableProcess("no")
        return f"call-{pid}"

    def outlives(self, pid: int) -> float | None:
        if pid in self.unreadable:
            raise UnreadableProcess("no")
        return 1.5


class Watched:
    """A watch over two ranks, and the kernel that it asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **order: Any) -> None:
        self.kernel = Kernel()
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.busy_with = ""
        self.reasons: list[str] = []
        clock = SimpleNamespace(monotonic=lambda: self.kernel.now, thread_time=lambda: 0.0)
        monkeypatch.setattr(hang, "time", clock)
        monkeypatch.setattr(hang, "doubts", lambda *_, **__: iter(self.reasons))
        self.states = RankStates(size=2, started=dict(PIDS))
        world: Any = SimpleNamespace(note=lambda name, **values: self.notes.append((name, values)))
        given: dict[str, Any] = {"window": 2.0, "within": 10.0, **order}
        self.watch = HangWatch(
            Hang(**given),
            world=world,
            states=self.states,
            deadline=1060.0,
            busy=lambda: self.busy_with,
        )
        stillness: Any = self.kernel
        self.watch._stillness = stillness

    def at(self, seconds: float) -> str:
        """Look, so many seconds after the begin."""
        self.kernel.now = 1000.0 + seconds
        return self.watch.look()

    def begun(self) -> Watched:
        """Let the ranks go at 0 s, and have them stand still from 1 s on."""
        self.watch.begin()
        assert self.at(1.0) == "moving"
        return self

    @property
    def unproved(self) -> tuple[str, str]:
        """The code and the words of the only thing that was noted."""
        ((name, values),) = self.notes
        assert name == "world.unproved"
        return values["code"], values["why"]


def test_nobody_is_watched_before_the_ranks_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a look nor an event begins it.

    From the begin on a look is due after a tenth of a second.
    """
    made = Watched(monkeypatch)
    assert made.watch.next_look == math.inf
    made.watch.heard()
    assert made.watch.next_look == math.inf
    assert made.at(5.0) == "moving"
    assert made.kernel.looks == 0
    made.watch.begin()
    assert made.watch.next_look == pytest.approx(1005.1)
    assert made.at(5.09) == "moving"
    assert made.kernel.looks == 0
    made.at(5.101)
    assert made.kernel.looks == 1
    made.kernel.now = 1006.0
    made.watch.begin()
    assert made.at(14.9) == "still"


def test_a_look_is_due_at_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only after it."""
    made = Watched(monkeypatch)
    made.watch.begin()
    made.kernel.now = made.watch.next_look
    made.watch.look()
    assert made.kernel.looks == 1


def test_who_stands_still_for_a_window_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the window's end and not before; with when it began, and what each rank waits in."""
    made = Watched(monkeypatch).begun()
    assert made.at(2.99) == "moving"
    assert made.notes == []
    made.kernel.unreadable = {101}
    made.kernel.spinning = [Spinning(100, 3, 4), Spinning(BELOW, 5, 6)]
    assert made.at(3.0) == "still"
    ((name, values),) = made.notes
    assert name == "world.still"
    assert (values["seconds"], values["after"], values["ranks"]) == (2.0, 1.0, [0, 1])
    assert values["waits"] == {"0": "call-100", "1": "none"}
    assert values["ends"] == {"0": 1.5, "1": None}
    assert values["spinning"] == {"0": {"user": 3, "system": 4}, "below": {"user": 5, "system": 6}}
    assert (values["spins"], values["polls"], values["watched"], values["busy"]) == (
        False,
        [],
        False,
        [],
    )


def test_a_watched_world_stands_for_all_of_within(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it moves after a window, it is said for how long it had stood."""
    made = Watched(monkeypatch, watched=True).begun()
    for second in (3.0, 6.0, 10.99):
        assert made.at(second) == "moving"
    assert made.at(11.0) == "still"

    made = Watched(monkeypatch, watched=True).begun()
    assert made.at(5.0) == "moving"
    made.kernel.moved = "process 100 went on"
    assert made.at(6.0) == "unproved"
    assert made.unproved == (
        "moved-later",
        "it made no progress for 4.0 s, but then was active again: process 100 went on",
    )


def test_what_is_written_down_is_as_long_as_the_judge_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A window that is no whole number of milliseconds is not rounded to less than was needed."""
    made = Watched(monkeypatch, window=4.7735).begun()
    assert made.at(1.0 + 4.77352) == "moving"
    assert made.at(1.0 + 4.7905) == "still"
    ((_, values),) = made.notes
    assert values["seconds"] == 4.79


def test_a_window_longer_than_within_is_waited_for() -> None:
    """A watched world stands for the longer of the two, another one for its window."""
    assert Hang(window=3.0, within=2.0, watched=True).needed == 3.0
    assert Hang(window=3.0, within=10.0, watched=True).needed == 10.0
    assert Hang(window=3.0, within=10.0).needed == 3.0


def test_an_event_after_a_window_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that moved is what is said; an event before any window only begins anew."""
    made = Watched(monkeypatch, watched=True).begun()
    made.watch.heard()
    assert made.watch.next_look == pytest.approx(1001.1)
    assert made.at(2.0) == "moving"
    assert made.at(5.0) == "moving"
    assert made.at(5.5) == "moving"
    made.watch.heard()
    made.busy_with = "a gate is shut"
    assert made.at(6.0) == "unproved"
    assert made.unproved[1].endswith("but then was active again: a rank emitted an event")


def test_a_rank_that_the_harness_keeps_waiting_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it does, the kernel is not asked, and the window begins anew."""
    made = Watched(monkeypatch).begun()
    looks = made.kernel.looks
    made.busy_with = "a gate is shut"
    assert made.at(4.0) == "moving"
    assert (made.kernel.looks, made.kernel.moved) == (looks, "a gate is shut")
    made.busy_with = ""
    assert made.at(5.0) == "moving"
    assert made.at(7.0) == "still"


def test_a_world_that_moves_until_within_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of `within` and not before.

    What moved last is said, or for how long it had stood.
    """
    for seconds, word in ((9.99, "moving"), (10.0, "unproved")):
        made = Watched(monkeypatch).begun()
        made.kernel.since = 1000.0 + seconds - 0.5
        made.kernel.moved = "process 100 went on"
        assert made.at(seconds) == word
    assert made.unproved == (
        "moving",
        "it was still active after 10 s: process 100 went on",
    )

    made = Watched(monkeypatch).begun()
    made.kernel.since = 1009.5
    made.at(10.0)
    assert made.unproved[1].endswith("it had made no progress for only 0.5 s")

    made = Watched(monkeypatch).begun()
    made.kernel.starving = True
    made.at(10.0)
    assert made.unproved[1].endswith("a thread was ready to run, but got almost no processor time")


def test_a_world_that_stood_still_in_time_is_watched_beyond_within(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`within` is when it has to have stood for a window.

    A watched one goes on standing after that.
    """
    made = Watched(monkeypatch, watched=True)
    made.watch.begin()
    made.kernel.since = 1008.0
    made.at(8.0)
    assert made.at(10.0) == "moving"
    made.kernel.starving = True  # for a moment
    assert made.at(11.0) == "moving"
    made.kernel.starving = False
    assert made.at(18.0) == "still"


def test_what_the_kernel_does_not_show_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither threads, nor their doubts, nor those of the processes."""
    made = Watched(monkeypatch).begun()
    made.kernel.error = UnreadableProcess("hidden")
    assert made.at(2.0) == "unproved"
    assert made.unproved == ("unreadable", "hidden")

    def hidden(*_: object, **__: object) -> Any:
        raise UnreadableProcess("hidden too")

    for place, name in (("hang", "doubts"), ("kernel", "doubts")):
        made = Watched(monkeypatch).begun()
        monkeypatch.setattr(hang if place == "hang" else made.kernel, name, hidden)
        assert made.at(3.0) == "unproved"
        assert made.unproved == ("unreadable", "hidden too")


def test_a_doubt_of_a_process_below_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads are not told from each other, so one that sleeps or asks again and again is
    enough.
    """
    made = Watched(monkeypatch).begun()
    made.kernel.doubtful = {(BELOW, 201): "sleeps"}
    assert made.at(3.0) == "unproved"
    assert made.unproved == ("doubtful", "a thread of a process below a rank sleeps")

    for asks, word in ((BELOW, "unproved"), (100, "still")):
        made = Watched(monkeypatch).begun()
        made.kernel.pids = {*PIDS.values(), BELOW}
        made.kernel.asks = {asks}
        assert made.at(3.0) == word
    made = Watched(monkeypatch, of_programs=True).begun()
    made.kernel.pids = {*PIDS.values(), BELOW}
    made.kernel.asks = {BELOW}
    assert made.at(3.0) == "still"


def test_a_doubt_of_a_rank_is_left_to_its_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program has none to ask for, so that it is a doubt at once."""
    made = Watched(monkeypatch).begun()
    made.kernel.doubtful = {(101, 555): "sleeps"}
    assert made.at(3.0) == "still"
    made = Watched(monkeypatch, of_programs=True).begun()
    made.kernel.doubtful = {(101, 555): "sleeps"}
    assert made.at(3.0) == "unproved"
    assert made.unproved == ("doubtful", "a thread of rank 1 sleeps")


def test_a_reason_outside_of_the_threads_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them is told."""
    made = Watched(monkeypatch).begun()
    made.reasons = ["rank 0 has set a timer", "rank 1 too"]
    assert made.at(3.0) == "unproved"
    assert made.unproved == ("doubtful", "rank 0 has set a timer")


def test_who_is_said_to_loop_has_to_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `spins` is stated and no thread was busy, nothing is proved.

    A doubt beside it is told first.
    """
    for busy, reasons, word in (
        (set(), [], "unproved"),
        ({100}, [], "still"),
        ({100}, ["a timer"], "unproved"),
    ):
        made = Watched(monkeypatch, spins=True).begun()
        made.kernel.busy_pids = busy
        made.reasons = list(reasons)
        made.watch._sampled = 20
        assert made.at(3.0) == word
    assert made.unproved == ("doubtful", "a timer")
    made = Watched(monkeypatch, spins=True).begun()
    made.watch._sampled = 20
    made.at(3.0)
    assert made.unproved == (
        "doubtful",
        "must_fail.hang.spins is set, but no thread was busy all the time",
    )
    made = Watched(monkeypatch, spins=True).begun()
    made.kernel.busy_pids = {100, BELOW}
    made.watch._sampled = 20
    made.at(3.0)
    assert made.notes[0][1]["busy"] == [0]
    assert made.notes[0][1]["spins"] is True


def test_who_loops_is_asked_twenty_times_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly over the window, and never where it is not said to loop."""
    made = Watched(monkeypatch, spins=True, window=21.0, within=30.0).begun()
    asked = [tenth / 10 for tenth in range(10, 210) if made.at(1.0 + tenth / 10) == "sample"]
    assert asked == [float(second) for second in range(1, 21)]
    made.kernel.starving = True  # so that it is not proved yet
    assert made.at(22.5) == "moving"
    plain = Watched(monkeypatch, window=21.0, within=30.0).begun()
    assert {plain.at(1.0 + second) for second in range(1, 20)} == {"moving"}


def test_which_ranks_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose main thread is busy and that live."""
    made = Watched(monkeypatch, spins=True)
    made.kernel.busy_pids = {100, BELOW}
    assert made.watch.looping() == [0]
    made.states.exited[0] = 1
    assert made.watch.looping() == []


def test_polls_are_asked_for_where_functions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then main threads may idle in short waits."""
    assert Watched(monkeypatch).begun().kernel.polls == ()
    assert Watched(monkeypatch, polls=("beat",)).begun().kernel.polls == [100, 101]


def test_the_next_look_is_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a tenth of a second, or what is left of the window.

    A costly look rests four times as long.
    """
    made = Watched(monkeypatch)
    made.watch.begin()
    made.at(1.0)
    assert made.watch.next_look == pytest.approx(1001.1)
    made.at(2.95)
    assert made.watch.next_look == pytest.approx(1003.0)
    made.watch.next_look = 0.0
    made.at(2.999)
    assert made.watch.next_look == pytest.approx(1003.009)
    made = Watched(monkeypatch)
    made.watch.begin()
    made.kernel.now = 1000.5
    cpu = iter((1.0, 1.5))
    monkeypatch.setattr(
        hang,
        "time",
        SimpleNamespace(monotonic=lambda: made.kernel.now, thread_time=lambda: next(cpu)),
    )
    assert made.watch.look() == "moving"
    assert made.watch.next_look == pytest.approx(1002.5)


def test_a_rank_that_does_not_answer_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is not asked for its stacks, so that it need not answer."""
    made = Watched(monkeypatch)
    made.watch.unasked(1)
    assert made.unproved == ("unreadable", "rank 1 did not report its position")
    made = Watched(monkeypatch, of_programs=True)
    made.watch.unasked(1)
    assert made.notes == []


FOLDER = Path("/arm")
MAIN, BEAT = 100, 555
STACKS = [
    Stack(1, (Frame("/lib/threading.py", 9, "wait"), Frame("/arm/subject.py", 3, "run"))),
    Stack(
        2,
        (
            Frame("/lib/time.py", 8, "sleep"),
            Frame("/arm/beat.py", 5, "beat"),
            Frame("/arm/beat.py", 7, "loop"),
        ),
    ),
]


def concluded(
    monkeypatch: pytest.MonkeyPatch, made: Watched, stacks: Sequence[Stack] = STACKS
) -> Watched:
    monkeypatch.setattr(hang, "threads_of", lambda _pid, _stacks: {1: MAIN, 2: BEAT})
    made.watch.conclude(0, stacks, folder=FOLDER)
    return made


def doubtful(monkeypatch: pytest.MonkeyPatch, **order: Any) -> Watched:
    made = Watched(monkeypatch, **order).begun()
    made.kernel.doubtful = {(100, BEAT): "sleeps in ppoll", (101, 777): "sleeps"}
    assert made.at(3.0) == "still"
    made.notes.clear()
    return made


def test_a_python_thread_has_to_have_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did not is named by its function, with the remedy.

    One that used the processor moves.
    """
    assert concluded(monkeypatch, Watched(monkeypatch)).notes == []
    made = Watched(monkeypatch)
    made.kernel.standing = {(100, BEAT): "went on"}
    code, why = concluded(monkeypatch, made).unproved
    assert code == "doubtful"
    assert why == f"rank 0: a Python thread in beat went on; {hang.REMEDY}"
    made = Watched(monkeypatch)
    made.kernel.standing = {(100, BEAT): "went on"}
    made.kernel.workers = {(100, BEAT)}
    assert concluded(monkeypatch, made).unproved == (
        "moving",
        "rank 0: a Python thread in beat used the processor",
    )
    made = Watched(monkeypatch)
    made.kernel.workers = {(100, BEAT)}
    assert concluded(monkeypatch, made).notes == []


def test_a_thread_outside_of_the_arm_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its innermost function; one without frames by a question mark."""
    for frames, called in (
        ((Frame("/lib/a.py", 1, "inner"), Frame("/lib/b.py", 2, "outer")), "inner"),
        ((), "?"),
    ):
        made = Watched(monkeypatch)
        made.kernel.standing = {(100, BEAT): "went on"}
        code, why = concluded(monkeypatch, made, [Stack(2, frames)]).unproved
        assert (code, why.split(" went on")[0]) == (
            "doubtful",
            f"rank 0: a Python thread in {called}",
        )


def test_a_function_that_polls_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may have moved, and its doubt is forgotten; those of other threads stay."""
    made = Watched(monkeypatch, polls=("beat",))
    made.kernel.standing = {(100, BEAT): "went on"}
    assert concluded(monkeypatch, made).notes == []
    assert concluded(monkeypatch, doubtful(monkeypatch, polls=("beat",))).notes == []
    code, why = concluded(monkeypatch, doubtful(monkeypatch)).unproved
    assert (code, why) == (
        "doubtful",
        f"rank 0: a Python thread in beat sleeps in ppoll; {hang.REMEDY}",
    )


def test_a_doubt_that_no_stack_explains_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A native thread of this rank; that of another rank is told when that one is asked."""
    made = concluded(monkeypatch, doubtful(monkeypatch), STACKS[:1])
    assert made.unproved == ("doubtful", "a thread of rank 0 sleeps in ppoll")


def test_stacks_whose_threads_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose they are is not known, so nothing is proved."""
    made = Watched(monkeypatch)

    def untold(*_: object) -> dict[int, int]:
        raise UnreadableProcess("no numbers")

    monkeypatch.setattr(hang, "threads_of", untold)
    made.watch.conclude(1, STACKS, folder=FOLDER)
    assert made.unproved == ("unreadable", "rank 1: no numbers")


def test_frames_are_shown_down_to_the_runtime(tmp_path: Path) -> None:
    """Files of the arm by their path in it, others as they are called anywhere, and none of the
    rank's own runtime.
    """
    (tmp_path / "subject.py").touch()
    frames = (
        Frame("/site/torch/x.py", 1, "inner"),
        Frame(str(tmp_path / "subject.py"), 2, "run"),
        Frame(hang.RUNTIME, 3, "main"),
        Frame("/site/more.py", 4, "outer"),
    )
    shown = frames_as_evidence(
        [Stack(1, frames), Stack(2, frames[:1] * 99)],
        folder=tmp_path,
        shorten=lambda line: line.replace("/site", "…"),
    )
    first, second = (one["frames"] for one in shown if isinstance(one, dict))
    assert first == [
        {"file": "…/torch/x.py", "line": 1, "function": "inner", "subject": False},
        {"file": "subject.py", "line": 2, "function": "run", "subject": True},
    ]
    assert isinstance(second, list)
    assert len(second) == hang.SHOWN_FRAMES == 60


def test_an_arm_may_hold_the_runtime_itself() -> None:
    """Where Rankproof is the subject, its own runtime is the arm's code and is shown."""
    folder = Path(hang.RUNTIME).parent
    (shown,) = frames_as_evidence(
        [Stack(1, (Frame(hang.RUNTIME, 3, "main"),))], folder=folder, shorten=str
    )
    assert isinstance(shown, dict)
    assert shown["frames"] == [
        {"file": Path(hang.RUNTIME).name, "line": 3, "function": "main", "subject": True}
    ]


def test_which_threads_hold_a_signal_back() -> None:
    """The one that blocks it, for this signal and no other; of a process that is gone none."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        ready.set()
        done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        assert thread.native_id in holding_back(os.getpid(), signal.SIGUSR2)
        assert os.getpid() not in holding_back(os.getpid(), signal.SIGUSR2)
        assert thread.native_id not in holding_back(os.getpid(), signal.SIGUSR2 - 1)
    finally:
        done.set()
        thread.join()
    assert holding_back(999_999_999, signal.SIGUSR2) == frozenset()
