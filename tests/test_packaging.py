"""What the distribution carries, what it takes to install it, and what nox chooses and refuses."""

from __future__ import annotations

import ast
import email
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import harness
from harness.forms.distribution import EXTRAS

PROJECT = Path(__file__).resolve().parent.parent
# A link, which rglob does not follow.
TOPS = (PROJECT / "harness", PROJECT / "harness" / "_integrity")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the locked backend without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    subprocess.run(
        command, cwd=PROJECT, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=120
    )
    (built,) = folder.glob("*.whl")
    return built


def names(wheel: Path) -> list[str]:
    """The paths in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Only harness/ and the metadata are packaged: no tests, scenarios, results or locks."""
    tops = {name.partition("/")[0] for name in names(wheel)}
    assert tops == {"harness", "rankproof-0.1.0.dist-info"}


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    """Every tracked kind of file under harness/ is in the wheel, py.typed and data included."""
    packed = {name for name in names(wheel) if name.startswith("harness/")}
    there = {
        path.relative_to(PROJECT).as_posix()
        for top in TOPS
        for path in top.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.suffix not in {".pyc", ".pyo"}
    }
    assert "harness/py.typed" in packed
    assert packed == there


def test_wheel_metadata_says_what_users_rely_on(wheel: Path) -> None:
    """Name, licence, supported Pythons, extras and the console script are what the documentation
    says.
    """
    with zipfile.ZipFile(wheel) as archive:
        said = email.message_from_bytes(archive.read("rankproof-0.1.0.dist-info/METADATA"))
        scripts = archive.read("rankproof-0.1.0.dist-info/entry_points.txt").decode()
    assert said["Name"] == "rankproof"
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Requires-Python"] == ">=3.11"
    assert set(said.get_all("Provides-Extra", ())) == {
        "all",
        "integrity",
        "mlx",
        "numeric",
        "serve",
        "tokenizer",
        "torch",
    }
    assert "rankproof = harness.cli:main" in scripts
    assert "rankproof-0.1.0.dist-info/licenses/LICENSE" in names(wheel)


def test_source_distribution_builds_from_what_it_carries(tmp_path: Path) -> None:
    """The source archive holds the package, its licence and its build file, and no results."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(
        command, cwd=PROJECT, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=120
    )
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"harness", "LICENSE", "pyproject.toml"} <= tops
    assert not tops & {"results", "tests", ".nox", "locks"}


def test_version_is_said_once_and_repeated_right() -> None:
    """The version in the package is the version of the distribution."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert harness.__version__ == declared


def declared() -> dict[str, list[Requirement]]:
    """What the package requires, by extra; the core's own stands under an empty name."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = {"": project["dependencies"], **project["optional-dependencies"]}
    assert [re.split(r"[\[,\]]", line) for line in lines.pop("all")] == [
        ["rankproof", *sorted(lines.keys() - {""}), ""]
    ]
    return {name: [Requirement(line) for line in extra] for name, extra in lines.items()}


def test_installed_environment_satisfies_the_package() -> None:
    """Every dependency of the core and of every extra is installed here at a version that satisfies
    it.
    """
    for item in (item for items in declared().values() for item in items):
        if item.marker is None or item.marker.evaluate():
            assert item.specifier.contains(metadata.version(item.name), prereleases=True), str(item)


# Declared and imported by nothing here: for the scenarios of whoever loads or serves with it.
UNUSED = {"accelerate"}
# Where an extra is imported when the module is: what runs in ranks alone, and only where it is
# asked for.
RANKS_CODE = re.compile(r"_inside(\.py|/)")
# pydantic's other half: its documentation imports from it, and pydantic pins it.
BROUGHT = {"pydantic_core"}
# What nothing here installs, or what an extra brings along: an engine of tokenizers, and file
# formats that the sweep of operators tries. Used where somebody has it, and said to be missing
# elsewhere.
FOUND = {"llama_cpp", "safetensors", "gguf"}
FREE = sys.stdlib_module_names | BROUGHT | FOUND | {"harness"}


@pytest.mark.slow
def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """The package's dependencies are the distributions that its code imports, wherever in a file it
    does.
    """
    names = {canonicalize_name(item.name) for items in declared().values() for item in items}
    trees = [ast.parse(path.read_text()) for top in TOPS for path in top.rglob("*.py")]
    modules = {name for tree in trees for node in ast.walk(tree) for name in imported(node)} - FREE
    needed = {name: homes(name) for name in modules}
    assert {name: sorted(found) for name, found in needed.items() if not found & names} == {}
    assert names - set().union(*needed.values()) == UNUSED


@pytest.mark.whole
def test_nothing_of_an_extra_is_imported_with_a_module() -> None:
    """Only code that runs in ranks imports an extra when it is imported itself.

    All else works with the core.
    """
    core = {canonicalize_name(item.name) for item in declared()[""]}
    early = {
        (path.relative_to(PROJECT).as_posix(), name)
        for top in TOPS
        for path in top.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        for name in set(imported(node)) - FREE
        if not homes(name) & core
    }
    assert [place for place in sorted(early) if not RANKS_CODE.search(place[0])] == []


def test_whoever_lacks_a_library_hears_of_an_extra_that_brings_it() -> None:
    """Every library that only an extra brings stands in the table of extras, with one that declares
    it.
    """
    extras = declared()
    core = {canonicalize_name(item.name) for item in extras.pop("")}
    brought = {
        extra: {canonicalize_name(item.name) for item in items} for extra, items in extras.items()
    }
    assert {canonicalize_name(name) for name in EXTRAS} == set().union(
        *brought.values()
    ) - core - UNUSED
    assert [
        name for name, extra in EXTRAS.items() if canonicalize_name(name) not in brought[extra]
    ] == []


# It reads the metadata of every distribution.
packages_distributions = functools.cache(metadata.packages_distributions)


def homes(module: str) -> set[str]:
    """The distributions that a top-level module may come from."""
    return {canonicalize_name(home) for home in packages_distributions().get(module, ())}


def imported(node: ast.AST) -> list[str]:
    """The top names of what a node imports from elsewhere."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return (
        [str(node.module).partition(".")[0]]
        if isinstance(node, ast.ImportFrom) and node.level == 0
        else []
    )


def test_cpu_environment_holds_no_cuda() -> None:
    """An environment made for a machine without a GPU holds no package that only an NVIDIA driver
    can use.
    """
    if not metadata.version("torch").endswith("+cpu"):
        pytest.skip("this environment is not the cpu variant")
    names = {distribution.name.lower() for distribution in metadata.distributions()}
    assert not {name for name in names if name.startswith(("nvidia", "cuda", "triton", "mlx-cuda"))}


def test_nothing_tracked_is_for_one_machine_only() -> None:
    """The locks and build files name no home folder and no folder of one particular machine."""
    files = [
        *PROJECT.glob("locks/*"),
        PROJECT / "pyproject.toml",
        PROJECT / "noxfile.py",
        PROJECT / ".ci" / "run",
    ]
    for path in files:
        if path.is_file():
            assert not re.search(r"/(?:root|home|opt|Users)/\w", path.read_text()), path


# --- the commands: what nox chooses and refuses, asked through a real nox
# ---------------------------------------------


def nox(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run nox on the real noxfile with an empty folder for environments."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("RANKPROOF_", "NOX"))
    }
    return subprocess.run(
        [sys.executable, "-m", "nox", "--envdir", str(tmp_path), *arguments],
        cwd=PROJECT,
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def interpreter() -> ModuleType:
    """What the noxfile chooses an interpreter with, as a module."""
    spec = importlib.util.spec_from_file_location(
        "interpreter", PROJECT / "locks" / "interpreter.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["interpreter"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_command_is_listed(tmp_path: Path) -> None:
    """`nox -l` names the documented sessions, and a bare `nox` runs the tests alone."""
    listed = nox(tmp_path, "--list").stdout
    assert set(re.findall(r"^([*-]) (\w+) ->", listed, re.MULTILINE)) == {
        ("*", "tests"),
        *(
            ("-", name)
            for name in (
                "bench",
                "commits",
                "findings",
                "gate",
                "interop",
                "lint",
                "lock",
                "nix",
                "quick",
                "types",
            )
        ),
        *(
            ("-", name)
            for name in ("docs", "farm", "matrix", "pages", "sample", "search", "validate", "whole")
        ),
        *(("-", name) for name in ("house", "integrity", "long", "mutants")),
    }


def test_unknown_variant_is_refused(tmp_path: Path) -> None:
    """A RANKPROOF_VARIANT that does not exist stops nox with the names that do."""
    done = nox(tmp_path, "-s", "lint", RANKPROOF_VARIANT="gpu")
    assert done.returncode == 1
    assert "RANKPROOF_VARIANT is 'gpu'; it can be cpu, cuda, metal" in done.stdout


def test_python_without_a_known_cpu_wheel_is_refused(tmp_path: Path) -> None:
    """Before anything is made, a Python without a known CPU wheel is named together with those that
    have one.
    """
    done = nox(tmp_path, "-P", "3.12", "-s", "lint", RANKPROOF_VARIANT="cpu")
    if sys.platform == "darwin":
        pytest.skip("a Mac has no cpu variant")
    assert done.returncode == 1
    assert "No torch wheel for Python 3.12 is known for cpu" in done.stdout
    assert "There are wheels for python3.11 and python3.13" in done.stdout
    assert not list(tmp_path.glob("env-*"))


def test_given_environment_that_is_none_is_refused(tmp_path: Path) -> None:
    """RANKPROOF_ENV without a Python in it stops nox and says how to go on."""
    done = nox(tmp_path, "-s", "lint", RANKPROOF_ENV=str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "Unset it to let nox make one" in done.stdout


@pytest.mark.parametrize(("status", "answers"), [(0, True), (9, False), (None, False)])
def test_cuda_needs_a_driver_that_answers(
    interpreter: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    answers: bool,
) -> None:
    """An nvidia-smi that is missing or fails is no GPU, so CUDA is not downloaded."""
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has an NVIDIA driver")
    if status is not None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\nexit {status}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter.nvidia_answers() is answers


def test_interpreter_that_does_not_run_is_passed_over(
    interpreter: ModuleType, tmp_path: Path
) -> None:
    """A name on PATH behind which no Python starts is not an interpreter, a real one tells its
    version.
    """
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\necho 'python3.13: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert interpreter.interpreter_at(str(shim)) is None
    assert (
        interpreter.interpreter_at(sys.executable).version
        == f"{sys.version_info[0]}.{sys.version_info[1]}"
    )
