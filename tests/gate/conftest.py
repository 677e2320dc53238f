"""A repository with a policy, a pull request in it, and one real run of its commit, copied and
signed again as needed.

The record of a copy is worked out by the program from what was changed, so every copy but a forged
one is a report that the program itself could have written.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.kit import command_server
from tests.kit.commands import environment
from tests.kit.pull_requests import (
    ENGINE,
    NAMES,
    POLICY,
    SCENARIO,
    Copy,
    Keys,
    Place,
)
from tests.kit.repositories import git, write


@pytest.fixture(scope="session")
def gate_keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("gate-keys")
    for name in NAMES:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    return Keys(folder)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, gate_keys: Keys) -> Path:
    """A repository with a pull request, and a real run of it: copied, never changed."""
    root = tmp_path_factory.mktemp("gate")
    repo = root / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    signers = "".join(gate_keys.line(name) for name in NAMES if name != "mallory")
    write(
        repo,
        {
            ".gitignore": "/results/\n",
            ".rankproof/policy.yaml": POLICY,
            ".rankproof/allowed_signers": signers,
            "scenarios/words/scenario.yaml": SCENARIO,
            "engine/rank.sh": ENGINE,
            "locks/cpu.txt": "a lock\n",
        },
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(repo, "checkout", "-q", "--detach")
    write(repo, {"engine/rank.sh": ENGINE.replace("version 1", "version 2")})
    git(repo, "commit", "-qam", "a pull request")
    given = (
        "run",
        "scenarios/words",
        "--results",
        "results",
        "--key",
        str(gate_keys.path("ci")),
        "--jobs",
        "2",
    )
    done = command_server.run(*given, cwd=repo, env=environment(root / "home"))
    assert done.returncode == 0, done.stdout + done.stderr
    return repo


@pytest.fixture
def place(original: Path, tmp_path: Path, gate_keys: Keys) -> Place:
    """A clone of one's own; its results folder is empty."""
    repo = tmp_path / "repo"
    shutil.copytree(original, repo, ignore=shutil.ignore_patterns("results"))
    results = repo / "results"
    results.mkdir()
    return Place(repo, results, gate_keys, git(repo, "rev-parse", "HEAD"))


@pytest.fixture
def copy(original: Path, place: Place) -> Callable[[], Copy]:
    """Copies of the real run, in the results folder; the first is the oldest."""

    def make() -> Copy:
        place.runs += 1
        folder = place.results / "words" / f"run-{place.runs}"
        shutil.copytree((original / "results/words/latest").resolve(), folder)
        when = datetime.now(UTC) - timedelta(minutes=30 - place.runs)
        return Copy(folder, place).made(when)

    return make
