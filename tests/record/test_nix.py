"""What is recorded of a Nix environment, and what is not taken for one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.forms.distribution import wheel_digest
from harness.record import environment
from harness.record.environment import packages

WHEELS = b"wheels"
LOCK = b"lock"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git(folder: Path, *arguments: str) -> None:
    setting = (
        "-c",
        "user.name=somebody",
        "-c",
        "user.email=somebody@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    nobodys = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["git", *setting, "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        env=nobodys,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A committed flake."""
    folder = tmp_path / "project"
    (folder / "locks").mkdir(parents=True)
    (folder / "nix").mkdir()
    (folder / "flake.lock").write_bytes(LOCK)
    (folder / "locks" / "wheels.json").write_bytes(WHEELS)
    (folder / "nix" / "shell.nix").write_text("{ }")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "flake")
    return folder


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a Nix shell whose environment this interpreter is of."""
    told = {
        "flake_lock_sha256": sha256(LOCK),
        "nixpkgs": "sha256-a",
        "flake_lock_nixpkgs": "sha256-a",
    }
    (tmp_path / "told.json").write_text(json.dumps(told))
    monkeypatch.setenv("RANKPROOF_ENV", sys.prefix)
    monkeypatch.setenv("RANKPROOF_NIX", str(tmp_path / "told.json"))
    monkeypatch.setenv("RANKPROOF_SHELL", "/nix/store/x-rankproof-cpu.drv")
    monkeypatch.setenv("RANKPROOF_VARIANT", "cpu")
    monkeypatch.delenv("RANKPROOF_SOURCE", raising=False)


def test_a_clean_shell_is_described(project: Path, shell: None) -> None:
    """Store path, derivation and digests stand as the shell left them, and nothing is said to have
    changed.
    """
    found = environment.describe_nix(wheels_sha256=sha256(WHEELS), project=project)
    assert found is not None
    assert (found.environment, found.shell) == (sys.prefix, "/nix/store/x-rankproof-cpu.drv")
    assert (found.flake_lock_sha256, found.nixpkgs, found.as_locked) == (
        sha256(LOCK),
        "sha256-a",
        True,
    )
    assert (found.stale, found.changed, found.untracked, found.driver) == ([], [], [], [])


def test_what_differs_from_the_commit_is_named(project: Path, shell: None) -> None:
    """A changed file, a file that git does not know, and a lock newer than the shell are named.

    Results are not.
    """
    (project / "nix" / "shell.nix").write_text("{ } ")
    (project / "nix" / "new.nix").write_text("")
    (project / "flake.lock").write_bytes(b"newer")
    (project / "results").mkdir()
    (project / "results" / "report.md").write_text("")
    found = environment.describe_nix(wheels_sha256=sha256(WHEELS), project=project)
    assert found is not None
    assert found.stale == ["flake.lock"]
    assert found.changed == ["flake.lock", "nix/shell.nix"]
    assert found.untracked == ["nix/new.nix"]


def test_another_nixpkgs_is_noticed(project: Path, shell: None, tmp_path: Path) -> None:
    """A nixpkgs that flake.lock does not name is recorded as such, and a file that cannot be read
    leaves it unknown.
    """
    told = {"nixpkgs": "sha256-b", "flake_lock_nixpkgs": "sha256-a"}
    (tmp_path / "told.json").write_text(json.dumps(told))
    found = environment.describe_nix(wheels_sha256="0" * 64, project=project)
    assert found is not None
    assert found.as_locked is False
    assert found.stale == ["locks/wheels.json"]
    (tmp_path / "told.json").write_text("[1")
    found = environment.describe_nix(wheels_sha256="0" * 64, project=project)
    assert found is not None
    assert (found.as_locked, found.flake_lock_sha256) == (None, None)


def test_code_from_the_store_has_no_working_tree(
    project: Path, shell: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `nix run` the code is named by its store path, and no tree is looked at."""
    (project / "flake.lock").write_bytes(b"newer")
    monkeypatch.setenv("RANKPROOF_SOURCE", "/nix/store/x-source")
    found = environment.describe_nix(wheels_sha256=sha256(WHEELS), project=project)
    assert found is not None
    assert (found.source, found.stale, found.changed, found.untracked) == (
        "/nix/store/x-source",
        [],
        None,
        None,
    )


@pytest.mark.parametrize("why", ["no variable", "another folder", "not built by Nix", "gone"])
def test_a_variable_alone_makes_no_nix(
    project: Path, shell: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Unless this interpreter is the environment's own and Nix built it, there is no Nix in the
    record.
    """
    wheels: str | None = sha256(WHEELS)
    if why == "no variable":
        monkeypatch.delenv("RANKPROOF_ENV")
    elif why == "another folder":
        monkeypatch.setenv("RANKPROOF_ENV", str(tmp_path))
    elif why == "gone":
        monkeypatch.setenv("RANKPROOF_ENV", str(tmp_path / "gone"))
    else:
        wheels = None
    assert environment.describe_nix(wheels_sha256=wheels, project=project) is None


def test_a_package_has_one_digest_wherever_it_is_installed() -> None:
    """Scripts, compiled files and what the installer adds do not count.

    A file of the wheel does.
    """
    plain = "a/__init__.py,sha256=x,1\na-1.dist-info/METADATA,sha256=y,2\n"
    installed = (
        "../../../bin/a,sha256=shebang,9\na/__pycache__/__init__.cpython-313.pyc,,\n"
        "a-1.dist-info/INSTALLER,sha256=z,4\na-1.dist-info/METADATA,sha256=y,2\na-1.dist-info/RECORD,,\n"
        "a-1.dist-info/direct_url.json,sha256=w,3\na/__init__.py,sha256=x,1\n"
    )
    assert wheel_digest(installed) == wheel_digest(plain)
    assert wheel_digest(plain.replace("x", "q")) != wheel_digest(plain)
    assert all(package.record is None or len(package.record) == 64 for package in packages())
