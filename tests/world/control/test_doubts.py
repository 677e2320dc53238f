"""What may end a stillness from outside or by itself: seen in real processes, and in whole
worlds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.stats.hang import FEW
from harness.world.control.doubts import doubts
from harness.world.control.hang import Hang
from harness.world.control.pool import ServerPool, prepare
from harness.world.control.stillness import Stillness
from tests.kit.worlds import Lived
from tests.world.subjects import waiting

SUBJECTS = Path(__file__).parents[1] / "subjects"
LANES = 4


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Two servers, a named pipe and two locks that this process has: ways of waiting, to what they
    wait for.
    """
    paths = {name: tmp_path / name for name in ("server", "pipe", "flock", "record")}
    os.mkfifo(paths["pipe"])
    with (
        socket.create_server(("127.0.0.1", 0)) as served,
        socket.socket(socket.AF_UNIX) as unix,
        paths["flock"].open("w") as flock,
        paths["record"].open("w") as record,
    ):
        unix.bind(str(paths["server"]))
        unix.listen()
        fcntl.flock(flock, fcntl.LOCK_EX)
        fcntl.lockf(record, fcntl.LOCK_EX)
        pipe = os.open(paths["pipe"], os.O_RDWR)
        yield {
            "server_outside": str(served.getsockname()[1]),
            "unix_server_outside": str(paths["server"]),
            "pipe_outside": str(paths["pipe"]),
            "file_lock": str(paths["flock"]),
            "record_lock": str(paths["record"]),
        }
        os.close(pipe)


SEEN = {
    "timerfd": "timerfd",
    "timerfd_in_epoll": "timerfd",
    "timerfd_in_epoll_in_epoll": "timerfd",
    "file_lock": "waits for a file lock",
    "record_lock": "waits for a file lock",
    "server_outside": "outside the world",
    "unix_server_outside": "outside the world",
    "pipe_outside": "named pipe",
    "alarm": "SIGALRM",
    "interval_timer": "SIG",
    "posix_timer": "timer_create",
    "signal_descriptor": "signalfd",
    "watches_files": "inotify",
}
STANDS = (
    "silent_pipe",
    "unset_event",
    "own_lock",
    "own_connection",
    "unaccepted",
    "loop_without_end",
)


@pytest.mark.whole
@pytest.mark.parametrize("way", [*SEEN, *STANDS])
def test_what_the_kernel_shows_of_a_way_to_go_on_is_named(
    way: str, outside: dict[str, str], tmp_path: Path
) -> None:
    """A timer, an alarm, a lock and a peer outside are told of a real process.

    One that hangs has nothing to tell.
    """
    call = (
        f"waiting.SLOW[{way!r}]({outside.get(way, '')!r})"
        if way in SEEN
        else f"waiting.HUNG[{way!r}](None)"
    )
    code = f"import sys; sys.path.insert(0, {str(SUBJECTS)!r}); import waiting; {call}"
    # Below a shell of its own, because who hangs on the same keeper is looked at too.
    shell = ["sh", "-c", 'echo $$; "$0" -c "$1"; :', sys.executable, code]
    # What it leaves in its temporary folder is not left among those of the worlds.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(shell, stdout=subprocess.PIPE, env=environment) as keeper:
        assert keeper.stdout is not None
        parent = int(keeper.stdout.readline())
        children = Path(f"/proc/{parent}/task/{parent}/children")
        found: list[str] = []
        pid, end = 0, time.monotonic() + 20.0
        try:
            still = Stillness(begun=time.monotonic(), deadline=time.monotonic() + 60.0)
            while time.monotonic() < end:
                pid = pid or int((children.read_text().split() or ["0"])[0])
                if pid:
                    still.look([pid])
                if pid and still.is_still(0.4):
                    found = list(doubts(still.family(), left=60.0, served=None, name=str))
                    break
            assert pid
            assert still.is_still(0.4), still.moved
            assert bool(found) is (way in SEEN), found
            assert way not in SEEN or any(SEEN[way] in one for one in found), found
        finally:
            if pid:
                os.kill(pid, 9)  # its shell ends with it


def test_a_peer_that_serves_the_ranks_for_the_harness_is_no_stranger(
    outside: dict[str, str],
) -> None:
    """A connection to the process that says itself when it keeps ranks waiting is no doubt.

    To any other it is one.
    """
    with socket.create_server(("127.0.0.1", 0)) as served:
        code = (
            f"import socket; s = socket.create_connection({served.getsockname()!r});"
            " print(flush=True); s.recv(1)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as asks:
            assert asks.stdout is not None
            asks.stdout.readline()
            theirs, _ = served.accept()
            with theirs:
                assert list(doubts([asks.pid], left=9.0, served=os.getpid(), name=str)) == []
                (told,) = doubts([asks.pid], left=9.0, served=None, name=str)
                assert "outside the world" in told


@pytest.mark.parametrize("left", [5.0, 60.0])
def test_a_timer_counts_that_fires_before_the_world_is_stopped(left: float) -> None:
    """A timerfd is a doubt for as long as it fires before the deadline, and not afterwards."""
    descriptor = waiting.timer_descriptor()
    try:
        found = list(doubts([os.getpid()], left=left, served=None, name=str))
        assert any("timerfd" in one for one in found) is (left > waiting.LONG)
    finally:
        os.close(descriptor)


HANG = Hang(window=0.8, within=3.0)
# Of what has to be proved: a busy machine takes seconds to start a rank.
PATIENT = Hang(window=0.8, within=12.0)
POLLING = {
    "beside_a_heartbeat": "heartbeat",
    "beside_a_slow_heartbeat": "slow_heartbeat",
    "main_polls": "join_politely",
}


def lived(
    live: Callable[..., Lived],
    pool: ServerPool,
    orders: dict[str, dict[str, Any]],
    *,
    entry: str,
    hang: Hang = HANG,
    lanes: int = LANES,
) -> dict[str, Lived]:
    """Worlds of one entry, so many at a time, by name."""
    prepare(pool, lanes, warm=False, env={})
    with ThreadPoolExecutor(lanes) as threads:
        running = {
            name: threads.submit(
                live,
                entry,
                backend="none",
                warm=False,
                deadline=60.0,
                **{"hang": hang, "arguments": {"way": name}, **rest},
            )
            for name, rest in orders.items()
        }
    return {name: future.result() for name, future in running.items()}


def why(found: Lived) -> str:
    """Why no hang was proved of a world; empty where one was."""
    unproved = found.history.noted("world.unproved")
    if unproved:
        return str(unproved[0].event.values["why"])
    return "" if found.history.noted("world.still") else "it came to its end"


@pytest.mark.slow
@pytest.mark.whole
def test_no_way_of_being_slow_is_proved_hung(
    live: Callable[..., Lived], pool: ServerPool, outside: dict[str, str]
) -> None:
    """Forty ways of going on after 18 s, with nothing that moves before: each is seen within a
    window of 0.8 s.
    """
    ways = [way for way in waiting.SLOW if shutil.which("cc") or not way.startswith("native")]
    orders = {way: {"arguments": {"way": way, "peer": outside.get(way, "")}} for way in ways}
    proved = [
        way
        for way, found in lived(live, pool, orders, entry="waiting:slow").items()
        if not why(found)
    ]
    assert proved == []


@pytest.mark.long
def test_real_hangs_are_proved_beside_threads_that_are_said_to_poll(
    live: Callable[..., Lived], pool: ServerPool
) -> None:
    """Locks, queues, pipes, joins and children that wait for each other.

    A heartbeat counts once it is named.
    """
    named = {way: {"hang": replace(PATIENT, polls=(POLLING[way],))} for way in POLLING}
    orders: dict[str, dict[str, Any]] = {way: named.get(way, {}) for way in waiting.HUNG}
    found = lived(live, pool, orders, entry="waiting:hung", hang=PATIENT)
    assert {way: why(one) for way, one in found.items() if why(one)} == {}
    unnamed = lived(live, pool, {way: {} for way in POLLING}, entry="waiting:hung", hang=PATIENT)
    assert all(why(one) for one in unnamed.values())
    assert "must_fail.hang.polls" in why(unnamed["beside_a_heartbeat"])


@pytest.mark.long
def test_a_loop_is_told_from_a_sleep_and_from_polling(
    live: Callable[..., Lived], pool: ServerPool
) -> None:
    """Whoever is said to spin has to be busy all the time, and is asked where it is again and
    again.
    """
    # A rank that is still starting is busy, too: on a slow machine for more than a second without a
    # word.
    order = Hang(window=2.5, within=8.0, spins=True, watched=True)
    # One at a time: fresh ranks that spin keep those of other worlds from starting in time.
    found = lived(
        live, pool, {way: {} for way in waiting.LOOPS}, entry="waiting:loops", hang=order, lanes=1
    )
    reasons = {way: why(one) for way, one in found.items()}
    assert {way for way in reasons if not reasons[way]} == {
        "flag",
        "flag_and_lock",
        "phases",
    }, reasons
    for way in ("flag", "phases"):
        assert len(found[way].history.noted("rank.stack", 0)) >= 2 * FEW
        assert found[way].history.noted("world.still")[0].event.values["busy"] == [0, 1]


@pytest.mark.whole
def test_a_watched_world_stands_still_for_all_of_within(
    live: Callable[..., Lived], pool: ServerPool
) -> None:
    """It is proved only once it made no progress for all of `within`, which its proof says."""
    order = Hang(window=0.5, within=1.5, watched=True)
    (found,) = lived(live, pool, {"unset_event": {}}, entry="waiting:hung", hang=order).values()
    values: Any = found.history.noted("world.still")[0].event.values
    assert values["seconds"] >= 1.5
    assert values["watched"] is True


@pytest.mark.whole
@pytest.mark.parametrize("way", ["accepts", "tells"])
def test_a_watched_world_that_moves_after_a_window_is_not_proved(
    live: Callable[..., Lived], pool: ServerPool, tmp_path: Path, way: str
) -> None:
    """What nothing shows beforehand is seen when it happens: somebody connects to a rank, which
    goes on or speaks.
    """
    door = tmp_path / "door"
    order = Hang(window=0.5, within=30.0, watched=True)
    arguments = {"way": way, "peer": str(door)}
    with ThreadPoolExecutor(1) as threads:
        orders = {way: {"arguments": arguments}}
        running = threads.submit(lived, live, pool, orders, entry="waiting:slow", hang=order)
        still = Stillness(begun=time.monotonic(), deadline=time.monotonic() + 60.0)
        named, end = tmp_path / "door.pid", time.monotonic() + 30.0
        while not still.is_still(1.0):
            assert time.monotonic() < end
            if named.exists() and (pid := named.read_text()):
                still.look([int(pid)])
        with socket.socket(socket.AF_UNIX) as comes:
            comes.connect(str(door))
            found = running.result()[way]
    assert why(found).startswith("it made no progress for ")
    assert "but then was active again:" in why(found)
