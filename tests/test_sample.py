"""The report in docs/sample verifies with this version, and names no machine."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.sample import MAKE, MOST_BYTES, SAMPLE, SCENARIO, check, main


def test_the_sample_verifies() -> None:
    """Signed, judged and rendered again, views too; small; without a folder, host or user."""
    assert main(["--check"]) == 0


def edited(place: Path) -> None:
    report = place / SCENARIO / "report.md"
    report.write_bytes(report.read_bytes().replace(b"PASS", b"FAIL", 1))


def with_a_host(place: Path) -> None:
    (place / "README.md").write_text("made on telling-host.example.org\n")


def with_a_folder(place: Path) -> None:
    (place / "README.md").write_text("made in /home/somebody\n")


def with_the_project(place: Path) -> None:
    (place / "README.md").write_text(f"made in {SAMPLE.parents[1]}\n")


def too_large(place: Path) -> None:
    (place / "README.md").write_bytes(b"x" * MOST_BYTES)


def by_another_key(place: Path) -> None:
    (place / "allowed_signers").write_text("")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (edited, MAKE),
        (by_another_key, MAKE),
        (with_a_host, "the name of this machine"),
        (with_a_folder, "names the folder /home/somebody"),
        (with_the_project, "names the folder"),
        (too_large, "belong into the repository"),
    ],
)
def test_a_sample_with_a_fault_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path], None], word: str
) -> None:
    """Each thing that is checked can fail, and says which file and what."""
    copy = tmp_path / "sample"
    shutil.copytree(SAMPLE, copy)
    monkeypatch.setattr(socket, "gethostname", lambda: "telling-host.example.org")
    fault(copy)
    assert any(word in problem for problem in check(copy))
