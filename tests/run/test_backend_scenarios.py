"""The scenarios about the tokenizer's backend under a quota: one runs here, and its answer follows
the fault.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.scenario import load_scenario, scenario_files
from tests.kit.commands import ROOT, Ran, needs_packages

FOLDER = ROOT / "scenarios" / "tokenizer-backend-under-quota"


def test_findings_about_others_are_marked_so() -> None:
    """None of these scenarios gates anything, each runs on demand, and each names the public thread
    it is about.
    """
    loaded = [load_scenario(file) for file in scenario_files(FOLDER)]
    assert len(loaded) >= 9
    for found in loaded:
        assert (found.scenario.role, "on-demand" in found.scenario.tags) == ("upstream", True)
        assert "#" in found.scenario.question
        assert [
            note
            for note in found.notes
            if "one rank" not in note.message and "**" not in note.message
        ] == []
        # What a run with other versions may turn over stands nowhere in what it is called.
        assert not any(digit in found.scenario.title for digit in ("5.5", "5.6"))


@pytest.mark.long
def test_one_refused_request_is_found_and_a_healthy_hub_changes_the_verdict(
    rankproof: Callable[..., Ran], kept_environments: dict[str, str]
) -> None:
    """The symptom is found with the trace of what was swallowed.

    Without the fault nothing is claimed.
    """
    file = str(FOLDER / "one-request.yaml")
    ran = rankproof("run", file, "--unsigned", env=kept_environments)
    needs_packages(ran)
    assert (ran.code, ran.record.judgement.verdict) == (0, "PASS"), ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    seen = events(ran, cell.control.trials[0].evidence)
    (slot,) = [values for name, values in seen if name == "tokenizer.slot"]
    # The chain of what was raised does not know of the refusal; what was handled while a debug line
    # was written does.
    assert [link["type"] for link in slot["error"]] == ["NotImplementedError"]
    (logs,) = [values for name, values in seen if name == "tokenizer.logs"]
    handled = [link for row in logs["messages"] for link in row.get("handling", [])]
    assert 429 in {link.get("status") for link in handled}
    assert 429 in {values["status"] for name, values in seen if name == "hub.request"}
    measured = {row.id: row.arms for row in cell.measured}
    assert measured["requests"]["control"].median > 0
    assert measured["peak-memory"]["control"].median > 1 << 20

    few = ("--set", "trials.candidate=1", "--set", "trials.control=1")
    healthy = rankproof(
        "run", file, "--unsigned", "--set", "faults=[]", *few, env=kept_environments
    )
    assert healthy.record.judgement.verdict == "INCONCLUSIVE"
    assert "both arms have the same code" in healthy.record.judgement.reasons[0]
    cells = healthy.record.judgement.cells
    assert [
        (cell.control.failed, cell.control.as_stated) for cell in cells if cell.control is not None
    ] == [(0, 0)]


def events(ran: Ran, evidence: str) -> list[tuple[str, dict[str, Any]]]:
    lines = [json.loads(line) for line in (ran.folder / evidence).read_text().splitlines()]
    return [(line["name"], line["values"]) for line in lines]


@pytest.mark.slow
def test_the_sweeps_tables_count_every_trial_and_come_out_the_same(tmp_path: Path) -> None:
    """Trials held void are counted, the model follows the single loads, and the picture's bytes are
    always the same.
    """
    quota = evidence(tmp_path / "quota", [(2, [0, 0, 0, 0]), (16, [16, 15, 16, 16])])
    chance = evidence(tmp_path / "chance", [(1, [0, 1, 0, 0]), (2, [0, 0, 1, 0])])
    told = [sweep(quota, chance, tmp_path / name) for name in ("one.svg", "two.svg")]
    assert told[0].returncode == 0, told[0].stderr
    assert told[0].stdout == told[1].stdout
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "| 64 | 64 | 63 | 63/64 = 98.4%" in told[0].stdout
    assert "| 2 | 1/8 = 12.5%" in told[0].stdout
    assert f"| {1 - (1 - 2 / 12) ** 2:.1%} |" in told[0].stdout
    (quota / "t0.jsonl").write_text("")
    assert (
        "0 pools told their end, 4 were started" in sweep(quota, chance, tmp_path / "no.svg").stderr
    )
    assert not (tmp_path / "no.svg").exists()


def sweep(*arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "sweep.py"), *map(str, arguments)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip


def evidence(folder: Path, cells: list[tuple[int, list[int]]]) -> Path:
    """Write what a sweep's run leaves: per cell one trial of four ranks, with how many loads of
    each failed.
    """
    folder.mkdir()
    found = []
    for index, (threads, failed) in enumerate(cells):
        lines = [
            {"name": "pool.done", "values": {"loads": threads, "failed": bad}} for bad in failed
        ]
        for number in range(threads * 4):
            status = 429 if number < sum(failed) else 200
            lines.append(
                {"name": "hub.request", "values": {"role": "model_info", "status": status}}
            )
        (folder / f"t{index}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        trial = {"evidence": f"t{index}.jsonl", "outcome": "fail" if any(failed) else "void"}
        found.append({"id": f"threads={threads}", "ranks": 4, "candidate": {"trials": [trial]}})
    (folder / "results.json").write_text(json.dumps({"judgement": {"cells": found}}))
    return folder
