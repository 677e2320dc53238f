"""Commands that only read a scenario or a run: they execute nothing of it, and ask no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import ROOT, SUBJECT, Pair, Ran

ISOLATED = ("unshare", "--user", "--map-root-user", "--net")
CONNECTS = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=1)"


@pytest.mark.whole
def test_nothing_of_a_scenario_is_executed(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran], tmp_path: Path
) -> None:
    """A module that leaves a mark when it is imported leaves one in a run, and in none of these
    commands.
    """
    mark = tmp_path / "executed"
    folder = str(scenario({"subject.py": f"open({str(mark)!r}, 'w').close()\n{SUBJECT}"}))
    for before in ("lint", "list"):
        assert rankproof(before, folder).code == 0
        assert not mark.exists(), before
    ran = rankproof("run", folder)
    assert ran.code == 0, ran.err
    assert mark.exists()
    mark.unlink()
    report = str(ran.folder / "report.md")
    signer = ("--signer", ran.record.run.signer.key if ran.record.run.signer else "")
    for after in (
        ("verify", report, *signer),
        ("show", report, *signer),
        ("show", "--issue", report, *signer),
        ("diff", report, report, *signer),
        ("reproduce", report, *signer, "--dry-run", "--i-trust-this-file"),
    ):
        done = rankproof(*after)
        # Two trials of a control are too few to compare.
        assert done.code in (0, 2), (after, done.out, done.err)
        assert not mark.exists(), after


@pytest.mark.slow
def test_a_report_is_verified_without_a_network(pair: Pair) -> None:
    """In a network namespace with no address, where connecting fails at once, verification passes
    every step.
    """
    if (
        shutil.which("unshare") is None
        or subprocess.run([*ISOLATED, "true"], check=False).returncode
    ):
        pytest.skip("no network namespace can be made here")
    alone = [*ISOLATED, sys.executable]
    assert subprocess.run([*alone, "-c", CONNECTS], capture_output=True, check=False).returncode
    argv = [
        *alone,
        "-m",
        "harness.cli",
        "verify",
        str(pair.good / "report.md"),
        "--signer",
        pair.signer,
    ]
    done = subprocess.run(
        argv,
        cwd=pair.good,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "verified: OK" in done.stdout) == (0, True), done.stdout + done.stderr
