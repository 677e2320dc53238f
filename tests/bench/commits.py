"""Whether two commits of Rankproof judge the shipped scenarios alike: `nox -s commits -- BEFORE
[AFTER] [SCENARIO…]`.

Each commit is laid out beside the other, runs the scenarios that lie in its own tree, with the
seeds that they state, and leaves its records. Verdicts, outcomes, ranks, counts and reason codes
are compared; texts and times are not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("candidate", "control")
USAGE = 64


def records(commit: str, place: Path, scenarios: list[str]) -> dict[str, Any]:
    """Run a commit's scenarios in a tree of its own, and return what their records decide, by
    scenario.

    Args:
        commit: a revision of this repository; `.` is the working tree.
        place: an empty folder for its tree and its results.
        scenarios: folders or files, from the top of the repository; none for those that a plain
            `run` takes.
    """
    tree = ROOT
    if commit != ".":
        tree = place / "tree"
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, check=True
        )
    try:
        environment = {**os.environ, "PYTHONPATH": str(tree), "RANKPROOF_SIGNING_KEY": ""}
        command = [
            sys.executable,
            "-m",
            "harness.cli",
            "run",
            *scenarios,
            "--unsigned",
            "--results",
            str(place / "runs"),
        ]
        if (
            subprocess.run(
                command, cwd=tree, env=environment, check=False, stdout=sys.stderr
            ).returncode
            == USAGE
        ):
            raise SystemExit(f"{commit} cannot read what is to be run")
    finally:
        if tree != ROOT:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True
            )
    found = {}
    for path in sorted((place / "runs").glob("*/latest/results.json")):
        record = json.loads(path.read_text())
        found[record["scenario"]["id"]] = decided(record)
    return found


def decided(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record decides: of the scenario, and of each cell, arm and trial."""
    judgement = record["judgement"]
    cells = {}
    for cell in judgement["cells"]:
        arms = {arm: _arm(cell[arm]) for arm in ARMS if cell[arm] is not None}
        cells[cell["id"]] = {"verdict": cell["verdict"], "codes": _codes(cell["reasons"]), **arms}
    return {
        "verdict": judgement["verdict"],
        "as_expected": judgement["as_expected"],
        "cells": cells,
    }


def _arm(tally: Mapping[str, Any]) -> dict[str, Any]:
    counts = {key: tally[key] for key in ("counted", "failed", "voids", "as_stated")}
    return {
        **counts,
        "instead": _codes(tally["otherwise"]),
        "trials": [_trial(trial) for trial in tally["trials"]],
    }


def _trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": trial["seed"],
        "outcome": trial["outcome"],
        "as_stated": trial["as_stated"],
        "void": _codes([trial["void"]] if trial["void"] else []),
        "failures": [(failure["check"], failure["ranks"]) for failure in trial["failures"]],
        "strikes": [
            (one["fault"], one["rank"], one["struck"], one["proved"]) for one in trial["strikes"]
        ],
    }


def _codes(reasons: list[Any]) -> list[str]:
    return [one["code"] if isinstance(one, dict) else str(one) for one in reasons]


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Every place at which two values differ, in words."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys(), key=str):
            yield from differences(before.get(key), after.get(key), f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{place}[{index}]")
    elif before != after:
        yield f"{place}: {before!r} before, {after!r} now"


def main() -> int:
    """Compare; 1 where they differ, or where nothing was compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="a revision")
    parser.add_argument(
        "after", nargs="?", default=".", help="another one (default: the working tree)"
    )
    parser.add_argument(
        "scenarios", nargs="*", help="folders or files (default: what a plain run takes)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rankproof-commits-") as folder:
        places = [Path(folder, name) for name in ("before", "after")]
        for place in places:
            place.mkdir()
        before, after = (
            records(commit, place, options.scenarios)
            for commit, place in zip((options.before, options.after), places, strict=True)
        )
    found = list(differences(before, after))
    for line in found:
        print(line)
    cells = sum(len(scenario["cells"]) for scenario in before.values())
    tallies = [
        cell[arm]
        for one in before.values()
        for cell in one["cells"].values()
        for arm in ARMS
        if arm in cell
    ]
    trials = sum(len(tally["trials"]) for tally in tallies)
    what = f"{len(found)} differences" if found else "alike"
    print(f"{len(before)} scenarios, {cells} cells, {trials} trials: {what}")
    return 1 if found or not trials else 0


if __name__ == "__main__":
    raise SystemExit(main())
