"""Rings of real MLX ranks: whole, quick, and honest when a rank dies or hangs."""

from __future__ import annotations

import os
import signal
import socket
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.backends import KINDS, mlx_ring, mlx_ring_inside
from harness.rank.spec import RankSpec
from harness.world.control.pool import NoPort, PortLease
from harness.world.control.world import World

Live = Callable[..., Any]
RING = KINDS["mlx-ring"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(RING.refusal(size=2) is not None, reason=str(RING.refusal(size=2))),
]


@pytest.mark.whole
@pytest.mark.parametrize(
    "size", [2, *(pytest.param(size, marks=pytest.mark.slow) for size in range(3, 9))]
)
def test_every_size_is_a_whole_ring(live: Live, size: int) -> None:
    """Rings of two to eight ranks sum and gather, and MLX itself reports every rank and the
    size.
    """
    lived = live("ring:sums", size=size, backend="mlx-ring")
    assert lived.passed, lived.capture.logs
    for rank in range(size):
        assert lived.said(rank, "backend.ready")[0].values == {
            "backend": "mlx-ring",
            "rank": rank,
            "size": size,
        }
        assert lived.said(rank, "summed")[0].values == {
            "total": size * (size + 1) // 2,
            "rank": rank,
            "size": size,
        }
    assert lived.survivors == 0
    lived = live("calm:gather", size=size, backend="mlx-ring")
    assert lived.passed, lived.capture.logs


@pytest.mark.parametrize("longest", [0, 1, 255, pytest.param(3_000_000, marks=pytest.mark.slow)])
def test_bytes_of_unequal_length_arrive_as_they_were_sent(live: Live, longest: int) -> None:
    """Every rank gets every rank's bytes, also where a rank, or every rank, sends none, or
    megabytes.
    """
    lived = live("ring:lengths", size=3, backend="mlx-ring", arguments={"longest": longest})
    assert lived.passed, lived.capture.logs
    assert [lived.said(rank, "gathered")[0].values for rank in range(3)] == [
        {"count": 3, "right": True}
    ] * 3


@pytest.mark.slow
def test_fresh_ranks_make_the_same_ring(live: Live) -> None:
    """New interpreters join as forked ones do."""
    lived = live("ring:sums", size=3, backend="mlx-ring", warm=False)
    assert lived.passed, lived.capture.logs
    assert lived.survivors == 0


@pytest.mark.whole
@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_rank_ever_sleeps_because_it_connected_too_early(
    live: Live, size: int, often: Callable[..., range]
) -> None:
    """No ring of many takes the second that MLX sleeps when a neighbour does not listen yet."""
    env = {"MLX_RING_VERBOSE": "1"}
    found = [live("calm:gather", size=size, backend="mlx-ring", env=env) for _ in often(4, soak=50)]
    assert all(lived.passed for lived in found)
    logs = [log for lived in found for log in lived.capture.logs.values()]
    assert len(logs) == len(found) * size
    assert all(b"connecting to" in log and b"Attempt" not in log for log in logs)
    joined = sorted(
        max(
            lived.said(rank, "backend.ready")[0].ns - lived.said(rank, "rank.begin")[0].ns
            for rank in range(size)
        )
        for lived in found
    )
    print(
        f"\nrings of {size}: joined after {statistics.median(joined) / 1e6:.0f} ms, max"
        f" {joined[-1] / 1e6:.0f} ms"
    )


@pytest.mark.slow
def test_a_rank_late_to_its_ring_is_waited_for(live: Live) -> None:
    """The last rank, or the one before, may come late: the others wait, and the ring is whole and
    was never refused.
    """
    for late in (0, 1, 2):
        lived = live(
            "ring:sums",
            size=3,
            backend="mlx-ring",
            gates=("rank.begin",),
            on_gate=_others_first(late),
        )
        assert lived.passed, lived.capture.logs
        assert not lived.capture.logs


def _others_first(late: int) -> Callable[[World, Any], None]:
    """Stop a rank at its beginning; continue it when the others have begun."""
    begun: set[int] = set()

    def strike(world: World, event: Any) -> None:
        begun.add(event.rank)
        if event.rank == late:
            world.signal(signal.SIGSTOP, rank=late)
        if len(begun) == 3:
            world.signal(signal.SIGCONT, rank=late)

    return strike


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_the_others_end_when_a_rank_is_killed_in_a_collective(live: Live, victim: int) -> None:
    """Each survivor raises where it stood or is stopped and named.

    The dead one's signal is told, whichever it was.
    """
    lived = live("ring:one_dies", size=4, backend="mlx-ring", arguments={"victim": victim})
    assert lived.ended(victim) == "SIGKILL"
    assert not lived.void
    assert not lived.history.noted("world.deadline")
    stopped = {
        rank for seen in lived.history.noted("world.stopped") for rank in seen.event.values["ranks"]
    }
    for rank in {0, 1, 2, 3} - {victim}:
        if rank in stopped:
            assert lived.ended(rank) == "SIGKILL"
        else:
            assert lived.ended(rank) == 1
            assert lived.error(rank)["source"] == "context.group.barrier()"
    assert not any(found.passed for found in lived.findings["finished"].ranks)
    assert lived.survivors == 0


@pytest.mark.whole
def test_a_hang_in_a_collective_gives_stacks(live: Live) -> None:
    """At the deadline each rank's stack says where it waits: in the collective, or away from it."""
    lived = live("ring:one_stays_away", size=3, backend="mlx-ring", deadline=2.0)
    assert [seen.event.values["ranks"] for seen in lived.history.noted("world.deadline")] == [
        [0, 1, 2]
    ]
    for rank in (0, 2):
        assert b"in barrier" in lived.capture.stacks[rank]
        assert b"in meet" in lived.capture.stacks[rank]
    assert b"in one_stays_away" in lived.capture.stacks[1]
    assert b"in meet" not in lived.capture.stacks[1]
    assert lived.survivors == 0


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_a_rank_that_dies_before_it_joined_ends_the_others(live: Live, dead: int) -> None:
    """Whoever waits for the dead one is stopped, with its stack, long before MLX itself would give
    up.
    """

    def kill(world: World, event: Any) -> None:
        if event.rank == dead:
            world.signal(signal.SIGKILL, rank=dead)

    lived = live("ring:sums", size=3, backend="mlx-ring", gates=("rank.begin",), on_gate=kill)
    assert lived.ended(dead) == "SIGKILL"
    assert not lived.history.noted("world.deadline")
    assert all(lived.ended(rank) in (1, "SIGKILL") for rank in {0, 1, 2} - {dead})
    assert lived.survivors == 0


@pytest.mark.long
def test_ranks_compile_kernels(live: Live, ground: Path, tmp_path: Path) -> None:
    """What MLX compiles in forked ranks works.

    Without a compiler it does the same without compiling.
    """
    for env in ({}, {"PATH": str(tmp_path)}):
        lived = live(
            "ring:compiled", size=3, backend="mlx-ring", env={"TMPDIR": str(tmp_path), **env}
        )
        assert lived.passed, lived.capture.logs
        assert {lived.said(rank, "computed")[0].values["value"] for rank in range(3)} == {2.0}


def test_a_setting_from_outside_makes_no_group_of_one(live: Live) -> None:
    """What a scenario sets for MLX's rank and hosts does not reach it: the ring is whole all the
    same.
    """
    env = {"MLX_RANK": "0", "MLX_HOSTFILE": "/nowhere", "MLX_WORLD_SIZE": "1"}
    lived = live("ring:sums", size=2, backend="mlx-ring", warm=False, env=env)
    assert lived.passed, lived.capture.logs


@pytest.mark.parametrize("found", [(0, 1), (1, 3), (0, 2)])
def test_another_group_than_the_world_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[int, int]
) -> None:
    """A rank of which MLX makes another rank, or a group of another size, raises and goes no
    further.
    """
    import mlx.core as mx

    class Group:
        def rank(self) -> int:
            return found[0]

        def size(self) -> int:
            return found[1]

    monkeypatch.setattr(mx.distributed, "init", lambda **_: Group())
    monkeypatch.setenv("MLX_HOSTFILE", "")
    monkeypatch.setenv("MLX_RANK", "")
    held = mlx_ring._bound(0)
    port = held.getsockname()[1]
    rendezvous = {"places": [["127.0.0.1", port]] * 2, "held": held.detach(), "across": False}
    spec = _spec(tmp_path, {**rendezvous, "turn": None, "tables": None, "door": None})
    with pytest.raises(
        mlx_ring_inside.NotTheRing,
        match=f"{found[0]} of {found[1]}, but it was started as rank 1 of 2",
    ):
        mlx_ring_inside.join(spec)


def _spec(folder: Path, rendezvous: dict[str, Any]) -> RankSpec:
    return RankSpec(
        rank=1,
        size=2,
        backend="mlx-ring",
        rendezvous=rendezvous,
        entry="",
        folder="",
        arguments={},
        inputs={},
        seed=1,
        env={},
        gates=(),
        events_fd=-1,
        gates_fd=-1,
        scratch=str(folder),
    )


def test_ports_are_held_while_ranks_start_and_given_back(tmp_path: Path) -> None:
    """Nobody can take a prepared port, and looking at one never says that it listens.

    Afterwards all are free.
    """
    before = len(list(Path("/proc/self/fd").iterdir()))
    with PortLease(folder=tmp_path) as ports:
        rendezvous = RING.prepare(size=3, ports=ports)
        taken = [port for _, port in rendezvous.ranks[0]["places"]]
        for port in taken:
            assert not mlx_ring_inside.listens(mlx_ring.LOOPBACK, port)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((mlx_ring.LOOPBACK, port))
        for descriptor in rendezvous.descriptors:
            os.close(descriptor)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    for port in taken:
        with socket.create_server((mlx_ring.LOOPBACK, port)):
            assert mlx_ring_inside.listens(mlx_ring.LOOPBACK, port)


def test_who_listens_on_a_host_is_in_its_table() -> None:
    """A port that is bound, or connected, is not one that somebody listens on.

    One that is listened on is found.
    """
    table = os.open("/proc/self/net/tcp", os.O_RDONLY)
    try:
        with socket.socket() as server:
            server.bind((mlx_ring.LOOPBACK, 0))
            port = server.getsockname()[1]
            assert not mlx_ring_inside.is_listed(table, port)
            server.listen()
            assert mlx_ring_inside.is_listed(table, port)
            with socket.create_connection((mlx_ring.LOOPBACK, port)) as client:
                assert not mlx_ring_inside.is_listed(table, client.getsockname()[1])
        assert not mlx_ring_inside.is_listed(table, port)
    finally:
        os.close(table)


def test_without_ports_the_trial_is_void(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring that gets no port is an error of the harness, and no rank was started."""

    def none_left(self: PortLease, count: int) -> list[int]:
        raise NoPort(f"{count} free ports are needed")

    monkeypatch.setattr(PortLease, "take", none_left)
    lived = live("ring:sums", size=2, backend="mlx-ring")
    assert lived.void == ["2 free ports are needed"]
    assert "rank.started" not in {event.name for event in lived.capture.events}


@pytest.mark.whole
@pytest.mark.parametrize("backend", ["gloo", "mlx-ring"])
def test_eight_ranks_meet_again_and_again(
    live: Live, backend: str, often: Callable[..., range]
) -> None:
    """Worlds of eight ranks, more than most machines have cores, one after another, and not one
    flake.
    """
    found = [live("calm:gather", size=8, backend=backend) for _ in often(3, soak=30)]
    assert all(lived.passed and lived.survivors == 0 for lived in found)
    walls = sorted(lived.seconds for lived in found)
    print(f"\n{backend}, 8 ranks: median {statistics.median(walls):.2f} s, max {walls[-1]:.2f} s")
