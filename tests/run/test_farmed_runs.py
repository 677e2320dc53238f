"""Trials farmed over nodes: everything but Ray itself, which tests/world/starters/test_ray.py tries."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from harness.cli import main
from harness.reason import VoidCode
from harness.record.model import Record
from harness.run.farm.farm import PROGRAM
from harness.run.farm.node import BEAT, own_code
from harness.world.machines.agent import frame
from harness.world.starters.ray_relay import RayRelay
from tests.kit.commands import SCENARIO, SUBJECT, Ran, environment
from tests.run.farm.cluster import LocalCluster

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="our process on a node is a subreaper"
    ),
]
# Rank 1 of the control fails; and more trials than one node makes before the other has begun.
MANY = SCENARIO.replace(
    "trials: {candidate: 5, control: 2", "trials: {candidate: 12, control: 3, max_voids: 1"
)


@pytest.fixture
def farmed(tmp_path: Path, scenario: Callable[..., Path]) -> Callable[..., Ran]:
    """Run a scenario on nodes, in this process, with a key and a home of the test's."""

    def run(
        cluster: LocalCluster | None, *more: str, text: str = MANY, subject: str = SUBJECT
    ) -> Ran:
        folder, results = (
            scenario({"scenario.yaml": text, "subject.py": subject}),
            tmp_path / "results",
        )
        out, err = io.StringIO(), io.StringIO()
        on = ["--on", "ray"] if cluster is not None else []
        with (
            contextlib.chdir(tmp_path),
            patch.dict(os.environ, environment(tmp_path / "home"), clear=True),
            patch("harness.run.farm.farm.Cluster", lambda _where: cluster),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = main(["run", str(folder), "--results", str(results), *on, *more])
            finally:
                gc.enable()  # which a command, as a process, does without
        return Ran(code, out.getvalue(), err.getvalue(), results)

    return run


def shape(record: Record) -> object:
    """What has to be the same wherever trials are made."""
    cell = record.judgement.cells[0]
    return cell.verdict, [
        [
            (one.index, one.seed, one.outcome, [failure.check for failure in one.failures])
            for one in tally.trials
        ]
        for tally in cell.arms.values()
    ]


def test_a_farmed_run_is_the_local_one(
    farmed: Callable[..., Ran], rankproof: Callable[..., Ran]
) -> None:
    """Seeds, outcomes, verdict and counts are those of a local run.

    It verifies, and names no host unless asked to.
    """
    there = farmed(LocalCluster())
    assert there.code == 0, there.out + there.err
    folder, record = there.folder, there.record
    assert shape(record) == shape(farmed(None).record)
    assert record.run.farm is not None
    assert [node.lost for node in record.run.farm.nodes] == [None, None]
    assert {one.node for one in record.judgement.cells[0].arms["candidate"].trials} == {0, 1}
    assert all(
        b"secret-host" not in path.read_bytes() for path in folder.rglob("*") if path.is_file()
    )
    signer = there.out.rpartition("--signer ")[2].split()[0]
    assert rankproof("verify", str(folder / "report.md"), "--signer", signer).code == 0
    assert "on one of 2 nodes of a Ray cluster" in (folder / "report.md").read_text()


@pytest.mark.long
def test_a_lost_node_uses_one_void(farmed: Callable[..., Ran]) -> None:
    """What a lost node takes along is void with that reason and made again.

    Together that uses one of `max_voids`.
    """
    cluster = LocalCluster(lost={1: 2})
    ran = farmed(cluster, "--jobs", "2")
    assert ran.code == 0, ran.out + ran.err
    tallies = ran.record.judgement.cells[0].arms.values()
    voids = [one for tally in tallies for one in tally.trials if one.void is not None]
    assert 1 <= len(voids) <= 2
    assert {(one.void.code, one.node) for one in voids if one.void} == {(VoidCode.NODE_LOST, 1)}
    assert [tally.counted for tally in tallies] == [12, 3]
    farm = ran.record.run.farm
    assert farm is not None
    assert farm.nodes[1].lost == "NodeLost: the test cut it off"


ENDS = """
import os, signal

def meet(context, *, broken):
    thing = None if broken and context.rank else "thing"
    assert thing
    if context.rank:
        process = os.getpid()
        while b"harness.run.farm.agent" not in open(f"/proc/{process}/cmdline", "rb").read():
            process = int(open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[1])
        os.kill(process, signal.SIGKILL)
    context.emit("met", thing=thing)
"""


@pytest.mark.long
def test_our_process_gone_from_a_living_node_is_a_failure(farmed: Callable[..., Ran]) -> None:
    """A rank that ends what serves it does not void its trial: where its node is there, the trial
    failed.
    """
    ran = farmed(
        LocalCluster(count=2),
        subject=ENDS,
        text=MANY.replace("candidate: 12, control: 3", "candidate: 1, control: 1"),
    )
    tally = ran.record.judgement.cells[0].arms["candidate"]
    assert (ran.code, tally.failed, tally.voids) == (1, 1, 0), ran.out + ran.err


def other_seed(_number: int, part: bytes) -> bytes:
    """What a node sends, with another seed of the same length in it."""
    found, key, rest = part.partition(b'"seed":"')
    return part if not key else found + key + (b"2" if rest[:1] == b"1" else b"1") + rest[1:]


@pytest.mark.long
def test_a_node_that_is_not_believed_ends_the_run(farmed: Callable[..., Ran]) -> None:
    """A node that sends what it was not asked for is named with the reason, and nothing is
    signed.
    """
    ran = farmed(LocalCluster(count=1, spoil=other_seed))
    assert ran.code == 2
    assert (
        "node 0 sent an invalid response: it did not send the requested trial: its seed is"
        in ran.err
    )
    assert not (ran.results / "latest").exists()


def test_an_agent_ends_without_control(tmp_path: Path) -> None:
    """Our process on a node ends by itself when nothing has come for as long as its lease, and
    leaves no folder.
    """
    with patch.dict(os.environ, environment(tmp_path)), patch("tempfile.tempdir", str(tmp_path)):
        relay = RayRelay(
            PROGRAM, arguments=["1.0"], code=own_code(), interpreter=sys.executable, beat=BEAT
        )
        relay.write(frame({"ask": "facts", "order": 1}), 0)
        assert relay.read(60.0)  # it is there
    left = b"x"
    while left:
        assert select.select([relay._reads], [], [], 60.0)[0]
        left = os.read(relay._reads, 65536)
    assert not list(tmp_path.glob("rankproof-farm-*"))
