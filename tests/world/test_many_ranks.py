"""Worlds of 16, 32 and 64 ranks: they meet again and again, hang or not as smaller ones do, and
leave nobody behind.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.world.control.hang import Hang
from harness.world.control.pool import ServerPool, prepare
from harness.world.control.world import World
from tests.kit.worlds import Lived
from tests.world.test_killed_harness import Driver

Live = Callable[..., Lived]
PROGRAM = """
echo '{"event": "ready"}' >&3
read answer <&4
echo "{\\"event\\": \\"told\\", \\"values\\": {\\"rank\\": $RANKPROOF_RANK, \\"size\\": $RANKPROOF_SIZE}}" >&3
"""


@pytest.mark.long
@pytest.mark.parametrize("size", [16, 32, 64])
@pytest.mark.parametrize("backend", ["gloo", "mlx-ring"])
def test_many_ranks_meet_again_and_again(
    live: Live, often: Callable[..., range], backend: str, size: int
) -> None:
    """Not one flake, and with gloo no tail: the slowest start takes no 5 s longer than usual."""
    walls = []
    for _ in often(3 if backend == "gloo" else 1, soak=20 if size < 64 or backend == "gloo" else 5):
        lived = live("calm:gather", size=size, backend=backend, deadline=120.0)
        assert lived.passed
        assert lived.survivors == 0
        lengths = [len(str(rank)) * (rank + 1) for rank in range(size)]
        assert all(lived.said(rank, "met")[0].values["lengths"] == lengths for rank in range(size))
        walls.append(lived.seconds)
    print(
        f"\n{backend}, {size} ranks: median {statistics.median(walls):.2f} s, max"
        f" {max(walls):.2f} s"
    )
    if backend == "gloo":
        assert max(walls) < statistics.median(walls) + 4.0


@pytest.mark.whole
def test_64_programs_and_64_ranks_without_a_group(
    live: Live, tmp_path: Path, often: Callable[..., range]
) -> None:
    """Shells as ranks, and ranks of Python that know nobody: each is told who it is."""
    (tmp_path / "rank.sh").write_text(PROGRAM)
    for _ in often(1, soak=5):
        program = live(
            "", program=("sh", "rank.sh"), folder=tmp_path, backend="none", warm=False, size=64
        )
        told: Any = [program.said(rank, "told")[0].values for rank in range(64)]
        assert told == [{"rank": rank, "size": 64} for rank in range(64)]
        assert program.passed
        assert live("ring:told", size=64, backend="none").passed


@pytest.mark.whole
def test_a_hang_of_64_ranks_is_proved(live: Live) -> None:
    """All but the last wait in a reduction: the world is seen to stand still, on every rank, on two
    cores too.
    """
    lived = live(
        "crowding:last_stays_away", size=64, hang=Hang(window=0.6, within=20.0), deadline=120.0
    )
    still = lived.history.noted("world.still")
    assert still, lived.history.noted("world.unproved")
    assert still[0].event.values["ranks"] == list(range(64))
    for rank in range(64):
        samples: Any = [
            seen.event.values["threads"] for seen in lived.history.noted("rank.stack", rank)
        ]
        functions = [
            {frame["function"] for thread in threads for frame in thread["frames"]}
            for threads in samples
        ]
        assert [("last_stays_away" in found) for found in functions] == [True, True], rank


@pytest.mark.long
@pytest.mark.parametrize("entry", ["crowding:everybody_computes", "crowding:last_computes"])
def test_64_ranks_that_are_only_slow_do_not_hang(live: Live, entry: str) -> None:
    """More ranks than cores, each of which waits for its turn at the processor, or all for one that
    computes.
    """
    lived = live(entry, size=64, hang=Hang(window=0.6, within=4.0), deadline=120.0)
    unproved = lived.history.noted("world.unproved")
    assert unproved, lived.history.noted("world.still")
    assert unproved[0].event.values["code"] == "moving"


@pytest.mark.long
@pytest.mark.parametrize("later", [0, 10, 30, 60])
def test_a_harness_killed_while_64_ranks_start(
    short_tmp: Path, leftovers: Callable[..., set[int]], later: int
) -> None:
    """SIGKILL when so many of them have begun, and the others are being forked: two seconds later
    nothing is there.
    """
    driver = Driver(short_tmp, "many")
    try:
        driver.await_line("begin")
        driver.await_lines(later)
        driver.process.send_signal(signal.SIGKILL)
        driver.process.wait()
        assert leftovers(f"TMPDIR={short_tmp}", spare=set(), within=4.0) == set()
        assert [
            path.name
            for path in short_tmp.iterdir()
            if not path.name.startswith("rankproof-ports-")
        ] == []
    finally:
        driver.close()


@pytest.mark.slow
def test_descriptors_that_do_not_reach_the_server_are_told(
    order: Callable[..., Any], tmp_path: Path
) -> None:
    """A server that may open fewer than a world needs says how many arrived, in place of a bare
    end.
    """
    (tmp_path / "rank.sh").write_text(PROGRAM)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ServerPool() as pool:
        resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))
        try:
            prepare(pool, 1, warm=False, env={})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        launch = order(
            "", program=("sh", "rank.sh"), folder=tmp_path, backend="none", warm=False, size=64
        )
        capture = World(launch, pool).run()
    (error,) = (event.values for event in capture.events if event.name == "harness.error")
    assert "of 193 descriptors arrived" in str(error["message"])
    assert not [event for event in capture.events if event.name == "rank.started"]
    assert os.getpid() not in {event.pid for event in capture.events}
