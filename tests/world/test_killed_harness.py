"""The harness ends in every way there is; nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.world.control.pool import PortLease
from harness.world.control.world import World
from harness.world.hosts import host as hosts
from tests.kit.worlds import ENGINES, dwellers, networks

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
MOMENTS = random.Random(20260103)
# After so many lines: how much of the time until then may pass once more. The first line comes
# before the imports.
SPANS = ((1, (0.0, 2.0)), (1, (2.0, 6.0)), (3, (0.0, 0.5)), (12, (0.0, 0.3)))


class Driver:
    """A harness in a process of its own, with a temporary folder that marks everything below it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("driver.py"), *arguments],
            env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def await_line(self, *words: str) -> None:
        """Read until each of the words has begun a line."""
        assert self.process.stdout is not None
        missing = set(words)
        while missing:
            line = self.process.stdout.readline()
            assert line, f"the driver ended before {missing}"
            missing = {word for word in missing if not line.startswith(word)}

    def await_lines(self, count: int) -> None:
        """Read so many lines."""
        assert self.process.stdout is not None
        for _ in range(count):
            assert self.process.stdout.readline(), "the driver ended"

    def close(self) -> None:
        """End and reap it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def driver(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A driver, ended with the test."""
    found = Driver(short_tmp, *getattr(request, "param", ()))
    yield found
    found.close()


def _nothing_left(
    driver: Driver, leftovers: Callable[..., set[int]], *, within: float = 2.0
) -> None:
    assert leftovers(f"TMPDIR={driver.folder}", spare=set(), within=within) == set()
    assert str(driver.folder) not in Path("/proc/self/mounts").read_text()
    assert [
        path.name
        for path in driver.folder.iterdir()
        if not path.name.startswith("rankproof-ports-")
    ] == []
    with PortLease(folder=driver.folder / f"rankproof-ports-{os.getuid()}") as ports:
        assert len(ports.take(20)) == 20


@pytest.mark.whole
@pytest.mark.parametrize(
    ("lines", "later"), [(lines, round(MOMENTS.uniform(*span), 2)) for lines, span in SPANS]
)
def test_sigkill_at_a_random_moment(
    driver: Driver, leftovers: Callable[..., set[int]], lines: int, later: float
) -> None:
    """SIGKILL while servers import, or ranks are stopped or left their session: two seconds later
    nothing is there.

    Moments go by the lines that the driver has written, one for each gate, and `later` by the time
    it took for them: the same on a busy machine.
    """
    begin = time.monotonic()
    driver.await_lines(lines)
    with pytest.raises(subprocess.TimeoutExpired):
        driver.process.wait(later * (time.monotonic() - begin))
    driver.process.kill()
    driver.process.wait()
    _nothing_left(driver, leftovers)


@pytest.mark.parametrize(
    "half", ["self._folder.mkdir(parents=True)", "lay_out(self)"], ids=["begun", "done"]
)
def test_sigkill_while_a_room_is_laid_out(
    short_tmp: Path, leftovers: Callable[..., set[int]], half: str
) -> None:
    """A folder that nobody has heard of yet goes as well: who removes it was there before it."""
    code = f"""
import os
from harness.world.control.pool import ServerPool, prepare
from harness.world.control.room import Room
lay_out = Room.lay_out
def killed(self):
    {half}
    print(self._folder.is_dir(), flush=True)
    os.kill(os.getpid(), 9)
Room.lay_out = killed
with ServerPool() as pool:
    prepare(pool, 1, warm=False, env={{}})
"""
    environment = {**os.environ, "TMPDIR": str(short_tmp), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "True\n"), ended.stderr
    assert leftovers(f"TMPDIR={short_tmp}", spare=set(), within=4.0) == set()
    assert [
        path.name for path in short_tmp.iterdir() if not path.name.startswith("rankproof-ports-")
    ] == []


@pytest.mark.whole
@pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts")
@pytest.mark.parametrize("everything", [True, False], ids=["everything-going-on", "any-moment"])
def test_sigkill_with_ranks_on_test_hosts(
    short_tmp: Path,
    leftovers: Callable[..., set[int]],
    often: Callable[..., range],
    everything: bool,
) -> None:
    """SIGKILL while worlds on test hosts come and go and a wire is stopped: no process stays, and
    so no network.
    """
    for turn in often(1, soak=10):
        moment, folder = random.Random(turn), short_tmp / str(turn)
        folder.mkdir()
        with contextlib.closing(Driver(folder, "hosts")) as driver:
            begin = time.monotonic()
            if everything:
                driver.await_line(
                    "calm:gather", "stuck:stop_itself", "breeding:daemon", "breeding:stopped"
                )
            else:
                driver.await_lines(moment.randint(1, 12))
            with pytest.raises(subprocess.TimeoutExpired):
                driver.process.wait(moment.uniform(0.0, 0.5) * (time.monotonic() - begin))
            own = networks(f"TMPDIR={folder}")
            assert len(own) >= 2 or not everything
            there = dwellers(own)
            busy = (time.monotonic() - begin) / 2  # where all this took long, the end of it may too
            driver.process.kill()
            driver.process.wait()
            _nothing_left(driver, leftovers, within=max(2.0, busy))
            assert dwellers(own).isdisjoint(there)


@pytest.mark.whole
@pytest.mark.parametrize("driver", [["hold"]], indirect=True, ids=["gate-held"])
def test_sigkill_with_everything_going_on(
    driver: Driver, leftovers: Callable[..., set[int]], live: Any
) -> None:
    """SIGKILL with a rank stopped, a daemon and a stopped child about, and gates held.

    The next world works.
    """
    driver.await_line("calm:gather", "stuck:stop_apart", "breeding:daemon", "breeding:stopped")
    driver.process.kill()
    driver.process.wait()
    _nothing_left(driver, leftovers)
    assert live("calm:gather").passed


@pytest.mark.whole
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_in_order(
    driver: Driver, leftovers: Callable[..., set[int]], number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM: every lane is cancelled, the pool closes, nothing is left when the
    process has ended.
    """
    driver.await_line("calm:gather", "stuck:stop_apart", "breeding:daemon", "breeding:stopped")
    driver.process.send_signal(number)
    driver.await_line("cancelled")
    driver.await_line("end")
    assert driver.process.wait(5) == 130
    _nothing_left(driver, leftovers)


def test_an_interrupt_while_servers_start(
    driver: Driver, leftovers: Callable[..., set[int]]
) -> None:
    """Ctrl-C during the server's imports is not waited out."""
    driver.await_line("begin")
    driver.process.send_signal(signal.SIGINT)
    driver.await_line("end")
    assert driver.process.wait(5) == 130
    _nothing_left(driver, leftovers)


@pytest.mark.whole
def test_a_killed_server_takes_its_ranks_along(
    order: Callable[..., Any], pool: Any, live: Any, prompt: Callable[..., bool]
) -> None:
    """The server killed while ranks live: the trial is void, nobody is left, and the next world
    gets a new server.
    """
    server = pool.take(warm=True, env={}, preload=ENGINES)
    pool.give(server)

    def kill(world: World, event: Any) -> None:
        os.kill(server.pid, signal.SIGKILL)

    lived = live("stuck:stop_itself", gates=("subject.begin",), on_gate=kill)
    assert len(lived.void) == 1
    assert live("calm:gather").passed
    assert prompt(lived, after=3.0)
    assert not server.scratch.exists()
