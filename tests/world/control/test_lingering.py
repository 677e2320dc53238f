"""Slow worlds that a table of cases would have missed, and deadlocks that look like them."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.world.control.doubts import doubts
from harness.world.control.hang import Hang
from harness.world.control.pool import ServerPool
from harness.world.control.stillness import Stillness
from tests.kit.worlds import Lived
from tests.world.control.test_doubts import lived, why
from tests.world.subjects import lingering

OFD_SETLK = 37


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Servers, a lock and a process that are none of the world's: ways of waiting, to what they
    wait for.
    """
    with ExitStack() as stack:
        many = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
        many.bind(("127.0.0.1", 0))
        many.listen()
        packets = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        packets.bind(("127.0.0.1", 0))
        letters = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        letters.bind(str(tmp_path / "letters"))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(f"\0{tmp_path.name}-{os.getpid()}")
        named.listen()
        locked = stack.enter_context((tmp_path / "locked").open("w"))
        fcntl.fcntl(locked, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        process = subprocess.Popen(["sleep", "600"])
        yield {
            "datagram_answer": str(packets.getsockname()[1]),
            "connected_datagram": str(packets.getsockname()[1]),
            "unix_datagram": str(tmp_path / "letters"),
            "abstract_server": f"{tmp_path.name}-{os.getpid()}",
            "many_paths": str(many.getsockname()[1]),
            "open_file_lock": str(tmp_path / "locked"),
            "outside_ends": str(process.pid),
        }
        process.kill()
        process.wait()


ENDS, ASLEEP, STRANGE = "which ends by itself", "repeatedly", "outside the world"
WORDS = {
    "native_short_sleeps": "repeatedly sleeps in clock_nanosleep",
    "native_steps_of_sleep": ASLEEP,
    "native_polls_of_nothing": "repeatedly sleeps in poll",
    "native_selects_of_nothing": ASLEEP,
    "native_long_poll": "waits in poll with a timeout of 18.0 s",
    "later": ENDS,
    "naps": ENDS,
    "naps_in_a_thread": "a Python thread in naps sleeps",
    "pool_of_processes": ENDS,
    "grandchild": ENDS,
    "spawned_timer": ENDS,
    "leaderless_child": "a process below a rank waits in clock_nanosleep",
    "stopped_child": ENDS,
    "stopped_by_itself": "is in state T",
    "timed_semaphore": "is in semtimedop",
    "timed_message": "is in mq_timedreceive",
    "timed_signal": "is in rt_sigtimedwait",
    "timed_futex": ENDS,
    "ring_timeout": "is in io_uring_enter",
    "ring_in_epoll": "io_uring requests that are not complete",
    "ring_in_poll": "io_uring requests that are not complete",
    "events_of_the_processor": "anon_inode:[perf_event]",
    "datagram_answer": "a UDP socket",
    "connected_datagram": STRANGE,
    "unix_datagram": "a named UNIX socket",
    "abstract_server": STRANGE,
    "many_paths": STRANGE,
    "changed_routes": "a socket of family 16",
    "slow_connection": "is connecting to",
    "open_file_lock": "waits for a file lock",
    "outside_ends": "the exit of a process outside the world",
    "hundred_threads": "which threads",
    "sleeps_for_a_day": "repeatedly sleeps in clock_nanosleep",
    "sleeps_by_the_older_call": "repeatedly sleeps in nanosleep",
}
# Who wakes often is seen awake where it waits for a processor, and that is a doubt as good.
OR_ELSE = dict.fromkeys(("naps", "naps_in_a_thread"), ("is in state R",))
# Long enough for a busy machine to start a rank that is seen to wait.
PATIENT = Hang(window=0.8, within=8.0)


def test_each_way_has_its_words() -> None:
    """No way of being slow is left without the doubt that has to name it."""
    assert lingering.SLOW.keys() == WORDS.keys()


@pytest.mark.long
def test_no_other_way_of_being_slow_is_proved_hung(
    live: Callable[..., Lived], pool: ServerPool, outside: dict[str, str]
) -> None:
    """Each goes on after 18 s, with nothing that moves before: it is seen within a window of 0.8 s,
    and named.
    """
    ways = [
        way
        for way in lingering.SLOW
        if shutil.which("cc") or not way.startswith(("native", "leaderless"))
    ]
    orders = {way: {"arguments": {"way": way, "peer": outside.get(way, "")}} for way in ways}
    found = lived(live, pool, orders, entry="lingering:slow", hang=PATIENT)
    missed = {
        way: (why(found[way]), found[way].error(1))
        for way in ways
        if not any(words in why(found[way]) for words in (WORDS[way], *OR_ELSE.get(way, ())))
    }
    assert missed == {}


@pytest.mark.long
def test_more_real_hangs_are_proved(live: Callable[..., Lived], pool: ServerPool) -> None:
    """Deadlocks beside a listener of logs and idle pools, of tasks, of a child, and beside sockets
    that nobody uses.
    """
    found = lived(
        live, pool, {way: {} for way in lingering.HUNG}, entry="lingering:hung", hang=PATIENT
    )
    assert {way: why(one) for way, one in found.items() if why(one)} == {}


@pytest.mark.long
def test_a_group_with_a_timeout_is_told_from_one_that_hangs(live: Callable[..., Lived]) -> None:
    """A timeout of gloo, its barrier or its store that ends before the deadline is sleep.

    Without one it hangs.
    """
    found = {
        way: live(
            f"lingering:{way}", deadline=60.0, hang=PATIENT, size=4 if way == "two_of_four" else 2
        )
        for way in (*TIMED, "other_collectives", "two_of_four", "asynchronous_work")
    }
    asleep = {way: why(found[way]) for way in TIMED}
    named = (ENDS, "with a timeout of")
    assert {
        way: one for way, one in asleep.items() if not any(words in one for words in named)
    } == {}
    assert {way: why(one) for way, one in found.items() if way not in TIMED and why(one)} == {}
    assert found["two_of_four"].history.noted("world.still")[0].event.values["ranks"] == [0, 1]


TIMED = ("timed_group", "timed_barrier", "timed_store", "tried_again")


@pytest.mark.slow
def test_a_file_system_that_hangs_does_not_keep_the_harness_waiting(tmp_path: Path) -> None:
    """What a rank that reads from it has open is told without asking that file system, which would
    never answer.
    """
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid() != 0:
        pytest.skip("a file system of one's own takes /dev/fuse and root")
    hangs = [
        sys.executable,
        str(Path(lingering.__file__).with_name("hung_files.py")),
        str(tmp_path),
    ]
    with (
        subprocess.Popen(hangs, stdout=subprocess.PIPE) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line or server.stdout.readline() != b"hangs\n":
                pytest.skip("no file system of its own here")
            pid = int(line)
            still = Stillness(begun=time.monotonic(), deadline=time.monotonic() + 60.0)
            threads.submit(still.look, [pid]).result(timeout=20.0)
            assert still.waiting(pid) == "read"
            assert (
                threads.submit(lambda: [*doubts([pid], left=60.0, served=None, name=str)]).result(
                    timeout=20.0
                )
                == []
            )
        finally:
            server.kill()  # with it ends the file system, and whoever waits for that goes on
