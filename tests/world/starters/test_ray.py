"""Trials farmed over a real cluster of Ray: `nox -s farm`."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.kit.commands import SCENARIO, SUBJECT, Ran, command, environment, rankproof, scenario

__all__ = ["rankproof", "scenario"]  # fixtures

pytest.importorskip("ray", reason="Ray is not installed here: nox -s farm")
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

# Nodes of one machine: processes of a process, which ends them when nobody holds its standard input
# any more.
CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster
cluster = Cluster()
nodes = [cluster.add_node(num_cpus=2, object_store_memory=80_000_000, include_dashboard=False) for _ in range(3)]
cluster.wait_for_nodes()
raylets = [one.process.pid for node in nodes for one in node.all_processes["raylet"]]
print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
sys.stdin.read()
cluster.shutdown()
"""
MANY = SCENARIO.replace(
    "trials: {candidate: 5, control: 2", "trials: {candidate: 20, control: 3, max_voids: 1"
)


@dataclass(frozen=True)
class Nodes:
    """A cluster: its address, and the process of each node; the first is its head."""

    address: str
    raylets: list[int]
    temporary: Path

    def env(self) -> dict[str, str]:
        """Under which a command of ours finds it."""
        return {
            "RAY_ADDRESS": self.address,
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
            ),
        }

    def left(self) -> list[int]:
        """Processes that a farm started on any node."""
        found = []
        for process in psutil.process_iter():
            try:
                if any(
                    "rankproof-farm-" in word and str(self.temporary) in word
                    for word in process.cmdline()
                ):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes, whose temporary folder is short: Ray makes sockets there.

    The last test ends one of them.
    """
    temporary = Path(tempfile.mkdtemp(prefix="f"))
    env = {
        **os.environ,
        "TMPDIR": str(temporary),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    env |= {"RAY_raylet_start_wait_time_s": "300"}  # a busy machine takes long over three nodes
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        said = next((line for line in process.stdout if line.startswith("{")), "")
        yield Nodes(**json.loads(said), temporary=temporary)
        process.stdin.close()
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture
def began(tmp_path: Path, scenario: Callable[..., Path]) -> Iterator[int]:
    """A scenario of which every trial writes a byte as it begins, and where they are read."""
    fifo = tmp_path / "began"
    os.mkfifo(fifo)
    says = f"""
    import os
    if not context.rank:
        os.write(os.open({str(fifo)!r}, os.O_WRONLY), b"x")
"""
    scenario(
        {
            "scenario.yaml": MANY,
            "subject.py": SUBJECT.replace("    thing =", says + "    thing =", 1),
        }
    )
    descriptor = os.open(fifo, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def await_trials(began: int, *, count: int, of: subprocess.Popen[str]) -> None:
    """Wait until so many have begun."""
    until = time.monotonic() + 300.0
    while count > 0:
        if select.select([began], [], [], 1.0)[0]:
            count -= len(os.read(began, count))
        assert of.poll() is None, of.communicate()[0]
        assert time.monotonic() < until


def start(place: Path, nodes: Nodes) -> subprocess.Popen[str]:
    """Begin to run the scenario on the nodes."""
    words = ["run", str(place / "scenario"), "--on", "ray", "--results", str(place / "results")]
    env = environment(place / "home", **nodes.env())
    return subprocess.Popen(
        command(*words),
        env=env,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_on_any_node(
    number: signal.Signals, tmp_path: Path, nodes: Nodes, began: int
) -> None:
    """However control ends, no process of the farm and no folder of it is left on any node."""
    with start(tmp_path, nodes) as process:
        await_trials(began, count=4, of=process)
        there = nodes.left()
        assert len(there) >= 3
        process.send_signal(number)
        process.communicate(timeout=60)
    _, left = psutil.wait_procs(
        [psutil.Process(pid) for pid in there if psutil.pid_exists(pid)], timeout=20
    )
    assert (left, nodes.left()) == ([], [])
    assert not list(nodes.temporary.glob("rankproof-farm-*"))


def test_a_killed_node_costs_one_void(
    tmp_path: Path, nodes: Nodes, began: int, rankproof: Callable[..., Ran]
) -> None:
    """What a node that is killed midway takes along is void and made again.

    The run passes, and verifies.
    """
    with start(tmp_path, nodes) as process:
        await_trials(began, count=6, of=process)
        raylet = psutil.Process(nodes.raylets[2])
        for one in (raylet, *raylet.children(recursive=True)):
            one.kill()
        said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    ran = Ran(0, said, "", tmp_path / "results")
    farm, cell = ran.record.run.farm, ran.record.judgement.cells[0]
    assert farm is not None
    voids = {
        one.node for tally in cell.arms.values() for one in tally.trials if one.void is not None
    }
    assert voids == {node.number for node in farm.nodes if node.lost is not None}
    assert [tally.counted for tally in cell.arms.values()] == [20, 3]
    signer = said.rpartition("--signer ")[2].split()[0]
    assert rankproof("verify", str(ran.folder / "report.md"), "--signer", signer).code == 0
