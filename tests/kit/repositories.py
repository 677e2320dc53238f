"""Git repositories made for one test, with everything in them that must not run."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.run.arms.staging import StagedArm

Staged = dict[str, StagedArm]

FIXED = 'def greeting(rank):\n    return "hello"\n'
BROKEN = 'def greeting(rank):\n    return None if rank else "hello"\n'
SUBJECT = """
from proj import greeting

def meet(context):
    said = greeting(context.rank)
    assert said
    context.emit("met", said=said)
"""
SCENARIO = """
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
subject:
  entry: subject:meet
  candidate: {rev: fixed}
  control:
    rev: broken
    must_fail: {check: met, ranks: nonzero, error: AssertionError, source: assert said}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s, start: fresh}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: met, kind: event, ranks: every, event: met}
  - {id: ended, kind: exit, ranks: every, code: 0}
"""
NOBODY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
PERSON = (
    "-c",
    "user.name=somebody",
    "-c",
    "user.email=somebody@example.org",
    "-c",
    "commit.gpgsign=false",
)


def git(folder: Path, *arguments: str) -> str:
    """Run git, as whoever made the repository did."""
    done = subprocess.run(
        ["git", "-C", str(folder), *PERSON, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            **NOBODY,
        },
    )
    return done.stdout.strip()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def commit(folder: Path, files: Mapping[str, str], *, tag: str = "") -> str:
    """Commit files as the newest commit; `tag` names it."""
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "--allow-empty", "-m", tag or "more")
    if tag:
        git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")


def make(folder: Path, *, module: str = "proj.py") -> Path:
    """A repository with the tags `broken` and `fixed`, in this order.

    The working tree is at `fixed`.
    """
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {module: BROKEN, "README": "read me\n"}, tag="broken")
    commit(folder, {module: FIXED}, tag="fixed")
    return folder


def arm_with_traps(folder: Path, tripped: Path) -> None:
    """Let every hook, filter and monitor of the repository leave a file when it runs."""
    trap = folder.parent / "trap.sh"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >>"{tripped}"\ncat\n')
    trap.chmod(trap.stat().st_mode | stat.S_IXUSR)
    hooks = Path(git(folder, "rev-parse", "--absolute-git-dir")) / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-commit",
        "post-merge",
    ):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    settings = {
        "core.fsmonitor": str(trap),
        "filter.trap.smudge": str(trap),
        "filter.trap.required": "true",
        "core.hooksPath": str(hooks),
        "core.sshCommand": str(trap),
        "diff.external": str(trap),
    }
    for name, value in settings.items():
        git(folder, "config", name, value)
    (hooks.parent / "info").mkdir(exist_ok=True)
    (hooks.parent / "info" / "attributes").write_text("* filter=trap\n")


def content(folder: Path) -> dict[str, str]:
    """sha256 of every file of a folder, with its rights."""
    return {
        path.relative_to(folder).as_posix(): (
            f"{path.lstat().st_mode:o} "
            + (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        )
        for path in sorted(folder.rglob("*"))
    }


def scenario_in(folder: Path, text: str = SCENARIO, subject: str = SUBJECT) -> Path:
    write(folder, {"scenario.yaml": text, "subject.py": subject})
    return folder


def code(arm: StagedArm) -> dict[str, str]:
    return {
        path.relative_to(arm.folder).as_posix(): path.read_text()
        for path in sorted(arm.folder.rglob("*"))
        if path.is_file()
    }
