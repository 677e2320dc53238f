"""`rankproof hosts check` says of each machine what is there, and of each lack what to do."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.run.machines.readiness import differences, problems_of
from harness.world.machines import agent


def checked(tmp_path: Path, ssh_config: Path, hosts: str, *more: str) -> tuple[int, Path]:
    path = tmp_path / "hosts"
    path.write_text(hosts)
    return main(["hosts", "check", str(path), "--ssh-config", str(ssh_config), *more]), path


@pytest.mark.slow
def test_a_machine_that_can(
    tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine with this environment can.

    Its channel and its clock were measured over a real sshd.
    """
    code, _ = checked(tmp_path, ssh_config, "alpha slots=2\n", "--json")
    (found,) = json.loads(capsys.readouterr().out)
    assert code == 0, found["problems"]
    assert found["facts"]["executable"] == sys.executable
    assert found["up"] > 0 < found["down"]
    assert abs(found["clock"]["offset"]) <= found["clock"]["uncertainty"] + 0.01


@pytest.mark.whole
def test_each_lack_is_named(
    tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two names of one machine, a closed port, an unknown key and a user without a right are told
    apart.
    """
    code, _ = checked(tmp_path, ssh_config, "alpha\nbeta\nnobody-here\na-stranger\nno-key\n")
    shown = capsys.readouterr().out
    assert code == 1
    for words in (
        "alpha, 1 slot: yes",
        "it is the same machine as alpha",
        "Connection refused",
        "start sshd on that machine",
        "accept it",
        "add your key to its",
        "not ready: beta, nobody-here, a-stranger, no-key",
    ):
        assert words in shown, shown


@pytest.mark.slow
def test_another_interpreter_is_another_environment(
    tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the named interpreter is not, the one that answers lacks what ranks need, and that is
    said.
    """
    code, _ = checked(tmp_path, ssh_config, "alpha\n", "--python", "/nowhere/python")
    shown = capsys.readouterr().out
    assert code == 1
    assert "differ from the packages on this machine" in shown
    assert "select that interpreter with --python" in shown


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["missing", "no-right", "not-a-program", "fails"])
def test_a_python_that_cannot_be_executed(
    tmp_path: Path, ssh_config: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Not there, without the right, of another format, or ending at once: it is executed, and the
    answer is no.
    """
    python = tmp_path / "python"
    if kind != "missing":
        texts = {
            "no-right": "#!/bin/sh\n",
            "not-a-program": "\x7fELF",
            "fails": "#!/bin/sh\nexit 3\n",
        }
        python.write_text(texts[kind])
        python.chmod(0o600 if kind == "no-right" else 0o700)
    code, _ = checked(tmp_path, ssh_config, "alpha\n", "--python", str(python))
    shown = capsys.readouterr().out
    assert code == 1
    assert "alpha, 1 slot: no" in shown
    if kind == "no-right":
        assert "use --python to select an interpreter that can be executed on that machine" in shown
    if kind == "missing":
        # Another Python answers for it, and says so.
        assert f"cannot execute its Python: {python}: missing or not executable" in shown


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is a file, or on a full disk: writing there was tried, and the reason is the
    kernel's.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert agent.unwritable() == ""
    assert list((tmp_path / agent.FOLDER).iterdir()) == []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "Not a directory" in agent.unwritable()
    facts = {**agent.facts(str(tmp_path)), "unwritable": agent.unwritable()}
    found = problems_of(facts, here=facts)
    assert any(what.startswith("cannot write to its cache") for what, _ in found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache on a disk without a byte left: no space left on device."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert agent.unwritable() == ""
        with contextlib.suppress(OSError), (tmp_path / "full").open("wb", 0) as stream:
            while True:
                stream.write(bytes(4096))
        assert "No space left on device" in agent.unwritable()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ("check", "NOWHERE"),
        ("check", "FOLDER"),
        ("clean", "NOWHERE"),
        ("clean", "FOLDER"),
        ("prepare", "NOWHERE", "--lock", "HOSTS"),
        ("prepare", "HOSTS", "--lock", "NOWHERE"),
        ("prepare", "HOSTS", "--lock", "HOSTS", "--wheels", "NOWHERE"),
        ("collect", "NOWHERE"),
        ("collect", "HOSTS"),
        ("collect", "FOLDER", "--hosts", "NOWHERE"),
    ],
    ids=" ".join,
)
def test_a_wrong_path_is_a_mistake_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """What is not there, or of another kind, is refused with exit code 64 and named."""
    hosts = tmp_path / "hosts"
    hosts.write_text("alpha\n")
    places = {"NOWHERE": str(tmp_path / "nowhere"), "FOLDER": str(tmp_path), "HOSTS": str(hosts)}
    assert main(["hosts", *(places.get(word, word) for word in words)]) == 64
    assert "rankproof hosts: " in capsys.readouterr().err


def test_a_hostfile_with_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that ssh would take as an option is refused before anything is started."""
    code, path = checked(tmp_path, tmp_path, "-oProxyCommand=reboot\n")
    assert code == 64
    assert f"{path}:1:" in capsys.readouterr().err


def test_environments_are_compared_by_wheel() -> None:
    """A version, a wheel, and a package that one of them lacks each count.

    What installs packages does not.
    """
    here = {"a": ["1", "x"], "b": ["1", "x"], "c": ["1", "x"], "d": ["1", ""], "pip": ["1", "x"]}
    there = {"a": ["1", "x"], "b": ["2", "x"], "c": ["1", "y"], "d": ["1", ""], "e": ["1", "x"]}
    assert differences(there, here) == [
        "b 2 instead of 1",
        "c 1 from another wheel",
        "d 1 from an unknown wheel",
        "e only on that machine",
    ]
