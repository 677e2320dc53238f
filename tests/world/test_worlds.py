"""Worlds that go well: sizes, starts, environment, gates, lanes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.events import Event
from harness.world.below.preload import HUGE_PAGE
from harness.world.control import rank_environment
from harness.world.control.pool import ServerPool, prepare
from harness.world.control.server_handle import ServerFailed, ServerHandle, ServerKey
from harness.world.control.world import Cancelled, World
from tests.kit.worlds import ENGINES

Live = Callable[..., Any]


@pytest.mark.parametrize(
    "size", [1, 2, 3, *(pytest.param(size, marks=pytest.mark.slow) for size in range(4, 9))]
)
def test_every_size_is_a_whole_group(live: Live, size: int) -> None:
    """Worlds of one to eight ranks meet, and the backend itself reports every rank and the size."""
    lived = live("calm:gather", size=size)
    assert lived.passed
    for rank in range(size):
        met = lived.said(rank, "met")[0].values
        assert met == {
            "ranks": [str(other) for other in range(size)],
            "lengths": list(range(1, size + 1)),
        }
        assert lived.said(rank, "backend.ready")[0].values == {
            "backend": "gloo",
            "rank": rank,
            "size": size,
        }
    pids = {lived.history.served(rank, "rank.started")[0].event.pid for rank in range(size)}
    assert len(pids) == size
    assert os.getpid() not in pids
    assert lived.survivors == 0


@pytest.mark.whole
def test_fresh_ranks_are_the_same_ranks(live: Live) -> None:
    """A new interpreter per rank gives the same group, and the same life."""
    lived = live("calm:gather", warm=False)
    assert lived.passed
    assert [
        event.name for event in lived.capture.events if event.by == "rank" and event.rank == 0
    ] == [
        "rank.begin",
        "backend.ready",
        "subject.loaded",
        "subject.begin",
        "met",
        "subject.end",
        "subject.loaded",
    ]


@pytest.mark.whole
def test_a_fresh_rank_that_hangs_or_dies_is_found(live: Live) -> None:
    """Fresh ranks are stopped, described and reaped as warm ones are."""
    # Without a group: ranks that import torch first may take longer than any deadline on a busy
    # machine.
    apart: dict[str, Any] = {"warm": False, "backend": "none"}
    raising = live("raising:bare", **apart)
    assert raising.error(1)["source"] == "assert tokenizer"
    assert live("leaving:segfault", **apart).ended(0) == "SIGSEGV"
    deadline = 1.0 + 10 * raising.seconds
    assert b"waiting_for_nobody" in live("stuck:deaf", deadline=deadline, **apart).capture.stacks[1]


def test_seeds_are_the_ranks_own_and_repeat(live: Live) -> None:
    """Ranks draw different numbers; the same seeds draw the same again."""
    once, again = live("calm:numbers"), live("calm:numbers")
    other = live("calm:numbers", seeds=[7, 2**64 - 1])
    drawn = [
        [lived.said(rank, "drawn")[0].values["numbers"] for rank in (0, 1)]
        for lived in (once, again, other)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]


def test_a_rank_sees_the_allow_list_only(live: Live) -> None:
    """A secret of the harness is not in a rank's environment, the scenario's variables are.

    Its folder is its own.
    """
    assert "SECRET_TOKEN" in os.environ
    for _ in range(2):
        lived = live(
            "calm:surroundings", arguments={"names": ["SECRET_TOKEN", "MINE"]}, env={"MINE": "x"}
        )
        assert lived.passed
        found = [lived.said(rank, "surroundings")[0].values for rank in (0, 1)]
        assert found[0]["variables"] == {"SECRET_TOKEN": None, "MINE": "x"}
        assert found[0]["empty"]
        assert found[0]["folder"] != found[1]["folder"]


@pytest.mark.whole
def test_a_variable_read_at_import_belongs_to_the_server(live: Live, pool: ServerPool) -> None:
    """torch's threads follow OMP_NUM_THREADS, because such a variable gets a server of its own."""
    env = {"OMP_NUM_THREADS": "2"}  # alone: our default for MKL must not undo it
    assert live("calm:surroundings").said(0, "surroundings")[0].values["threads"] == 1
    server, other = pool.take(warm=False, env=env), pool.take(warm=False, env={})
    pool.give(server)
    pool.give(other)
    assert server is not other
    assert server is pool.take(warm=False, env=env | {"MINE": "x"})
    pool.give(server)
    lived = live("calm:surroundings", warm=False, env=env, backend="none", size=1)
    assert lived.said(0, "surroundings")[0].values["threads"] == 2
    pool.discard(server)


def test_a_rank_holds_no_descriptor_of_another(live: Live) -> None:
    """Two ranks share nothing but what the server itself had open: a lost keeper or rank is always
    noticed.
    """
    lived = live("calm:descriptors", size=3)
    pipes = [
        {
            target
            for target in lived.said(rank, "descriptors")[0].values["open"].values()
            if target.startswith("pipe:")
        }
        for rank in range(3)
    ]
    assert not pipes[0] & pipes[1]
    assert not pipes[1] & pipes[2]


def test_a_gate_holds_its_rank_until_it_is_answered(live: Live) -> None:
    """Nothing of a gated rank happens between its event and the answer."""
    opened: dict[tuple[int, int], int] = {}

    def answer(world: World, event: Any) -> None:
        # Both ranks may stand at their gates now; each waits for its own answer.
        assert world.pids[event.rank]
        opened[event.rank, event.values["turn"]] = time.monotonic_ns()

    lived = live("calm:gates", size=2, arguments={"rounds": 3}, gates=("door",), on_gate=answer)
    assert lived.passed
    assert len(opened) == 6
    for (rank, turn), moment in opened.items():
        assert lived.said(rank, "door")[turn].ns < moment < lived.said(rank, "through")[turn].ns
    assert len(lived.history.noted("gate.opened", 0)) == 3


def test_a_paused_rank_at_a_gate_moves_on_when_it_is_resumed(live: Live) -> None:
    """A rank stopped at its gate does nothing until it is continued, although the gate is open."""
    resumed: list[int] = []

    def pause(world: World, event: Any) -> None:
        if event.rank == 1:
            world.signal(signal.SIGSTOP, rank=1)

            def resume() -> None:
                resumed.append(time.monotonic_ns())
                world.signal(signal.SIGCONT, rank=1)

            threading.Timer(0.3, resume).start()

    lived = live("calm:gates", gates=("door",), on_gate=pause)
    assert lived.passed
    assert lived.said(1, "through")[0].ns > resumed[0]
    assert lived.said(0, "through")[0].ns < resumed[0]


def test_a_rank_that_dies_at_its_gate_holds_nobody(live: Live) -> None:
    """The answer to a dead rank is nobody's, and the world ends as after any failure."""

    def wait_for_its_end(world: World, event: Any) -> None:
        if event.rank == 1:
            # Until the keeper has reaped it, its pid is its own.
            descriptor = os.pidfd_open(world.pids[1])
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)

    lived = live("calm:gates", gates=("door",), on_gate=wait_for_its_end)
    assert lived.ended(1) == "SIGKILL"
    assert lived.ended(0) == 0
    assert not lived.void


def test_an_error_in_a_fault_ends_the_world(live: Live) -> None:
    """When what strikes at a gate raises, the ranks are gone before the error is heard."""

    def strike(world: World, event: Any) -> None:
        raise LookupError("a fault's own bug")

    with pytest.raises(LookupError):
        live("calm:gates", gates=("door",), on_gate=strike)


def test_an_interrupted_world_leaves_nobody(live: Live) -> None:
    """Ctrl-C ends a world of stopped and waiting ranks within a second."""
    read, write = os.pipe()

    def interrupt(world: World, event: Any) -> None:
        os.write(write, b"x")

    begin = time.monotonic()
    with pytest.raises(Cancelled):
        live("stuck:stop_itself", gates=("subject.begin",), on_gate=interrupt, cancel=read)
    took = time.monotonic() - begin
    assert took < 20 * max(live("calm:gather").seconds, 0.1)
    os.close(read)
    os.close(write)


def test_a_full_disk_or_missing_folder_is_the_harness_error(
    order: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no scratch folder can be made, the trial is void and says why."""
    monkeypatch.setattr("tempfile.tempdir", "/gone")  # short: else the room is made in /tmp
    with ServerPool() as pool:
        capture = World(order("calm:alone"), pool).run()
    error = next(event for event in capture.events if event.name == "harness.error")
    assert "could not be started" in error.values["message"]
    assert str(Path.home()) not in error.values["message"]


def test_a_missing_interpreter_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, ground: Path
) -> None:
    """A server that cannot be started leaves no folder and no descriptor."""
    monkeypatch.setattr(
        "harness.world.control.server_handle.interpreter", lambda _python: ["/nowhere/python"]
    )
    before, folders = len(list(Path("/proc/self/fd").iterdir())), set(ground.iterdir())
    with pytest.raises(ServerFailed, match="could not be started"):
        ServerHandle(ServerKey(warm=True, environment=()))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert set(ground.iterdir()) == folders


def test_a_server_that_ends_in_its_start_says_its_last_words(
    monkeypatch: pytest.MonkeyPatch, ground: Path
) -> None:
    """What a server printed before it died is in the error; the next request starts another."""
    monkeypatch.setattr(
        "harness.world.control.server_handle.BOOT", "raise SystemExit('torch is broken here')"
    )
    with ServerPool() as pool:
        for _ in range(2):
            with pytest.raises(ServerFailed, match="torch is broken here"):
                pool.take(warm=True, env={}, preload=ENGINES)
        assert pool.pids == ()


def test_a_server_that_ended_before_its_folder_was_there_says_its_last_words(
    monkeypatch: pytest.MonkeyPatch, ground: Path
) -> None:
    """Nobody reads what it is sent then, and what it printed is in the error all the same."""
    monkeypatch.setattr(
        "harness.world.control.server_handle.BOOT", "raise SystemExit('torch is broken here')"
    )
    before = {child.pid for child in psutil.Process().children()}
    link = rank_environment.link_driver

    def link_when_it_has_ended(folder: Path, libraries: Mapping[str, Path]) -> None:
        link(folder, libraries)
        (pid,) = {child.pid for child in psutil.Process().children()} - before
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(rank_environment, "link_driver", link_when_it_has_ended)
    with ServerPool() as pool, pytest.raises(ServerFailed, match="torch is broken here"):
        pool.take(warm=True, env={}, preload=ENGINES)


def test_a_closed_pool_starts_nothing(order: Callable[..., Any], ground: Path) -> None:
    """A world asked of a closed pool is void, and no server comes back."""
    with ServerPool() as pool:
        pass
    names = [event.name for event in World(order("calm:alone"), pool).run().events]
    assert names == ["world.begin", "harness.error", "world.end"]


@pytest.mark.slow
def test_closing_the_pool_ends_a_running_world(order: Callable[..., Any], ground: Path) -> None:
    """A lane whose server is closed under it returns at once, void."""
    captures = []
    with ServerPool() as pool:
        begun = threading.Event()
        world = World(
            order("stuck:deaf", warm=False, backend="none", gates=("subject.begin",)),
            pool,
            on_gate=lambda *_: begun.set(),
        )
        lane = threading.Thread(target=lambda: captures.append(world.run()))
        lane.start()
        assert begun.wait(30)
    lane.join(10)
    assert "harness.error" in {event.name for event in captures[0].events}


@pytest.mark.whole
def test_worlds_in_a_row_and_in_two_lanes(
    live: Live, pool: ServerPool, order: Callable[..., Any], often: Callable[..., range]
) -> None:
    """Worlds of four in a row, and half as many in two threads at once: not one flake."""
    prepare(pool, 2, warm=True, env={}, preload=ENGINES)
    seconds = [live("calm:gather", size=4) for _ in often(8, soak=200)]
    assert all(lived.passed for lived in seconds)
    found: list[list[str]] = []

    def lane() -> None:
        for _ in often(2, soak=50):
            capture = World(order("calm:gather", size=4), pool).run()
            found.append([event.name for event in capture.events])

    lanes = [threading.Thread(target=lane) for _ in range(2)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    assert len(found) == len(seconds) // 2
    assert all(names.count("met") == 4 and "harness.error" not in names for names in found)
    walls = sorted(lived.seconds for lived in seconds)
    print(
        f"\nworlds of four: median {walls[len(walls) // 2] * 1000:.0f} ms, max"
        f" {walls[-1] * 1000:.0f} ms"
    )


def all_of(lived: Any, name: str) -> list[Event]:
    """Events of that name, whoever emitted them."""
    return [event for event in lived.capture.events if event.name == name]


@pytest.mark.slow
def test_no_rank_begins_before_all_have_joined(live: Live, often: Callable[..., range]) -> None:
    """A rank that fails at once cannot break the group of one that still connects: they begin at a
    common line.
    """
    for _ in often(5, soak=50):
        lived = live("calm:rank_0_alone", size=4)
        joined = [event.ns for event in all_of(lived, "backend.ready")]
        begun = [event.ns for event in all_of(lived, "subject.begin")]
        assert len(joined) == len(begun) == 4
        assert max(joined) <= min(begun)


def test_the_line_opens_when_a_rank_cannot_join(live: Live) -> None:
    """Where a rank ends before it has joined, the others are not kept waiting for it."""

    def kill_rank_2(world: World, event: Event) -> None:
        if event.rank == 2:
            world.signal(signal.SIGKILL, rank=2)

    lived = live(
        "calm:gather", size=3, gates=("rank.begin",), on_gate=kill_rank_2, after_failure=0.5
    )
    assert not all_of(lived, "world.deadline")
    assert lived.ended(2) == "SIGKILL"


def test_a_subject_cannot_speak_for_the_runtime(live: Live) -> None:
    """Names that the harness emits itself are refused, and saying them all the same does not hang
    the rank.
    """
    lived = live("calm:joins_twice")
    assert len(all_of(lived, "refused")) == 2
    assert len(all_of(lived, "subject.end")) == 2


def test_what_a_warm_server_holds_lies_on_huge_pages(pool: ServerPool) -> None:
    """Where Linux moves memory there on demand, most of it: a fork copies one entry for each of
    them.
    """
    server = pool.take(warm=True, env={}, preload=ENGINES)
    rollup = Path(f"/proc/{server.pid}/smaps_rollup").read_text()
    pool.give(server)
    size = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1) or not HUGE_PAGE.exists():
        pytest.skip("this kernel does not")
    assert size["AnonHugePages:"] > size["Anonymous:"] / 2
