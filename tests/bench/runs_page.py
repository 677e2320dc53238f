"""What the page over a thousand runs costs where one of them is new, beside asking for the status
of every file.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.verifying import environment, spent
from tests.kit.sample import SAMPLE, SCENARIO

RUNS = 1000
# All that is asked of the kernel, by the shortest program that asks for it.
PEER = """
import os, sys
for folder, names, files in os.walk(sys.argv[1]):
    for name in (*names, *files):
        os.lstat(f"{folder}/{name}")
"""
# The command, without the start of the interpreter and what it imports.
PAGE = """
import sys, time
from pathlib import Path
from harness.cli.arguments import policy_of
from harness.cli.commands import parser
from harness.cli.view import arguments, shown_runs
import harness.cli.reports, harness.run.replay, harness.trust.folder
from harness.trust.key import own_keys
options = parser("view", arguments).parse_args(["view", *sys.argv[1:]])
policy = policy_of(options, own=own_keys())
begun = time.process_time()
page = options.folder / "index.html"
runs = shown_runs(options.folder, policy=policy, is_default=True, page=page)
print(len(runs), sum(run.verdict == "PASS" for run in runs), time.process_time() - begun)
"""


def measure(folder: Path, *, rounds: int, runs: int = RUNS) -> dict[str, Any]:
    """Processor seconds of the command, of the page alone, and of the peer, medians of `rounds`.

    Returns:
        `runs`, `files`; seconds by `page`, `command` and `peer`; `ratio` of page to peer. Each page
        has one run that is new to it.
    """
    results = folder / "results" / "late-rank"
    results.mkdir(parents=True)
    for number in range(runs):
        _copy(results / f"run-{number}")
    sides = {"page": PAGE, "command": "", "peer": PEER}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    _await_settled(results)
    _page(folder, "first")
    for turn in range(rounds):
        for name, times in taken.items():
            if name != "peer":
                _copy(results / f"new-{name}-{turn}")
                _await_settled(results)
            times.append(_page(folder, name))
    seconds = {name: statistics.median(times) for name, times in taken.items()}
    files = sum(len(names) for _, _, names in os.walk(results))
    return {"runs": runs, "files": files, **seconds, "ratio": seconds["page"] / seconds["peer"]}


def show(found: Mapping[str, Any]) -> None:
    """Print the same for people."""
    print(f"the page over {found['runs']} runs with {found['files']} files, one of them new")
    print(f"  the page       {found['page']:.3f} s of processor time, {found['ratio']:.1f} times")
    print(f"  the command    {found['command']:.3f} s, with its start and imports")
    print(f"  lstat of all   {found['peer']:.3f} s, with the start of the interpreter")


def _copy(place: Path) -> None:
    # Not linked: another link is a change of the file's status.
    shutil.copytree(SAMPLE / SCENARIO, place)


def _await_settled(results: Path) -> None:
    """What changed within two seconds is verified again, which is not what is measured."""
    latest = max(path.stat().st_ctime for path in results.iterdir())
    time.sleep(max(0.0, latest + 3.0 - time.time()))


def _page(folder: Path, name: str) -> float:
    results = str(folder / "results")
    env = environment(folder) | {"XDG_CACHE_HOME": str(folder / "cache")}
    signers = ["--allowed-signers", str(SAMPLE / "allowed_signers"), "--at", "report"]
    if name == "peer":
        return spent([sys.executable, "-I", "-c", PEER, results], cwd=folder, env=env)[0]
    if name == "page":
        command = [sys.executable, "-c", PAGE, results, *signers]
        return _said(command, folder, env)
    return spent(
        [sys.executable, "-m", "harness.cli", "view", results, *signers], cwd=folder, env=env
    )[0]


def _said(command: list[str], folder: Path, env: Mapping[str, str]) -> float:
    import subprocess

    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    runs, passed, seconds = done.stdout.split()
    if runs != passed:
        raise SystemExit(f"{passed} of {runs} runs are verified")
    return float(seconds)
