"""Worlds whose ranks are on three nodes of a real cluster of Ray: `nox -s farm`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.world.machines.agent_channel import LEASE, boot
from harness.world.machines.fleet import Reached
from harness.world.machines.machine_server import MachinePool
from harness.world.starters.ray import Cluster
from tests.world.machines.test_worlds import (
    SCENARIO,
    SUBJECT,
    code,
    fingerprint,
    named,
    once_stepping,
    world,
)
from tests.world.starters import ray_room
from tests.world.starters.ray_room import Nodes

__all__ = ["code"]  # a fixture

pytest.importorskip("ray", reason="Ray is not installed here: nox -s farm")
pytestmark = pytest.mark.whole
# Beyond the lease, what Ray and a busy machine may take to end processes.
GONE_WITHIN = 40.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes of one cluster, each on a machine of its own. The last test ends one."""
    with ray_room.nodes(tmp_path_factory.mktemp("nodes"), 3) as made:
        yield made


@pytest.fixture
def fleet(nodes: Nodes) -> Iterator[MachinePool]:
    """They, reached through an actor each, in the order of their machines."""
    with Cluster(nodes.address) as cluster:
        places = sorted(cluster.places(), key=lambda place: place.name)
        machines = [
            Reached(
                name=place.name,
                called=place.name,
                command=partial(cluster.pipe, place, boot(), interpreter=sys.executable),
                address=place.address,
                slots=place.cores,
                demand=lambda _told: None,
            )
            for place in places
        ]
        with MachinePool(machines, lease=LEASE, back_within=60.0) as made:
            yield made


def test_ranks_on_three_nodes_meet(fleet: MachinePool, code: Path) -> None:
    """Six ranks, two on each node, meet by gloo and by MLX's ring, and nobody is left.

    One actor is on each node.
    """
    for backend in ("gloo", "mlx-ring"):
        capture = world(fleet, code, "meet", size=6, backend=backend).run()
        assert [event.values["ranks"] for event in named(capture, "met")] == [list("012345")] * 6, (
            capture.events
        )
        assert sorted(event.values["code"] for event in named(capture, "rank.exited")) == [0] * 6
        assert all(f"rank {rank} was here\n".encode() in capture.logs[rank] for rank in range(6))


def test_a_killed_actor_ends_its_ranks(fleet: MachinePool, code: Path, nodes: Nodes) -> None:
    """Its node ends its ranks and writes down why, the others end soon after, and a new actor
    brings what was written.

    The actor is killed while steps go on, so the trial has failed; and the world after it is whole
    again.
    """
    seen, struck = threading.Event(), dict[str, float]()

    def kill() -> None:
        seen.wait(120)
        struck["ns"] = time.monotonic_ns()
        (actor,) = nodes.relays(1)
        actor.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    capture = world(fleet, code, "steps", on_begin=once_stepping(seen)).run()
    thread.join()
    exited = {event.rank: event for event in named(capture, "rank.exited")}
    assert sorted(exited) == [0, 1, 2], capture.events
    assert exited[1].values["signal"] == "SIGKILL"
    (ended,), (lost,) = named(capture, "machine.ended"), named(capture, "machine.lost")
    assert ended.values["why"] == "the run closed the channel"
    assert lost.values["ranks"] == [1]
    assert (exited[1].ns - struck["ns"]) / 1e9 < LEASE + 1
    assert max(exited[0].ns, exited[2].ns) < lost.ns + 2e9
    (collected,) = named(capture, "machine.collected")
    assert collected.values["why"] == ""
    last = [
        max(event.values["step"] for event in named(capture, "step") if event.rank == rank)
        for rank in range(3)
    ]  # type: ignore[type-var]
    assert max(last) - min(last) <= 1  # type: ignore[operator]
    assert len(named(world(fleet, code, "meet").run(), "met")) == 3


def test_a_scenario_over_the_nodes(tmp_path: Path, nodes: Nodes) -> None:
    """The command runs a scenario there.

    Its report says that it was Ray, names no node, and holds when judged again.

    Killed in the middle, it leaves no actor, no process and no rank of ours on any node.
    """
    (tmp_path / "subject.py").write_text(SUBJECT)
    # As many as the placement says.
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("hosts: [3], ", ""))
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True
    )
    run = [sys.executable, "-m", "harness.cli", "run", str(tmp_path), "--hosts", nodes.address]
    run += ["--key", str(tmp_path / "key"), "--results", str(tmp_path / "results")]
    where = ["--placement", "0=machine-2,1=machine-0,2=machine-0"]
    done = subprocess.run([*run, *where], check=False, capture_output=True, text=True)
    assert "ranks=3,backend=gloo: " in done.stdout, done.stderr
    (report,) = (tmp_path / "results").rglob("report.md")
    assert "3 nodes of a Ray cluster" in report.read_text()
    told = json.loads((report.parent / "evidence/run.json").read_text())["machines"]
    assert (told["starter"], told["placement"]) == ("ray", [2, 0, 0])
    words = ["verify", str(report), "--signer", fingerprint(tmp_path / "key.pub")]
    judged = subprocess.run(
        [sys.executable, "-m", "harness.cli", *words], check=False, capture_output=True, text=True
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    for path in report.parent.rglob("*"):
        if path.is_file():
            assert b"machine-1" not in path.read_bytes(), path
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(run, stdout=said, stderr=said) as killed,
    ):
        while not any("node" in words for index in range(3) for words in nodes.room.living(index)):
            assert killed.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.05)
        there = [one for index in range(3) for one in nodes.relays(index)]
        os.kill(killed.pid, signal.SIGKILL)
    assert there
    await_nothing(nodes)


def test_a_killed_node_fails_its_trial(fleet: MachinePool, code: Path, nodes: Nodes) -> None:
    """All of Ray on a node killed at once: its ranks end, the trial has failed, and no node takes
    its place.
    """
    seen = threading.Event()

    def kill() -> None:
        seen.wait(120)
        nodes.kill(2)

    thread = threading.Thread(target=kill)
    thread.start()
    fleet._back_within = 5.0
    capture = world(fleet, code, "steps", on_begin=once_stepping(seen)).run()
    thread.join()
    (lost,) = named(capture, "machine.lost")
    assert lost.values["ranks"] == [2]
    (collected,) = named(capture, "machine.collected")
    assert collected.values["why"] == "it did not come back in time"
    end = time.monotonic() + GONE_WITHIN
    while nodes.room.living(2) and time.monotonic() < end:
        time.sleep(0.1)
    assert nodes.room.living(2) == []


def await_nothing(nodes: Nodes) -> None:
    """Wait until no process of ours is on any node, whatever Ray keeps there."""
    end = time.monotonic() + GONE_WITHIN

    def left() -> list[object]:
        return [
            one for index in range(3) for one in (*nodes.room.living(index), *nodes.relays(index))
        ]

    while left() and time.monotonic() < end:
        time.sleep(0.1)
    assert left() == []
