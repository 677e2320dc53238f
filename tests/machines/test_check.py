"""`rankproof hosts check` says of each machine what is there, and of each lack what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.run.machines import differences


def checked(tmp_path: Path, ssh_config: Path, hosts: str, *more: str) -> tuple[int, Path]:
    path = tmp_path / "hosts"
    path.write_text(hosts)
    return main(["hosts", "check", str(path), "--ssh-config", str(ssh_config), *more]), path


@pytest.mark.slow
def test_a_machine_that_can(tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine with this environment can; its channel and its clock were measured over a real sshd."""
    code, _ = checked(tmp_path, ssh_config, "alpha slots=2\n", "--json")
    (found,) = json.loads(capsys.readouterr().out)
    assert code == 0, found["problems"]
    assert found["facts"]["executable"] == sys.executable
    assert found["up"] > 0 < found["down"]
    assert abs(found["clock"]["offset"]) <= found["clock"]["uncertainty"] + 0.01


@pytest.mark.slow
def test_each_lack_is_named(tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two names of one machine, a closed port, an unknown key and a user without a right are told apart."""
    code, _ = checked(tmp_path, ssh_config, "alpha\nbeta\nnobody-here\na-stranger\nno-key\n")
    shown = capsys.readouterr().out
    assert code == 1
    for words in (
        "alpha, 1 slot: yes",
        "it is the machine that alpha is",
        "Connection refused",
        "start sshd there",
        "accept it",
        "add your key to its",
        "not yet: beta, nobody-here, a-stranger, no-key",
    ):
        assert words in shown, shown


@pytest.mark.slow
def test_another_interpreter_is_another_environment(
    tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the named interpreter is not, the one that answers lacks what ranks need, and that is said."""
    code, _ = checked(tmp_path, ssh_config, "alpha\n", "--python", "/nowhere/python")
    shown = capsys.readouterr().out
    assert code == 1
    assert "packages not as here" in shown
    assert "name that interpreter by --python" in shown


def test_a_hostfile_with_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that ssh would take as an option is refused before anything is started."""
    code, path = checked(tmp_path, tmp_path, "-oProxyCommand=reboot\n")
    assert code == 64
    assert f"{path}:1:" in capsys.readouterr().err


def test_environments_are_compared_by_wheel() -> None:
    """A version, a wheel, and a package that one of them lacks each count; what installs packages does not."""
    here = {"a": ["1", "x"], "b": ["1", "x"], "c": ["1", "x"], "d": ["1", ""], "pip": ["1", "x"]}
    there = {"a": ["1", "x"], "b": ["2", "x"], "c": ["1", "y"], "d": ["1", ""], "e": ["1", "x"]}
    assert differences(there, here) == [
        "b 2 for 1",
        "c 1 from another wheel",
        "d 1 from an unknown wheel",
        "e only there",
    ]
