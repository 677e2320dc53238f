"""What the kernel says of threads: what it cannot show is never taken for stillness."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.world.control import stillness, waits
from harness.world.control.capture import parse_stacks, threads_of
from harness.world.control.stillness import Stillness
from harness.world.control.waits import UnreadableProcess, waits_in


def watch() -> Stillness:
    now = time.monotonic()
    return Stillness(begun=now, deadline=now + 60.0)


def test_without_proc_nothing_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc shows no threads, that is said, and nobody counts as still."""
    monkeypatch.setattr(stillness, "PROC", tmp_path)
    with pytest.raises(UnreadableProcess, match="does not show"):
        watch().look([os.getpid()])


def test_a_process_that_is_gone_does_not_stand_still() -> None:
    """A rank that ended between two looks moved, however little is left to look at."""
    child = subprocess.Popen(["sleep", "0"])
    child.wait()
    found = watch()
    found.look([child.pid])
    found.look([child.pid])
    assert "does not exist" in found.moved


Family = Callable[..., list[int]]
KEEPER = (
    "import os, subprocess, sys; "
    "children = [subprocess.Popen([sys.executable, '-c', code]) for code in sys.argv[1:]]; "
    "print(*[child.pid for child in children], flush=True); os.wait()"
)


def kill(pid: int) -> None:
    """End a process, which may have ended with its child."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def family() -> Iterator[Family]:
    """Start processes below a keeper of their own, one for each code, and return their pids in
    order.
    """
    with contextlib.ExitStack() as started:

        def start(*codes: str) -> list[int]:
            child = subprocess.Popen([sys.executable, "-c", KEEPER, *codes], stdout=subprocess.PIPE)
            started.enter_context(child)
            assert child.stdout is not None
            pids = [int(pid) for pid in child.stdout.readline().split()]
            for pid in (child.pid, *pids):
                started.callback(kill, pid)
            return pids

        yield start


WAITS, COMPUTES = "import signal; signal.pause()", "while True: pass"


def test_a_look_ends_at_the_first_rank_that_moves(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ranks compute, the rank that moved is asked first and the others not at all, nor any
    other process.
    """
    pids = family(COMPUTES, *[WAITS] * 6)
    asked: list[int] = []
    read = stillness.read_thread
    monkeypatch.setattr(
        stillness, "read_thread", lambda pid, tid: asked.append(pid) or read(pid, tid)
    )
    monkeypatch.setattr(
        stillness, "processes", lambda: pytest.fail("every process of the machine was asked")
    )
    found = watch()
    while f"process {pids[0]} " not in found.moved:  # the others come to their waits first
        found.look(pids[::-1])
    asked.clear()
    found.look(pids[::-1])
    assert asked == [pids[0]]
    assert found.since is None


def test_a_look_keeps_to_its_time(family: Family) -> None:
    """A look that takes longer than it may says so, and proves no stillness.

    With time, the same ranks stand still.
    """
    pids = family(*[WAITS] * 3)
    found, end = watch(), time.monotonic() + 20.0
    while not found.is_still(0.3):
        assert time.monotonic() < end, found.moved
        found.look(pids)
    found.look(pids, until=time.monotonic() - 1.0)
    assert "took longer than the time that was left" in found.moved
    assert not found.is_still(0.0)


@pytest.mark.parametrize("lists", [True, False])
def test_who_is_below_the_keeper_of_a_rank_is_looked_at(
    family: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lists: bool
) -> None:
    """Ranks, their siblings and what is below these.

    Also where the kernel lists no children of a process.
    """
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}])"
    pids = family(WAITS, WAITS, below)
    if not lists:
        monkeypatch.setattr(stillness, "_children", stillness.children_of_all)
    found, end = watch(), time.monotonic() + 20.0
    try:
        while len(found.family()) < 4:
            assert time.monotonic() < end, found.moved
            found.look(pids[:1])
        assert set(pids) < found.family()
    finally:
        for pid in found.family().difference(pids):
            os.kill(pid, signal.SIGKILL)  # its parent is killed, which does not end it


@pytest.mark.slow
def test_who_computes_without_a_processor_does_not_stand_still() -> None:
    """A thread that hardly gets to run uses as little as one that idles, but it is ready: nothing
    is proved.
    """
    pin = f"import os, threading; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})"
    spin = f"{pin}; print(flush=True)\nwhile True: pass"
    work = "    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n    while True: pass"
    computes = (
        f"{pin}\ndef work():\n    print(os.getpid(),"
        f" flush=True)\n{work}\nthreading.Thread(target=work).start()"
    )
    # Below a shell of its own, because who hangs on the same keeper is looked at too.
    shell = ["sh", "-c", '"$0" -c "$1"; :', sys.executable, computes]
    with (
        subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as busy,
        subprocess.Popen(shell, stdout=subprocess.PIPE) as keeper,
    ):
        assert busy.stdout is not None
        assert keeper.stdout is not None
        pid = None
        try:
            busy.stdout.readline()
            pid = int(keeper.stdout.readline())
            found, end = watch(), time.monotonic() + 20.0
            while not (found.window() >= 0.3 and found.starving):
                assert time.monotonic() < end, found.moved
                found.look([pid])
                assert not found.is_still(0.3)
        finally:
            busy.kill()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)  # its shell ends with it


@pytest.mark.parametrize(
    ("code", "call", "ends"),
    [
        ("import signal; signal.pause()", "pause", False),
        ("import os; os.read(os.pipe()[0], 1)", "read", False),
        ("import select; select.select([], [], [])", "", False),
        ("import threading; threading.Event().wait()", "futex", False),
        ("import threading; threading.Event().wait(30)", "futex", True),
        ("import time; time.sleep(30)", "clock_nanosleep", True),
        ("import select; select.select([], [], [], 30)", "", True),
        ("import select; select.poll().poll(30000)", "", True),
        ("import asyncio; asyncio.run(asyncio.sleep(30))", "", True),
    ],
)
def test_a_wait_is_told_from_a_sleep(code: str, call: str, ends: bool) -> None:
    """The kernel's line of a real process tells the call, and whether it ends by itself within the
    minute.
    """
    read, write = os.pipe()
    line = f"import os; os.write({write}, b'x'); {code}"
    child = subprocess.Popen(
        [sys.executable, "-c", line], pass_fds=[write], stdin=subprocess.DEVNULL
    )
    try:
        os.read(read, 1)
        end = time.monotonic() + 20.0
        found = None
        while time.monotonic() < end:  # until it has come to its wait
            now = time.monotonic()
            found = waits_in(child.pid, Path(f"/proc/{child.pid}/syscall").read_text(), begun=now)
            # On its way there it reads the modules that it imports.
            there = found is not None and found.call != "write" and call in ("", found.call)
            if found is not None and there and found.outlasts(now + 60.0) is not ends:
                break
            os.sched_yield()
        assert found is not None
        assert found.outlasts(now + 60.0) is not ends
        assert not call or found.call == call
        assert ends or found.ends is None
    finally:
        child.kill()
        child.wait()
        os.close(read)
        os.close(write)


def test_unknown_machines_are_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of system calls differ between machines: of one that is not listed nothing is
    said.
    """
    monkeypatch.setattr(waits, "NUMBERS", {})
    with pytest.raises(UnreadableProcess, match="system calls"):
        waits_in(os.getpid(), "0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0", begun=0.0)


def test_stacks_are_matched_with_the_kernels_threads(tmp_path: Path) -> None:
    """The handle that faulthandler prints leads to the number that /proc has, for the main thread
    and others.
    """
    import faulthandler

    done, ready = threading.Event(), threading.Event()

    def stand() -> None:
        ready.set()
        done.wait()

    worker = threading.Thread(target=stand)
    worker.start()
    ready.wait()
    try:
        with (tmp_path / "stacks").open("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = parse_stacks(file.read())
        found = threads_of(os.getpid(), stacks)
    finally:
        done.set()
        worker.join()
    by_function = {
        frame.function: found[stack.handle]
        for stack in stacks
        for frame in stack.frames
        if frame.function == "stand"
    }
    assert by_function == {"stand": worker.native_id}
    assert found[threading.main_thread().ident or 0] == os.getpid()
