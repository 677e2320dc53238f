"""What machines, ranks, events and trials cost control: a real node's channel is recorded, and said
by many at once.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from harness.world.control.capture import Capture
from harness.world.control.pool import prepare
from harness.world.control.world import World
from harness.world.machines.agent_channel import LEASE, argv
from harness.world.machines.fleet import Reached
from harness.world.machines.machine_server import MachinePool
from tests.bench.recorded_keepers import Keepers, Recorder, Recording
from tests.kit.launches import launch_of

SUBJECT = """
def say(context, events):
    for number in range(events):
        context.emit("said", number=number)
"""
EVENTS = (10, 510)
HOSTS = (16, 64, 256, 1000)
MOST = 64  # ranks of a world
WORLDS = 5
IDLE = 5.0


def measure() -> dict[str, Any]:
    """Record one node with few and with many events, then have as many as `HOSTS` says."""
    with tempfile.TemporaryDirectory() as name:
        code = Path(name, "code")
        code.mkdir()
        (code / "subject.py").write_text(SUBJECT)
        recordings = {events: record(code, events=events) for events in EVENTS}
        rows = [row(code, recordings[EVENTS[0]], hosts=hosts, events=EVENTS[0]) for hosts in HOSTS]
        rows.append(row(code, recordings[EVENTS[1]], hosts=MOST, events=EVENTS[1]))
    return {
        "rows": rows,
        "bytes": {events: [one.down, one.up] for events, one in recordings.items()},
    }


def record(code: Path, *, events: int) -> Recording:
    """The channel of a node of this machine, for a world of one rank."""
    into = Recording()
    with _fleet([partial(Recorder, argv(sys.executable), into)]) as fleet:
        assert said(_world(fleet, code, events=events, size=1)) == events
    assert into.share
    return into


def row(
    code: Path, recording: Recording, *, hosts: int, events: int, idle: float = IDLE
) -> dict[str, Any]:
    """What so many recorded keepers cost: to have ready, to keep, and for a world of as many ranks
    as one can have.
    """
    process = psutil.Process()
    with ExitStack() as made:
        keepers = Keepers(recording)
        made.callback(keepers.close)
        before = process.memory_info().rss, process.num_fds()
        began, spent = time.monotonic(), _spent()
        fleet = made.enter_context(_fleet([keepers.start] * hosts))
        prepare(fleet, 1, warm=True, env={})
        ready = {"ready_seconds": time.monotonic() - began, "ready_cpu": _spent() - spent}
        held = process.memory_info().rss - before[0], process.num_fds() - before[1]
        spent = _spent()
        threading.Event().wait(idle)
        beats = (_spent() - spent) / idle
        size = min(hosts, MOST)
        spent, began = _spent(), time.monotonic()
        for _ in range(WORLDS):
            capture = _world(fleet, code, events=events, size=size)
            assert said(capture) == events * size, [e for e in capture.events if e.by == "harness"]
        worlds = {
            "world_cpu": (_spent() - spent) / WORLDS,
            "world_seconds": (time.monotonic() - began) / WORLDS,
        }
        lost = sum(bool(line.lost) for line in fleet.lines(range(hosts)).values())
    return {
        "hosts": hosts, "ranks": size, "events": events, **ready, "memory": held[0], "descriptors": held[1],
        "beat_cpu": beats, **worlds, "lost": lost,
    }  # fmt: skip


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _fleet(starts: list[Any]) -> MachinePool:
    machines = [
        Reached(
            name=f"machine-{number}",
            called=f"machine-{number}",
            command=start,
            address="127.0.0.1",
            slots=1,
            demand=lambda _told: None,
        )
        for number, start in enumerate(starts)
    ]
    return MachinePool(machines, lease=LEASE, back_within=5.0)


def _world(fleet: MachinePool, code: Path, *, events: int, size: int) -> Capture:
    launch = launch_of(
        about={"scenario": "scale"},
        size=size,
        backend="none",
        warm=True,
        entry="subject:say",
        folder=code,
        arguments={"events": events},
        inputs={},
        seeds=[1] * size,
        machines=fleet.placed(range(size)),
        deadline=60.0,
        after_failure=1.0,
    )
    return World(launch, fleet).run()


def said(capture: Capture) -> int:
    """How many events of ranks arrived."""
    return sum(event.name == "said" for event in capture.events)


def show(found: dict[str, Any]) -> None:
    """For people."""
    print("recorded keepers at control, CPU time of control alone")
    for one in found["rows"]:
        print(
            f"  {one['hosts']:>5} hosts: ready in {one['ready_seconds']:.1f} s"
            f" ({one['ready_cpu']:.2f} s CPU), {one['memory'] / 2**20:.0f} MiB,"
            f" {one['descriptors']} descriptors, beats {one['beat_cpu']:.4f} s a second; a world of"
            f" {one['ranks']} ranks with {one['events']} events each {one['world_cpu']:.3f} s CPU,"
            f" {one['world_seconds']:.2f} s; {one['lost']} lost"
        )
    for events, (down, up) in found["bytes"].items():
        print(f"  a world's share of one rank with {events} events: {down} bytes down, {up} up")
