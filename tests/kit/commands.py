"""Scenarios written for one test, run for real."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from harness.cli import main
from harness.reason import SkipCode
from harness.record.model import Record
from tests.kit import command_server

ROOT = Path(__file__).parents[2]
SUBJECT = """
def meet(context, *, broken):
    thing = None if broken and context.rank else "thing"
    assert thing
    context.emit("met", thing=thing)
"""
SCENARIO = """
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
subject:
  entry: subject:meet
  candidate: {with: {broken: false}}
  control:
    with: {broken: true}
    must_fail: {check: met, ranks: nonzero, error: AssertionError, source: assert thing}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 2, accept: {failure_rate_below: 50%}}
checks:
  - {id: met, kind: event, ranks: every, event: met}
  - {id: ended, kind: exit, ranks: every, code: 0}
  - {id: nobody-left, kind: no-survivors}
"""
# The same in a group, for what has to do with one: a server that imports torch takes ten times as
# long to be ready.
MEETING = SCENARIO.replace("backend: [none]", "backend: [gloo]")
MEETING_SUBJECT = f"{SUBJECT}    context.group.barrier()\n"

ROOT_USER = hasattr(os, "geteuid") and os.geteuid() == 0
needs_mount = pytest.mark.skipif(
    not (ROOT_USER and sys.platform.startswith("linux") and shutil.which("mount")),
    reason="mounts a tmpfs: needs root",
)


@dataclass(frozen=True)
class Ran:
    """What a command of ours left."""

    code: int
    out: str
    err: str
    results: Path

    @property
    def folder(self) -> Path:
        """The newest run that ended."""
        return (self.results / "latest").resolve()

    @property
    def record(self) -> Record:
        assert (self.results / "latest").exists(), (
            f"no run ended: {self.code}\n{self.out}{self.err}"
        )
        return Record.decode((self.folder / "results.json").read_bytes())


def needs_packages(ran: Ran) -> None:
    """Skip the test where pip gets nothing: no index, no network, nothing in its cache."""
    for cell in ran.record.judgement.cells if (ran.results / "latest").exists() else ():
        if cell.verdict == "SKIPPED" and cell.reasons[0].code in (
            SkipCode.MACHINE_INTERPRETER,
            SkipCode.NETWORK_PACKAGES,
        ):
            pytest.skip(str(cell.reasons[0]))


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a command: a home of its own, so that a test never signs with somebody's
    key.
    """
    kept = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "VIRTUAL_ENV", "TMPDIR")
        if name in os.environ
    }
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "CI": "true", **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "harness.cli", *arguments]


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., Path]:
    """Write a scenario folder; `files` are added to the usual two or take their place."""

    def write(files: Mapping[str, str] | None = None) -> Path:
        folder = tmp_path / "scenario"
        for name, text in {
            "scenario.yaml": SCENARIO,
            "subject.py": SUBJECT,
            **(files or {}),
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    return write


@pytest.fixture
def rankproof(tmp_path: Path) -> Callable[..., Ran]:
    """Run a command of ours to its end, in a home and a results folder of the test's."""
    return partial(run_command, tmp_path)


def run_command(
    place: Path, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    """Run a command of ours to its end, in a home and a results folder at a place.

    In a process of its own, but for `verify`: an interpreter that imports all it needs takes longer
    than what it does.
    """
    results = place / "results"
    if arguments[0] == "verify" and cwd is None and env is None:
        return verified_here(place, *arguments)
    given = [*arguments, "--results", str(results)] if arguments[0] == "run" else list(arguments)
    done = command_server.run(
        *given, cwd=cwd or place, env=environment(place / "home", **(env or {}))
    )
    return Ran(done.returncode, done.stdout, done.stderr, results)


def verified_here(place: Path, *arguments: str) -> Ran:
    """`rankproof verify` in this process, in the home and the folder that it would have in its
    own.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(place),
        patch.dict(os.environ, environment(place / "home"), clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main([*arguments])
        finally:
            gc.enable()  # which a command, as a process, does without
    return Ran(code, out.getvalue(), err.getvalue(), place / "results")


HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> ]]> --> &amp; \x1b[31mred\x1b[0m"
    " \u202egnp.exe\u202c \x00\x0b [link](javascript:alert(3)) \"' onmouseover=alert(4) -----BEGIN"
    " SSH SIGNATURE----- \ufffe \U0001f600"
)


@dataclass(frozen=True)
class Pair:
    """Two signed runs: one that passes, and one whose candidate fails and says hostile things."""

    good: Path
    bad: Path
    key: Path

    @property
    def signer(self) -> str:
        done = subprocess.run(
            ["ssh-keygen", "-lf", self.key], capture_output=True, text=True, check=True
        )
        return done.stdout.split()[1]
