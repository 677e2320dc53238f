"""Worlds whose ranks are on three machines, each with a real sshd, a network and a clock of its
own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.events import Event
from harness.world.control.capture import Capture
from harness.world.control.world import World
from harness.world.machines.agent_channel import argv
from harness.world.machines.fleet import Reached
from harness.world.machines.machine_server import MachinePool
from harness.world.starters import hostfile
from tests.kit.launches import launch_of
from tests.world.machines import machine_room
from tests.world.machines.machine_room import Room

pytestmark = pytest.mark.whole
LEASE = 1.5
SUBJECT = """
import os
import time

def meet(context, missing=False):
    assert not missing
    context.emit("met", ranks=[got.decode() for got in context.group.all_gather(str(context.rank).encode())])
    print("rank", context.rank, "was here")

def falls_silent(context):
    context.group.barrier()
    if context.rank == 1:
        os.closerange(200, 4096)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            pass

def steps(context):
    step = 0
    while True:
        context.emit("step", step=step)
        context.group.barrier()
        step += 1
        time.sleep(0.02)
"""
SCENARIO = """
schema: 1
id: over-machines
title: Ranks on three machines meet
question: Does every rank hear of all others?
role: claim
subject:
  entry: subject:meet
  candidate: {}
  control:
    with: {missing: true}
    must_fail: {check: met, ranks: every, error: AssertionError, source: assert not missing}
matrix: {ranks: [3], hosts: [3], backend: [gloo]}
world: {deadline: 60s}
seed: "1"
trials: {candidate: 2, control: 1, accept: {failure_rate_below: 99%, confidence: 50%}}
checks:
  - {id: met, kind: agree, ranks: every, value: met.ranks}
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Three machines."""
    with machine_room.room(tmp_path_factory.mktemp("machines"), 3) as made:
        yield made


@pytest.fixture(scope="module")
def fleet(room: Room) -> Iterator[MachinePool]:
    """They, reached."""
    machines = [
        Reached(
            name=one.name,
            called=one.name,
            command=hostfile.ssh_command(one.name, argv(sys.executable), configuration=room.config),
            address=one.addresses[0],
            slots=one.slots,
            demand=lambda _told: None,
        )
        for one in hostfile.read(room.hostfile)
    ]
    with MachinePool(machines, lease=LEASE, back_within=60.0) as made:
        yield made


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The code of the ranks."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/subject.py").write_text(SUBJECT)
    return tmp_path / "code"


def world(
    fleet: MachinePool,
    code: Path,
    entry: str,
    *,
    size: int = 3,
    backend: str = "gloo",
    **more: object,
) -> World:
    launch = launch_of(
        about={"scenario": "tried"},
        size=size,
        backend=backend,
        warm=True,
        entry=f"subject:{entry}",
        folder=code,
        arguments={},
        inputs={},
        seeds=[1] * size,
        machines=fleet.placed([rank % 3 for rank in range(size)]),
        deadline=60.0,
        after_failure=1.0,
    )
    return World(launch, fleet, **more)  # type: ignore[arg-type]


def named(capture: Capture, name: str) -> list[Event]:
    return [event for event in capture.events if event.name == name]


def test_ranks_of_three_machines_meet(fleet: MachinePool, code: Path) -> None:
    """Six ranks, two on each machine, meet by gloo and by MLX's ring.

    What each says and prints comes home.
    """
    for backend in ("gloo", "mlx-ring"):
        capture = world(fleet, code, "meet", size=6, backend=backend).run()
        assert [event.values["ranks"] for event in named(capture, "met")] == [list("012345")] * 6, (
            capture.events
        )
        assert sorted(event.values["code"] for event in named(capture, "rank.exited")) == [0] * 6
        # torch says so where an address has no name.
        assert all(f"rank {rank} was here\n".encode() in capture.logs[rank] for rank in range(6))
        (joined,) = named(capture, "machines.joined")
        # Their clocks are 50,000 s apart: what ranks stamp is told by ours all the same, in the
        # order of their lives.
        ahead = [one["clock_ahead"] for one in joined.values["machines"]]  # type: ignore[union-attr, call-overload, index]
        assert [round(one / machine_room.CLOCKS / 1e9) for one in ahead] == [1, 2, 3]  # type: ignore[operator]
        for rank in range(6):
            own = [
                event.name
                for event in capture.events
                if event.rank == rank and event.by in ("rank", "server")
            ]
            # The rank before the last of a ring stands still for a moment while it joins, as on one
            # machine.
            turn = backend == "mlx-ring" and rank == 4
            assert own.count("rank.stopped") == own.count("rank.continued") == turn
            lived = [name for name in own if name not in ("rank.stopped", "rank.continued")]
            assert lived[:3] == ["rank.started", "rank.begin", "backend.ready"]
            assert lived[-1] == "rank.exited"


def test_a_machine_tells_which_rank_closed_its_channel(fleet: MachinePool, code: Path) -> None:
    """It looks at its own rank as the channel closes; of ranks that end well nothing is told."""
    assert not named(world(fleet, code, "meet").run(), "channel.closed")
    capture = world(fleet, code, "falls_silent").run()
    assert [(event.by, event.rank) for event in named(capture, "channel.closed")] == [
        ("harness", 1)
    ]
    assert {event.rank for event in named(capture, "subject.end")} == {0, 2}


@pytest.mark.long
def test_a_machine_whose_disk_is_full_says_so(fleet: MachinePool, code: Path, room: Room) -> None:
    """It fills up during a run: the world is as before, and the machine tells that it could not
    write it down.
    """
    world(fleet, code, "meet").run()
    assert fleet.unwritten == {}
    inside = ["nsenter", "-t", str(room.pids[1]), "-m", "sh", "-c"]
    cache = Path.home() / ".cache/rankproof"
    used = f"$(( ($(df --output=used -k {cache} | tail -1) + 64) * 1024 ))"
    filled = f"mount -o remount,size={used} {cache}; cat /dev/zero > {cache}/full; true"
    subprocess.run([*inside, filled], check=True, capture_output=True)
    try:
        capture = world(fleet, code, "meet").run()
    finally:
        subprocess.run([*inside, f"rm {cache}/full; mount -o remount,size=50% {cache}"], check=True)
    assert len(named(capture, "met")) == 3
    assert list(fleet.unwritten) == [fleet._machines[1].called]
    assert "No space left on device" in fleet.unwritten[fleet._machines[1].called]


def test_a_machine_that_is_cut_off(fleet: MachinePool, code: Path, room: Room) -> None:
    """It ends its ranks with the lease, the others end soon after, and what it wrote down comes
    when it is back.
    """
    struck: dict[str, float] = {}
    seen = threading.Event()

    def cut() -> None:
        seen.wait(60)
        struck["ns"] = time.monotonic_ns()
        room.cut(1)
        end = time.monotonic() + 60
        # Until it has ended all of Rankproof's there.
        while room.living(1) and time.monotonic() < end:
            time.sleep(0.1)
        struck["gone"] = (time.monotonic_ns() - struck["ns"]) / 1e9
        room.join(1)

    thread = threading.Thread(target=cut)
    thread.start()
    capture = world(fleet, code, "steps", on_begin=once_stepping(seen)).run()
    thread.join()
    exited = {event.rank: event for event in named(capture, "rank.exited")}
    assert (sorted(exited), exited[1].values["signal"]) == ([0, 1, 2], "SIGKILL")
    (ended,), (lost,) = named(capture, "machine.ended"), named(capture, "machine.lost")
    assert "lease lost" in str(ended.values["why"])
    assert lost.values["ranks"] == [1]
    since = {rank: (event.ns - struck["ns"]) / 1e9 for rank, event in exited.items()}
    assert since[1] < LEASE + 1
    assert max(since[0], since[2]) < (lost.ns - struck["ns"]) / 1e9 + 1.0 + 1.0
    (collected,) = named(capture, "machine.collected")
    assert (collected.values["why"], collected.values["messages"]) == (
        "",
        collected.values["messages"],
    )
    # The union is whole: the step at which the barrier held all is known of every rank.
    last = [
        max(event.values["step"] for event in named(capture, "step") if event.rank == rank)
        for rank in range(3)
    ]  # type: ignore[type-var]
    assert max(last) - min(last) <= 1  # type: ignore[operator]
    assert struck["gone"] < LEASE + 5


def once_stepping(seen: threading.Event) -> Callable[[World], None]:
    def begin(made: World) -> None:
        def look() -> None:
            while not any(
                event.name == "step" and event.values["step"] == 20 for event in list(made.events)
            ):
                time.sleep(0.05)
            seen.set()

        threading.Thread(target=look, daemon=True).start()

    return begin


def test_a_scenario_over_machines(tmp_path: Path, room: Room) -> None:
    """The command runs a scenario there, its report holds when it is judged again, and names no
    machine.

    Killed in the middle, it leaves nothing on any of them; and an interpreter with other packages
    is refused.
    """
    (tmp_path / "subject.py").write_text(SUBJECT)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True
    )
    run = [sys.executable, "-m", "harness.cli", "run", str(tmp_path), "--hosts", str(room.hostfile)]
    run += [
        "--ssh-config",
        str(room.config),
        "--key",
        str(tmp_path / "key"),
        "--results",
        str(tmp_path / "results"),
    ]
    refused = subprocess.run(
        [*run, "--hosts-python", "/usr/bin/python3"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 2, refused.stderr
    assert "select that interpreter with --python" in refused.stderr
    shutil.rmtree(tmp_path / "results", ignore_errors=True)
    done = subprocess.run(run, check=False, capture_output=True, text=True)
    assert "ranks=3,hosts=3,backend=gloo: " in done.stdout, done.stderr
    (report,) = (tmp_path / "results").rglob("report.md")
    judged = subprocess.run(
        [
            sys.executable,
            "-m",
            "harness.cli",
            "verify",
            str(report),
            "--signer",
            fingerprint(tmp_path / "key.pub"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    for path in report.parent.rglob("*"):
        if path.is_file():
            assert b"machine-1" not in path.read_bytes(), path
    before = {one for index in range(3) for one in room.living(index)}  # of the other tests here

    def left() -> set[str]:
        return {one for index in range(3) for one in room.living(index)} - before

    killed = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any("node" in words for words in left()):
        assert killed.poll() is None
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    end = time.monotonic() + 30
    while left() and time.monotonic() < end:
        time.sleep(0.1)
    assert left() == set()


def fingerprint(key: Path) -> str:
    said = subprocess.run(
        ["ssh-keygen", "-lf", str(key)], check=True, capture_output=True, text=True
    ).stdout
    return said.split()[1]
