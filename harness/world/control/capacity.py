"""How many ranks this machine can bear: what the system still lets worlds have (descriptors,
processes, memory), and what a rank costs.

So what cannot be had is known beforehand. The cost is measured: small worlds are started, and
their ranks looked at from outside.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import tempfile
from collections.abc import Iterator
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

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
MIB = 2**20
# Of a warm rank, which shares the rest with its server: less than that none was seen to take.
LEAST_MEMORY = 4 * MIB
GROUP_REMEDY = (
    "of the control group (podman and docker: --pids-limit, --memory; systemd: TasksMax, MemoryMax)"
)


@dataclass(frozen=True)
class Limit:
    """One limit of the system.

    Attributes:
        what: what it counts: `descriptors`, `processes and threads`, or `MiB of memory`.
        left: how many more can be had now.
        per_rank: how many a rank takes.
        per_world: how many a world takes beside.
        raised_by: what raises it; `{}` stands for how many are wanted, rounded up.
        of_each_world: whether each of several worlds has as much for itself.
    """

    what: str
    left: int
    per_rank: int
    per_world: int
    raised_by: str
    of_each_world: bool = False

    @property
    def bears(self) -> int:
        """How many ranks one world can have."""
        return max(0, (self.left - self.per_world) // self.per_rank)

    def shortage(self, ranks: int, *, worlds: int = 1) -> str:
        """Why worlds side by side cannot be had, how much is needed and what to do.

        Empty where they can.
        """
        worlds = 1 if self.of_each_world else worlds
        wanted = worlds * (self.per_world + ranks * self.per_rank)
        if wanted <= self.left:
            return ""
        of = f"{ranks} ranks need" if worlds == 1 else f"{worlds} worlds of {ranks} ranks need"
        remedy = self.raised_by.format(max(1024, 1 << (wanted * 5 // 4).bit_length()))
        return (
            f"{of} {wanted:,} {self.what}, but only {max(0, self.left):,} are available; {remedy}"
        )


def limits(*, memory: int = LEAST_MEMORY) -> list[Limit]:
    """Every limit that this system tells.

    Args:
        memory: what a rank has for itself, in bytes, where more is known than the least.
    """
    known = list(_descriptors())
    # A rank of MLX's ring has 6 threads, of gloo 5; a world has warden, server and keeper.
    known += [Limit("processes and threads", left, 6, 4, remedy) for left, remedy in _tasks()]
    return known + [
        Limit("MiB of memory", left // MIB, -(-memory // MIB), 0, remedy)
        for left, remedy in _memory()
    ]


def shortage(ranks: int, *, worlds: int = 1, memory: int = LEAST_MEMORY) -> str:
    """Why worlds of so many ranks cannot be had side by side here, and what to do.

    Empty where they can.
    """
    return next(
        filter(None, (limit.shortage(ranks, worlds=worlds) for limit in limits(memory=memory))), ""
    )


def _descriptors() -> Iterator[Limit]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    # In the harness, while a world starts: three pipes of two ends for each rank, and what its
    # backend hands to it. In the world's keeper: one end of each, beside what a rank keeps from its
    # subject's reach, from number 300 on.
    here = soft - psutil.Process().num_fds()
    for left, per_rank, per_world, of_each in ((here, 8, 40, False), (soft, 4, 340, True)):
        yield Limit(
            "descriptors",
            left,
            per_rank,
            per_world,
            "raise the limit with ulimit -n {}",
            of_each_world=of_each,
        )


def _tasks() -> Iterator[tuple[int, str]]:
    """How many more processes and threads, which the kernel counts alike, each limit allows."""
    listed = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0] if hasattr(resource, "RLIMIT_NPROC") else -1
    if os.geteuid() != 0 and soft not in (-1, resource.RLIM_INFINITY):  # root is not held to it
        counts = (
            info["num_threads"] or 1
            for info in listed
            if info["uids"] and info["uids"].real == os.getuid()
        )
        yield soft - sum(counts), "raise the limit with ulimit -u {}"
    for name in ("pid_max", "threads-max"):
        if (most := _number(PROC / "sys" / "kernel" / name)) is not None:
            running = sum(info["num_threads"] or 1 for info in listed)
            yield most - running, f"raise the limit with sysctl kernel.{name}={{}}"
    yield from _left_in_groups("pids", ("pids.max", "pids.current"))


def _memory() -> Iterator[tuple[int, str]]:
    yield (
        psutil.virtual_memory().available,
        "end the processes that use it, or run smaller worlds: --set 'matrix.ranks=[2]'",
    )
    yield from _left_in_groups("memory", ("memory.max", "memory.current"))
    yield from _left_in_groups("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def _left_in_groups(controller: str, files: tuple[str, str]) -> Iterator[tuple[int, str]]:
    """Yield what each control group of this process has left, from the innermost outwards."""
    for line in _lines(PROC / "self" / "cgroup"):
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = GROUPS / names if names else GROUPS
        innermost = root / path.lstrip("/")
        for group in (
            folder for folder in (innermost, *innermost.parents) if folder.is_relative_to(root)
        ):
            most, now = (_number(group / name) for name in files)
            if most is not None and now is not None:
                # What is only cached is given back when it is wanted.
                cached = (line.split() for line in _lines(group / f"{controller}.stat"))
                spare = sum(
                    int(count) for name, count in cached if name in ("inactive_file", "active_file")
                )
                yield most - now + spare, f"raise {files[0]} {GROUP_REMEDY}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # not there, or not for us
        return []


def _number(path: Path) -> int | None:
    """Return the number in a file; None where there is none, as in `max`."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


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
class RankCost:
    """Time and memory that a rank takes.

    Attributes:
        seconds: its part of the time until the last rank of a world has used its group once.
        private: bytes of memory that are its alone; 0 where the system does not tell.
        share: bytes with its share of what ranks have in common.
    """

    seconds: float
    private: int
    share: int


def measure_cost(
    pool: ServerPool, *, backend: str, warm: bool = True, program: bool = False, size: int = 8
) -> RankCost:
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
    return RankCost(
        seconds=min(seconds for seconds, _ in costs) / size, private=private, share=share
    )


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
        why = (
            f"{said[0].get('type')}: {said[0].get('message')}" if said else "no reason was reported"
        )
        raise ServerFailed(f"only {len(stood)} of {launch.size} ranks started: {why}")
    return (max(stood) - events[0].ns) / 1e9, prints
