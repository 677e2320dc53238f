"""Runs to be reproduced: programs without a group, so that each takes about a second.

And people to reproduce them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.record.model import Record
from tests.kit import command_server
from tests.kit.commands import environment
from tests.kit.repositories import commit, git

WORDS = "scenarios/words"
RANK = r"""
fixed=$1
printf '{"event": "ready"}\n' >&3
read -r _ <&4
if [ "$fixed" != yes ] && [ "$RANKPROOF_RANK" != 0 ]; then
    printf '{"event": "rank.error", "values": {"type": "NoPrompt", "message": "nothing", "source": "split it"}}\n' >&3
    exit 1
fi
printf '{"event": "prompt", "values": {"words": 2}}\n' >&3
"""
SCENARIO = """
schema: 1
id: words
title: Every rank splits the prompt
question: Does every rank split the prompt?
subject:
  program: [sh, rank.sh, "{fixed}"]
  candidate: {with: {fixed: "yes"}}
  control:
    with: {fixed: "no"}
    must_fail: {check: split, ranks: nonzero, error: NoPrompt, source: split it}
matrix: {ranks: [2]}
world: {deadline: 20s, after_failure: 200ms}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: split, kind: equal, ranks: every, value: prompt.words, to: 2}
  - {id: ended, kind: exit, ranks: every, code: 0}
  - {id: nobody-left, kind: no-survivors}
"""


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    code: int
    out: str
    results: Path

    @property
    def folder(self) -> Path:
        return (self.results / "latest").resolve()

    @property
    def report(self) -> Path:
        return self.folder / "report.md"

    @property
    def record(self) -> Record:
        return Record.decode((self.folder / "results.json").read_bytes())


class Person:
    """Somebody at a machine: a home with a key, a results folder, and commands of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.trusts: list[str] = []
        (folder / "home").mkdir(parents=True)
        (folder / "desk").mkdir()

    def __call__(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Ran:
        given = [*arguments]
        if arguments[0] in ("run", "reproduce"):
            given += ["--results", str(self.results)]
        if arguments[0] in ("verify", "show", "reproduce"):
            given += [word for signer in self.trusts for word in ("--signer", signer)]
        there = environment(self.folder / "home", **(env or {}))
        done = command_server.run(*given, cwd=cwd or self.folder / "desk", env=there, merged=True)
        return Ran(done.returncode, done.stdout, self.results)

    @property
    def fingerprint(self) -> str:
        """Of this person's key, which the first run made."""
        key = self.folder / "home" / ".local" / "share" / "rankproof" / "signing_key.pub"
        shown = subprocess.run(
            ["ssh-keygen", "-lf", str(key)], check=True, capture_output=True, text=True
        )
        return shown.stdout.split()[1]

    def send(self, other: Person, ran: Ran) -> Path:
        """Hand a run's folder over, as a tar of it would; the other trusts the key from now on."""
        target = other.folder / "received" / ran.folder.name
        target.parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", str(ran.folder), str(target)], check=True)
        other.trusts = [self.fingerprint]
        return target


def repository(person: Person, files: Mapping[str, str] | None = None) -> Path:
    """A repository with the usual scenario, committed."""
    place = person.folder / "project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    usual_files = {
        ".gitignore": "results/\n",
        "scenarios/words/scenario.yaml": SCENARIO,
        "scenarios/words/rank.sh": RANK,
    }
    commit(place, {**usual_files, **(files or {})})
    return place


def made(ann: Person, project: Path, *more: str, scenario: str = WORDS) -> Ran:
    """Ann's run, of which nothing but its folder goes anywhere."""
    ran = ann("run", scenario, *more, cwd=project)
    assert "report:" in ran.out, ran.out
    return ran


def gone(ann: Person, project: Path) -> None:
    """The first machine cannot be reached any more."""
    shutil.rmtree(project)
    shutil.rmtree(ann.results)


def answer(ran: Ran) -> str:
    assert ran.record.comparison is not None, ran.out
    return ran.record.comparison.result.answer
