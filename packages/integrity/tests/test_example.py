"""The example of the README: it runs as it stands, and a stage that is killed changes no token."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_stages.py"


def stages_of(pid: int) -> list[int]:
    """The processes that it started, in the order of their start."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(map(int, children))


def generated(key: Path, *, kill_at: tuple[int, ...]) -> list[bytes]:
    """What the client prints, while a stage is ended at some positions."""
    with subprocess.Popen(
        [sys.executable, EXAMPLE, key], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if len(lines) in kill_at:
                os.kill(stages_of(running.pid)[len(lines) % 3], signal.SIGKILL)
        assert running.stderr.read() == b""
        assert running.wait(60) == 0
    return lines


@pytest.mark.slow
def test_a_killed_stage_is_recovered(tmp_path: Path) -> None:
    """The tokens are those of an undisturbed run, in order, each once."""
    pytest.importorskip("numpy")
    key = tmp_path / "key"
    key.write_text(os.urandom(32).hex())
    key.chmod(0o600)
    calm = generated(key, kill_at=())
    assert [int(line.split()[0]) for line in calm] == list(range(40))
    assert len({line.split()[1] for line in calm}) > 5
    assert generated(key, kill_at=(10, 25)) == calm


def test_it_is_short() -> None:
    """From nothing to three stages with a client in a hundred lines of code."""
    lines = EXAMPLE.read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 100
