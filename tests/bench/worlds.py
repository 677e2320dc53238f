"""Our side: a warm world from the request until its last rank has passed the first collective."""

from __future__ import annotations

from pathlib import Path

from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from harness.world.hosts.host import Hosts
from tests.kit.launches import launch_of

SUBJECT = """
def noop(context):
    context.group.barrier()
    context.emit("barrier.passed")
"""


def warm_world(
    pool: ServerPool, folder: Path, *, backend: str, ranks: int, hosts: Hosts | None = None
) -> float:
    """Seconds from the request until the last rank has passed its first barrier (on the ring: an
    evaluated all_sum).
    """
    (folder / "subject.py").write_text(SUBJECT)
    launch = launch_of(
        about={},
        size=ranks,
        backend=backend,
        warm=True,
        entry="subject:noop",
        folder=folder,
        arguments={},
        inputs={},
        seeds=[1] * ranks,
        hosts=hosts,
    )
    capture = World(launch, pool).run()
    begin = next(event.ns for event in capture.events if event.name == "world.begin")
    passed = [event.ns for event in capture.events if event.name == "barrier.passed"]
    if len(passed) != ranks:
        raise SystemExit(f"{backend}: only {len(passed)} of {ranks} ranks passed the barrier")
    return (max(passed) - begin) / 1e9
