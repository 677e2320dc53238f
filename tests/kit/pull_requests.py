"""A repository with a policy, a pull request in it, and one real run of its commit, copied and
signed again as needed.

The record of a copy is worked out by the program from what was changed, so every copy but a forged
one is a report that the program itself could have written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.gate.decision import Decision, Requirement, decide
from harness.record.facts import SCENARIO_PATH
from tests.kit import forge
from tests.kit.repositories import git, write

SCENARIO = """
schema: 1
id: words
title: Ranks say yes
question: Do they?
subject:
  path: ../../engine
  program: [sh, rank.sh, "{word}"]
  candidate: {with: {word: "yes"}}
  control:
    with: {word: "no"}
    must_fail: {check: said, ranks: every}
matrix: {ranks: [1, 2]}
world: {deadline: 20s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: said, kind: equal, ranks: every, value: said.word, to: "yes"}
  - {id: ended, kind: exit, ranks: every, code: 0}
"""
ENGINE = """# version 1
echo '{"event": "ready"}' >&3; read -r answer <&4
echo "{\\"event\\": \\"said\\", \\"values\\": {\\"word\\": \\"$1\\"}}" >&3
"""
POLICY = """programs: allowed
schema: 1
signers:
  roles: {developer: [alice], ci: [ci, ci-two], release: [release]}
require:
  - {scenario: words}
"""
NAMES = ("alice", "ci", "ci-two", "release", "mallory")
NAMESPACES = 'namespaces="report@rankproof"'
CELLS = ("ranks=1,backend=none", "ranks=2,backend=none")


@dataclass
class Keys:
    """A key pair for each name."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name

    def line(self, name: str, key: str | None = None) -> str:
        public = self.path(key or name).with_suffix(".pub").read_text().split()[:2]
        return f"{name} {NAMESPACES} {' '.join(public)}\n"


@dataclass
class Place:
    """A clone, at the head of a pull request, and a results folder."""

    repo: Path
    results: Path
    keys: Keys
    commit: str
    runs: int = 0

    @property
    def trusted(self) -> str:
        return git(self.repo, "rev-parse", "refs/remotes/origin/main")

    def trust(self, files: dict[str, str]) -> None:
        """Change files on the trusted branch; the pull request stays as it is."""
        head = git(self.repo, "rev-parse", "HEAD")
        git(self.repo, "checkout", "-q", "--detach", "refs/remotes/origin/main")
        write(self.repo, files)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", "policy")
        git(self.repo, "update-ref", "refs/remotes/origin/main", "HEAD")
        git(self.repo, "checkout", "-q", "--detach", head)

    def policy(self, *lines: str, base: str = POLICY) -> None:
        """Add lines to the trusted policy."""
        self.trust({".rankproof/policy.yaml": base + "".join(f"{line}\n" for line in lines)})

    def propose(self, files: dict[str, str]) -> str:
        """Commit more to the pull request."""
        write(self.repo, files)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", "proposed")
        self.commit = git(self.repo, "rev-parse", "HEAD")
        return self.commit

    def gate(self, *paths: Path, **more: Any) -> Decision:
        asked: dict[str, Any] = {
            "commit": "HEAD",
            "policy": ".rankproof/policy.yaml",
            "trusted_ref": "origin/main",
            "folder": self.repo,
            **more,
        }
        return decide(list(paths) or [self.results], **asked)


@dataclass
class Copy:
    """A copy of the real run, to be changed and signed again."""

    folder: Path
    place: Place
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def report(self) -> Path:
        return self.folder / "report.md"

    def facts(self, **changes: Any) -> Copy:
        """Change facts of the run; a mapping changes the keys it names."""
        forge.facts(self.folder, **changes)
        return self

    def made(self, when: datetime) -> Copy:
        """Let it have been made at another time."""
        tail = json.loads((self.folder / "evidence/run.json").read_text())["id"].rpartition("-")[2]
        return self.facts(id=f"{when:%Y%m%dT%H%M%SZ}-{tail}", made=f"{when:%Y-%m-%dT%H:%M:%SZ}")

    def says(self, arm: str, word: str, cells: Sequence[str] = ("ranks-1", "ranks-2")) -> Copy:
        """Let the ranks of an arm have said another word."""
        for cell in cells:
            for path in self.folder.glob(f"evidence/{cell}*/{arm}-*/events.jsonl"):
                text = path.read_text()
                for old in ("yes", "no"):
                    text = text.replace(
                        f'"values":{{"word":"{old}"}}', f'"values":{{"word":"{word}"}}'
                    )
                path.write_text(text)
        return self

    def fails(self) -> Copy:
        return self.says("candidate", "no")

    def is_inconclusive(self) -> Copy:
        return self.says("control", "yes")

    def scenario(self, change: Callable[[str], str]) -> Copy:
        """Let it have been made from another scenario file."""
        path = self.folder / SCENARIO_PATH
        path.write_text(change(path.read_text()))
        return self

    def sign(self, key: str = "ci") -> Copy:
        """Work the record out again, render it and sign it, as the program does."""
        forge.rebind(self.folder)
        forge.work_out(self.folder)
        forge.sign(self.folder, self.place.keys.path(key))
        return self


def not_met(found: Decision) -> dict[str, str]:
    """The requirements that are not met, with their words."""
    return {one.name: one.word for one in found.requirements if one.word != "MET"}


def row(found: Decision, name: str) -> Requirement:
    return next(one for one in found.requirements if one.name == name)
