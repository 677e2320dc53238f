"""Worlds that the system's limits do not bear: known before the first trial, and said with what
raises the limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.commands import environment

SCENARIO = """
schema: 1
id: sixty-four
title: Sixty-four programs
question: Does each of them know how many they are?
role: upstream
subject: {program: [sh, rank.sh]}
matrix: {ranks: [2, 64], backend: [none]}
trials: {candidate: 2}
checks: [{id: told, kind: event, ranks: every, event: told}]
"""
PROGRAM = """
echo '{"event": "ready"}' >&3
read answer <&4
echo '{"event": "told"}' >&3
"""


def run(folder: Path, *, descriptors: int) -> tuple[str, dict[str, object]]:
    """What `rankproof run` prints where so many descriptors are allowed, and why cells were
    skipped.
    """
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "rank.sh").write_text(PROGRAM)
    command = (
        f"ulimit -n {descriptors} && exec {sys.executable} -m harness.cli run {folder} --jobs 2"
        " --unsigned"
    )
    done = subprocess.run(
        ["sh", "-c", f"{command} --results {folder / 'results'}"],
        env=environment(folder / "home"),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    facts = folder / "results" / "sixty-four" / "latest" / "evidence" / "run.json"
    cells = json.loads(facts.read_text())["cells"]
    return done.stdout + done.stderr, {cell["id"]: cell["skipped"] for cell in cells}


@pytest.mark.whole
def test_a_cell_that_is_too_large_for_a_limit_is_skipped(tmp_path: Path) -> None:
    """The reason names the limit, how much is needed and what raises it; the smaller cell runs."""
    said, skipped = run(tmp_path, descriptors=400)
    assert skipped["ranks=2,backend=none"] is None
    reason = skipped["ranks=64,backend=none"]
    assert isinstance(reason, dict)
    assert reason["code"] == "skip:cell-limit"
    assert reason["text"].startswith("64 ranks need 552 descriptors, but only ")
    assert reason["text"].endswith(" are available; raise the limit with ulimit -n 1024")
    assert reason["text"] in said


@pytest.mark.whole
def test_fewer_worlds_run_side_by_side_where_that_is_too_much(tmp_path: Path) -> None:
    """One world of 64 at a time is borne, two are not: so one lane makes all trials, and says
    why.
    """
    said, skipped = run(tmp_path, descriptors=700)
    assert set(skipped.values()) == {None}
    assert (
        "2 worlds at a time are too many for this machine: 2 worlds of 64 ranks need 1,104"
        " descriptors, but only " in said
    )
