"""What is captured of a machine, and what is not."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from harness.reason import SkipCode
from harness.record import environment
from harness.record.facts import EnvironmentFacts
from harness.record.repository import without_credentials
from harness.record.skips import unmet
from harness.scenario import Needs


@pytest.fixture(scope="module")
def here() -> EnvironmentFacts:
    return environment.capture()


def test_packages_have_digests_and_the_host_has_no_name(here: EnvironmentFacts) -> None:
    """Every package stands with the digest of its RECORD where it has one.

    The machine is a digest of its boot.
    """
    packages = {package.name.lower(): package for package in here.packages}
    assert packages["pydantic"].record is not None
    assert len(packages["pydantic"].record) == 64
    assert list(packages) == sorted(packages)
    import socket

    assert socket.gethostname() not in here.model_dump_json()


def test_names_and_versions_are_those_that_python_gives(here: EnvironmentFacts) -> None:
    """The fields are read without the description behind them, and say what the whole file says."""
    theirs = {}
    for distribution in importlib.metadata.distributions():
        theirs.setdefault(distribution.metadata["Name"], distribution.metadata["Version"])
    assert {package.name: package.version for package in here.packages} == theirs


def test_a_distribution_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was worked out from a text is not taken for another: a changed RECORD has another
    digest, a name its own.
    """
    info = tmp_path / "changing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: changing\nVersion: 1.0\n\nName: other\n"
    )
    (info / "RECORD").write_text("changing.py,sha256=a,1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def seen() -> tuple[str, str | None]:
        (package,) = [one for one in environment.packages() if one.name == "changing"]
        return package.version, package.record

    before = seen()
    assert seen() == before
    (info / "RECORD").write_text("changing.py,sha256=b,1\n")
    assert seen()[1] != before[1]
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: changing\nVersion: 1.1\n")
    assert seen()[0] == "1.1"


def test_only_listed_variables_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable outside the allow-list is counted, never shown.

    A listed one stands with its value.
    """
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    found = environment.capture()
    assert "planted" not in found.model_dump_json()
    assert found.variables["TOKENIZERS_PARALLELISM"] == "false"
    assert found.other_variables >= 1


def test_an_environment_that_nox_made_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The note that nox leaves tells variant and lock, with or without nox.

    One that cannot be read says nothing.
    """
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    note = tmp_path / environment.MADE
    note.write_text(json.dumps({"variant": "cpu", "lock": "cpu.txt", "lock_sha256": "a" * 64}))
    found = environment.capture()
    assert (found.variant, found.lock, found.lock_sha256) == ("cpu", "cpu.txt", "a" * 64)
    note.write_text("[not")
    assert environment.capture().lock is None


@pytest.mark.parametrize(
    ("needs", "missing"),
    [
        ({}, None),
        ({"cores": 10_000}, SkipCode.MACHINE_CORES),
        ({"memory": "900TiB"}, SkipCode.MACHINE_MEMORY),
        ({"nix": True}, SkipCode.MACHINE_NIX),
        ({"cores": 1, "memory": "1MiB"}, None),
    ],
)
def test_what_is_missing_is_said(
    here: EnvironmentFacts, needs: dict[str, object], missing: SkipCode | None
) -> None:
    """A need that is not met is the reason of a skip; one that is met says nothing."""
    # These tests pass inside `nix develop` too.
    found = unmet(Needs.model_validate(needs), here.model_copy(update={"nix": None}))
    assert (found and found.code) == missing


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:token@example.org/team/repo.git", "https://example.org/team/repo.git"),
        ("https://token@example.org/repo", "https://example.org/repo"),
        ("git@example.org:team/repo.git", "example.org:team/repo.git"),
        ("ssh://git@example.org:22/repo", "ssh://example.org:22/repo"),
        ("/somebody/repo", None),
        ("file:///somebody/repo", None),
        ("https://example.org/repo.git?private_token=token#token", "https://example.org/repo.git"),
        ("https://user:to/ken@example.org/repo", None),
        ("user:token@example.org:repo", "example.org:repo"),
        ("ssh://somebody@example.org/~somebody/repo", "ssh://example.org/~/repo"),
        ("example.org:/home/somebody/repo", "example.org:/~/repo"),
        ("ext::sh -c 'connect token'", None),
        ("C:\\Users\\somebody\\repo", None),
    ],
)
def test_a_remote_is_shown_without_credentials(address: str, shown: str | None) -> None:
    """User, password and token never reach the record, and a local path is nobody's business."""
    assert without_credentials(address) == shown
