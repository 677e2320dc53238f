"""The environment that `nix develop` hands to nox: taken as it is, or refused with what to do.

Nothing is installed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nix.wheels import sha256, write_wheel

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the noxfile reads."""
    folder = tmp_path / "project"
    shutil.copytree(
        PROJECT / "locks", folder / "locks", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("noxfile.py", "pyproject.toml", "flake.lock"):
        shutil.copy2(PROJECT / name, folder / name)
    return folder


@pytest.fixture
def given(project: Path, tmp_path: Path) -> Path:
    """An environment made from these locks, whose Python is this one."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    made = {
        "variant": "cpu",
        "lock": "cpu.txt",
        "lock_sha256": sha256(project / "locks" / "cpu.txt"),
        "wheels_sha256": sha256(project / "locks" / "wheels.json"),
    }
    (folder / "rankproof-environment.json").write_text(json.dumps(made))
    (tmp_path / "nix.json").write_text(
        json.dumps({"flake_lock_sha256": sha256(project / "flake.lock")})
    )
    return folder


def nox(project: Path, given: Path) -> subprocess.CompletedProcess[str]:
    """`nox -s types` in an environment, with a mypy that only says which Python was asked."""
    (project / "mypy.py").write_text(
        "import os\nprint('asked', os.environ['RANKPROOF_VARIANT'], os.environ['PATH'])\n"
    )
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(project),
        "RANKPROOF_ENV": str(given),
        "RANKPROOF_NIX": str(given.parent / "nix.json"),
    }
    return subprocess.run(
        [sys.executable, "-m", "nox", "-s", "types"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_a_given_environment_is_taken_as_it_is(project: Path, given: Path) -> None:
    """With RANKPROOF_ENV set, nothing is installed, and the commands run with that environment
    first on PATH.
    """
    done = nox(project, given)
    assert done.returncode == 0, done.stderr
    assert f"asked cpu {given / 'bin'}{os.pathsep}" in done.stdout + done.stderr
    assert not list((project / ".nox").glob("env-*"))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["locks/cpu.txt", "locks/wheels.json", "flake.lock"])
def test_an_environment_of_other_locks_is_refused(project: Path, given: Path, file: str) -> None:
    """A lock that changed since the shell was entered stops nox, which names the file and says to
    enter it again.
    """
    with (project / file).open("a") as lock:
        lock.write("\n")
    done = nox(project, given)
    assert done.returncode != 0
    assert f"another {file} than the one that is here now" in done.stderr
    assert "nix develop" in done.stderr


@pytest.mark.slow
def test_a_folder_without_python_is_refused(project: Path, given: Path) -> None:
    """RANKPROOF_ENV that names no environment stops nox, which names it and says how to go on."""
    done = nox(project, given / "nothing")
    assert done.returncode != 0
    assert "Unset it to let nox make one" in done.stderr


@pytest.mark.whole
@pytest.mark.skipif(sys.platform != "linux", reason="the cpu lock is for Linux")
@pytest.mark.parametrize("fault", ["a changed byte", "a wheel missing from the lock"])
def test_a_wheel_that_is_not_the_locks_stops_plain_nox(
    project: Path, tmp_path: Path, fault: str
) -> None:
    """Without Nix, pip's refusal is followed by the locks' names and what to do.

    No environment counts as made.
    """
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    torch = write_wheel(wheels, "torch", "2.13.0+cpu", {"torch.py": ""})
    needs = "absent-package" if fault == "a wheel missing from the lock" else ""
    tiny = write_wheel(wheels, "tiny", "1.0", {"tiny.py": ""}, needs=needs)
    lines = [
        f"{'=='.join(wheel.name.split('-')[:2])} --hash=sha256:{sha256(wheel)}\n"
        for wheel in (torch, tiny)
    ]
    (project / "locks" / "cpu.txt").write_text("".join(lines))
    (project / "locks" / "dev.txt").write_text("")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    known = {
        "python": python,
        "machine": platform.machine(),
        "file": torch.name,
        "sha256": sha256(torch),
    }
    (project / "locks" / "torch-cpu.toml").write_text(
        'version = "2.13.0+cpu"\nindex = "nowhere"\n[[wheel]]\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in known.items())
    )
    if fault == "a changed byte":
        data = bytearray(tiny.read_bytes())
        data[len(data) // 2] ^= 1
        tiny.write_bytes(data)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(project),
        "RANKPROOF_VARIANT": "cpu",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
    }
    done = subprocess.run(
        [sys.executable, "-m", "nox", "-s", "types"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0
    assert ("tiny" if fault == "a changed byte" else "absent-package") in done.stdout + done.stderr
    assert "locks/cpu.txt and locks/dev.txt could not be installed" in done.stderr
    assert "nox -s lock" in done.stderr
    assert not list((project / ".nox").glob("env-*/locks.stamp"))
