"""What a rank costs on this machine: small worlds are started, and their ranks looked at from
outside.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.backends import KINDS as BACKENDS
from harness.events import Event
from harness.world.below.preload import Preload
from harness.world.control.launch import Launch, StartLaunch, SubjectLaunch, WatchLaunch
from harness.world.control.pool import ServerPool
from harness.world.control.server_handle import ServerFailed
from harness.world.control.world import World

STANDING = "standing"
# Between the two barriers every rank of the world is there, and has used its group once.
SUBJECT = """
def stand(context):
    meet = context.group.barrier if context.backend != "none" else lambda: None
    meet()
    context.emit("standing")
    meet()
"""
PROGRAM = """
tell() { echo "{\\"event\\": \\"$1\\"}" >&3; read answer <&4; }
tell ready
tell standing
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a rank takes.

    Attributes:
        seconds: its part of the time until the last rank of a world has used its group once.
        private: bytes of memory that are its alone; 0 where the system does not tell.
        share: bytes with its share of what ranks have in common.
    """

    seconds: float
    private: int
    share: int


def measure(
    pool: ServerPool, *, backend: str, warm: bool = True, program: bool = False, size: int = 8
) -> Cost:
    """Start a world, twice where it is warm, and look at the last one.

    Args:
        pool: of servers.
        backend: what joins the ranks.
        warm: whether ranks are forked from a server that has imported what they need.
        program: whether they are shells in place of Python.
        size: of the world.

    Raises:
        ServerFailed: it was not whole; the message says what its ranks or the harness said.
    """
    kind = BACKENDS[backend]
    with tempfile.TemporaryDirectory(prefix="rankproof-cost-") as name:
        folder = Path(name)
        (folder / "subject.py").write_text(SUBJECT)
        (folder / "rank.sh").write_text(PROGRAM)
        launch = Launch(
            about={},
            size=size,
            backend=backend,
            subject=SubjectLaunch(
                entry="" if program else "subject:stand",
                program=("sh", "rank.sh") if program else (),
                folder=folder,
                arguments={},
                inputs={},
                seeds=[0] * size,
            ),
            start=StartLaunch(
                warm=warm, preload=Preload(("numpy", *kind.properties.modules), (kind.inside_file,))
            ),
            watch=WatchLaunch(gates=(STANDING,)),
        )
        costs = [_stand(pool, launch) for _ in range(2 if warm else 1)]
    prints = costs[-1][1] or [(0, 0)]
    private, share = (round(statistics.median(column)) for column in zip(*prints, strict=True))
    return Cost(seconds=min(seconds for seconds, _ in costs) / size, private=private, share=share)


def _stand(pool: ServerPool, launch: Launch) -> tuple[float, list[tuple[int, int]]]:
    """Seconds until the last rank stood, and the memory of each as it did."""
    start = launch.start
    # Taken once before anything is measured: the server's own start is not the ranks'.
    server = pool.take(warm=start.warm, env=launch.subject.env, preload=start.preload)
    pool.give(server)
    prints: list[tuple[int, int]] = []

    def look(world: World, event: Event) -> None:
        assert event.rank is not None
        with contextlib.suppress(psutil.Error, AttributeError):  # a system that does not tell
            memory = psutil.Process(world.pids[event.rank]).memory_full_info()
            prints.append((memory.uss, memory.pss))

    events = World(launch, pool, on_gate=look).run().events
    stood = [event.ns for event in events if event.name == STANDING]
    if len(stood) != launch.size:
        said = [event.values for event in events if event.name in ("harness.error", "rank.error")]
        why = f"{said[0].get('type')}: {said[0].get('message')}" if said else "nobody says why"
        raise ServerFailed(f"{len(stood)} of {launch.size} ranks met: {why}")
    return (max(stood) - events[0].ns) / 1e9, prints
