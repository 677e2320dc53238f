"""Measurements of real ranks, from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import SCENARIO, SUBJECT, Ran

pytestmark = pytest.mark.slow

MIB = 2**20
MEASURE = """
measure:
  - {id: memory, probe: rss, against: control}
  - {id: written, probe: written}
  - {id: read, probe: read}
  - {id: busy, probe: cpu}
  - {id: load, event: load}
"""
HOG = SUBJECT.replace(
    "    assert thing",
    """    import time
    context.emit('load.begin')
    if context.rank == 1:
        context.hog = None if False else globals().__setitem__('HOG', bytearray(b'x') * (300 * 2**20))
    context.emit('load.end')
    assert thing""",
).replace("        context.hog = None if False else globals()", "        globals()")


@pytest.mark.parametrize("start", ["warm", "fresh"])
@pytest.mark.whole
def test_300_mb_in_one_rank_show_there_and_only_there(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran], start: str
) -> None:
    """A rank that keeps 300 MiB shows 300 MiB within 5 %, and its neighbour does not."""
    folder = scenario({"scenario.yaml": SCENARIO + MEASURE, "subject.py": HOG})
    few = (
        "--set",
        "trials.candidate=3",
        "--set",
        "trials.accept.failure_rate_below=70%",
        "--set",
        "trials.control=3",
    )
    ran = rankproof("run", str(folder), "--set", f"world.start={start}", "--jobs", "2", *few)
    cell = ran.record.judgement.cells[0]
    found = {
        (row.id, row.rank): row.arms["candidate"]
        for row in cell.measured
        if "candidate" in row.arms
    }
    assert found["memory", 1].median == pytest.approx(300 * MIB, rel=0.05)
    assert found["memory", 0].median < 30 * MIB
    assert found["load", 1].median > found["load", 0].median
    assert found["busy", 1].median >= 0
    assert ran.record.run.jobs == 1
    report = (ran.folder / "report.md").read_text()
    assert "300." in report or "299." in report
    assert "not measured" in report  # the control fails before its subject ends
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", _signer(ran))
    assert verified.code == 0, verified.out


def _signer(ran: Ran) -> str:
    return ran.out.rsplit("--signer ", 1)[1].split()[0]
