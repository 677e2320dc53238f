"""A command that is forked from a process of ours is the command that people start."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import command_server
from tests.kit.commands import command, environment


def test_a_forked_command_answers_as_a_started_one(
    scenario: Callable[..., Path], tmp_path: Path
) -> None:
    """Exit code, output and errors are the same, in the folder and under the variables that it is
    given.
    """
    scenario()
    for words, more in (
        ("list scenario", {}),
        ("run --jobs 0", {}),
        ("lint nowhere", {"HOME": "/nowhere"}),
    ):
        env = environment(tmp_path, **more)
        forked = command_server.run(*words.split(), cwd=tmp_path, env=env)
        started = subprocess.run(
            command(*words.split()),
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)
        assert forked.returncode == started.returncode
        assert forked.stdout or forked.stderr


def test_what_an_interpreter_reads_when_it_starts_gets_one(tmp_path: Path) -> None:
    """A variable of Python's own acts on a command as it would on a user's."""
    said = command_server.run(
        "--version", cwd=tmp_path, env=environment(tmp_path, PYTHONVERBOSE="1")
    )
    assert said.returncode == 0
    assert "import 'harness.cli'" in said.stderr
    assert command_server.run("--version", cwd=tmp_path, env=environment(tmp_path)).stderr == ""


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_said_to(
    scenario: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for it hears of the limit, and not of files that are missing."""
    monkeypatch.setattr(command_server, "ENDS_WITHIN", 1)
    folder = scenario(
        {"subject.py": "import time\n\ndef meet(context, **_):\n    time.sleep(20)\n"}
    )
    with pytest.raises(subprocess.TimeoutExpired, match="timed out after 1 seconds"):
        command_server.run("run", str(folder), cwd=tmp_path, env=environment(tmp_path))
