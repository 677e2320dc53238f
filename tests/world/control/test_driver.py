"""NVIDIA's driver for ranks of the Nix environment, with a folder standing in for a driver."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from harness.world.control import rank_environment
from harness.world.control.pool import ServerPool

LIBRARIES = rank_environment.DRIVER_LIBRARIES


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of driver libraries, among others that no rank must find."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in (*LIBRARIES, "libc.so.6"):
        (folder / name).write_text("")
    return folder


def write_ldconfig(folder: Path, lines: list[str]) -> Path:
    program = folder / "ldconfig"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_the_linkers_list_is_read(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the system's linker knows, the three libraries of the driver are taken, 64 bit only,
    and nothing else.
    """
    monkeypatch.delenv(rank_environment.DRIVER_VARIABLE, raising=False)
    lines = [f"\t{name} (libc6) => {tmp_path}/32/{name}" for name in LIBRARIES]
    lines += [
        f"\t{name} (libc6,x86-64) => {installed}/{name}" for name in (*LIBRARIES, "libc.so.6")
    ]
    program = write_ldconfig(tmp_path, ["9 libs found in cache", *lines])
    assert rank_environment.find_driver(folder=tmp_path / "none", ldconfig=[program]) == {
        name: installed / name for name in LIBRARIES
    }


def test_nixos_comes_before_the_linkers_list(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where NixOS' folder has a driver, nothing is taken from anywhere else."""
    monkeypatch.delenv(rank_environment.DRIVER_VARIABLE, raising=False)
    (installed / LIBRARIES[2]).unlink()
    program = write_ldconfig(tmp_path, [f"\t{LIBRARIES[2]} (libc6,x86-64) => {tmp_path}"])
    assert set(rank_environment.find_driver(folder=installed, ldconfig=[program])) == set(
        LIBRARIES[:2]
    )


def test_a_folder_that_is_named_decides(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RANKPROOF_DRIVER comes before everything, also where it holds nothing."""
    monkeypatch.setenv(rank_environment.DRIVER_VARIABLE, str(tmp_path / "empty"))
    assert rank_environment.find_driver(folder=installed, ldconfig=[]) == {}
    monkeypatch.setenv(rank_environment.DRIVER_VARIABLE, str(installed))
    assert set(rank_environment.find_driver(folder=tmp_path / "none", ldconfig=[])) == set(
        LIBRARIES
    )


@pytest.mark.parametrize(
    "lines", [[], ["", "x", " => ", "libcuda.so.1 (libc6,x86-64) => /nowhere/libcuda.so.1"]]
)
def test_a_machine_without_a_driver_has_none(
    lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list without a driver, a file that is gone, or no ldconfig at all: no libraries, and no
    error.
    """
    monkeypatch.delenv(rank_environment.DRIVER_VARIABLE, raising=False)
    assert (
        rank_environment.find_driver(
            folder=tmp_path / "none", ldconfig=[write_ldconfig(tmp_path, lines)]
        )
        == {}
    )
    assert (
        rank_environment.find_driver(folder=tmp_path / "none", ldconfig=[tmp_path / "none"]) == {}
    )


def test_ranks_of_the_cuda_shell_get_the_driver_alone(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of the cuda environment has a folder of three links first on its library path, which
    ends with it.
    """
    monkeypatch.setenv(rank_environment.DRIVER_VARIABLE, str(installed))
    monkeypatch.setenv("RANKPROOF_ENV", "/somewhere")
    monkeypatch.setenv("RANKPROOF_VARIANT", "cuda")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    with ServerPool() as pool:
        first, *rest = (
            pool.take(warm=False, env={}).environment["LD_LIBRARY_PATH"].split(os.pathsep)
        )
        linked = {path.name: path.resolve() for path in Path(first).iterdir()}
        assert linked == {name: installed / name for name in LIBRARIES}
        assert rest == ["/mine"]
        assert os.environ["LD_LIBRARY_PATH"] == "/mine"
    assert not Path(first).exists()


@pytest.mark.parametrize(("given", "variant"), [("", "cuda"), ("/somewhere", "cpu")])
def test_nobody_else_gets_it(
    installed: Path, monkeypatch: pytest.MonkeyPatch, given: str, variant: str
) -> None:
    """Outside Nix, and in the cpu shell, the library path of ranks stays as it is."""
    monkeypatch.setenv(rank_environment.DRIVER_VARIABLE, str(installed))
    monkeypatch.setenv("RANKPROOF_ENV", given)
    monkeypatch.setenv("RANKPROOF_VARIANT", variant)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with ServerPool() as pool:
        assert "LD_LIBRARY_PATH" not in pool.take(warm=False, env={}).environment
