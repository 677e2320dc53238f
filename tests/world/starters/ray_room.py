"""Nodes of a real cluster of Ray on the machines of a machine room: each its own network, name,
/tmp and clock.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.world.machines import machine_room
from tests.world.machines.machine_room import Room

WITHIN = 400.0
# On a busy machine Ray's processes take long to find each other.
PATIENT = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


@dataclass(frozen=True)
class Nodes:
    """A cluster.

    Attributes:
        room: whose machines are its nodes; the first is the head.
        processes: each node's own, in the same order.
    """

    room: Room
    processes: Sequence[subprocess.Popen[bytes]]

    @property
    def address(self) -> str:
        """Of the head's client server, as `--hosts` and `--on` take it."""
        return f"ray://{address(self.room, 0)}:10001"

    def relays(self, index: int) -> list[psutil.Process]:
        """The actors of ours on a node."""
        return [one for one in self._below(index) if "Relay" in _called(one)]

    def kill(self, index: int) -> None:
        """End all of Ray on a node at once, as the end of its machine would."""
        for one in self._below(index):
            with contextlib.suppress(psutil.Error):
                one.kill()

    def _below(self, index: int) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.processes[index].pid).children(recursive=True)
        return []


def address(room: Room, index: int) -> str:
    """Of a machine."""
    (name,) = (
        one.partition(" ")[2].strip() for one in _lines(room.config, "HostName")[index : index + 1]
    )
    return name


def _lines(path: Path, word: str) -> list[str]:
    return [
        line.strip()
        for line in path.read_text().splitlines()
        if line.strip().startswith(f"{word} ")
    ]


def _called(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@contextlib.contextmanager
def nodes(folder: Path, count: int, *, cores: int = 2) -> Iterator[Nodes]:
    """Machines, with a node of one cluster on each; all of it goes with this."""
    with machine_room.room(folder, count, slots=cores) as room, contextlib.ExitStack() as made:
        processes: list[subprocess.Popen[bytes]] = []
        for index, pid in enumerate(room.pids):
            where = (
                ["--address", f"{address(room, 0)}:6379"] if index else ["--head", "--port", "6379"]
            )
            words = ["nsenter", "-t", str(pid), "-n", "-m", "-u", "-T", "--"]
            words += [sys.executable, "-m", "ray.scripts.scripts"]
            words += [
                "start",
                *where,
                "--node-ip-address",
                address(room, index),
                "--num-cpus",
                str(cores),
                "--block",
            ]
            # The client server of this Ray is told 0 otherwise.
            words += ["--runtime-env-agent-port", "6400"]
            words += ["--object-store-memory", "80000000", "--disable-usage-stats"]
            words += [] if index else ["--include-dashboard=false"]
            log = folder / f"ray-{index}.log"
            env = {**os.environ, **PATIENT, "TMPDIR": "/tmp"}  # noqa: S108 - the machine's own
            with log.open("wb") as output:
                process = subprocess.Popen(
                    words, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env
                )
            made.callback(_end, process)
            processes.append(process)
            until = time.monotonic() + WITHIN
            while b"Ray runtime started" not in log.read_bytes():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.1)
        yield Nodes(room, processes)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                one.kill()
    process.kill()
    process.wait()
