from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness.conformance.correct import MODEL, serving
from harness.conformance.room import PREFIX, room


@pytest.fixture
def slow() -> Iterator[str]:
    with serving() as base:
        yield base


def begun(base: str, folder: Path) -> subprocess.Popen[str]:
    """A conformance in a process of its own, when its room is there."""
    temporary = folder / "tmp"
    temporary.mkdir()
    line = [sys.executable, "-m", "harness.cli", "conformance", f"{base}/v1", "--unsigned"]
    line += ["--model", MODEL, "--results", str(folder / "results")]
    root = str(Path(harness.__file__).parent.parent)
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": root}
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    # A line of a row: its room has been made.
    process.stdout.readline()
    assert [*temporary.glob(f"{PREFIX}*")]
    return process


@pytest.mark.slow
def test_sigterm_ends_a_conformance_as_ctrl_c_does(slow: str, tmp_path: Path) -> None:
    """It leaves no room, and says so in one line."""
    process = begun(slow, tmp_path)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (2, "interrupted\n")
    assert not [*(tmp_path / "tmp").glob(f"{PREFIX}*")]


@pytest.mark.slow
def test_the_next_conformance_removes_the_room_of_one_that_was_killed(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves the room of one that lives, and a folder that may be about to be one."""
    process = begun(slow, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    [left] = (tmp_path / "tmp").glob(f"{PREFIX}*")
    young = tmp_path / "tmp" / f"{PREFIX}young"
    young.mkdir()
    with room():
        assert left.is_dir()
    process.kill()
    process.communicate(timeout=30)
    with room():
        assert not left.exists()
    assert young.is_dir()
