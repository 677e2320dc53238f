"""Rankproof and rankproof-integrity, installed from wheels into one environment: neither touches
the other's files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "packages" / "integrity"
BOTH = ("rankproof", "rankproof-integrity")
IMPORTED = {
    "rankproof": (
        "import harness.cli; from harness._integrity import ReliableMessageTransport as T;"
        " T(node='a')"
    ),
    "rankproof-integrity": (
        "from rankproof_integrity import ReliableMessageTransport as T; T(node='a')"
    ),
}

pytestmark = [pytest.mark.slow, pytest.mark.whole]


def built(project: Path, folder: Path, *, target: str = "wheel") -> Path:
    """What the locked backend makes of a project's folder, without a network."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        target,
        "--directory",
        str(folder),
    ]
    subprocess.run(
        command, cwd=project, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=120
    )
    (made,) = folder.iterdir()
    return made


def later(project: Path, folder: Path) -> Path:
    """The same project, as files without git, under a later version."""
    shutil.copytree(project / "src" if project == PACKAGE else project / "harness", folder / "code")
    target = folder / "src" if project == PACKAGE else folder / "harness"
    (folder / "code").rename(target)
    for name in ("README.md", "LICENSE"):
        shutil.copy(project / name, folder / name)
    text = (project / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(
        text.replace('version = "0.1.0"', 'version = "0.1.1"', 1)
    )
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """By distribution: its wheel, and that of a later version."""
    made: dict[str, list[Path]] = {}
    for name, project in zip(BOTH, (PROJECT, PACKAGE), strict=True):
        after = later(project, tmp_path_factory.mktemp("later"))
        made[name] = [built(one, tmp_path_factory.mktemp("wheel")) for one in (project, after)]
    return made


@dataclass(frozen=True)
class Installed:
    """A virtual environment that sees what the tests' environment has installed, but for our own
    distributions.
    """

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def pip(self, *arguments: str) -> None:
        """Call pip without an index and without dependencies, which are there."""
        command = [sys.executable, "-m", "pip", "--python", self.python, *arguments]
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", "--upgrade", str(wheel))

    def works(self, name: str) -> bool:
        """Whether a distribution's code is imported from this environment, and makes a
        transport.
        """
        done = subprocess.run(
            [
                self.python,
                "-P",
                "-c",
                f"{IMPORTED[name]}; import sys; print(sys.modules[T.__module__].__file__)",
            ],
            cwd=self.folder,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode == 0 and done.stdout.startswith(str(self.folder.resolve()))

    def version(self, name: str) -> str:
        """The version that is installed."""
        (found,) = self.folder.glob(
            f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info"
        )
        return re.sub(r".*-([\d.]+)\.dist-info", r"\1", found.name)


@pytest.fixture
def empty(tmp_path: Path) -> Installed:
    """An environment with the dependencies of both, and neither."""
    home = tmp_path.resolve() / "home"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120
    )
    (site,) = home.glob("lib/python*/site-packages")
    (there,) = Path(sys.prefix).glob("lib/python*/site-packages")
    own = re.compile(r"_?_?(editable_impl_)?(rankproof|harness)")
    for path in there.iterdir():
        if not own.match(path.name) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    made = Installed(home)
    assert not any(made.works(name) for name in BOTH)
    return made


@pytest.mark.parametrize(
    "order", [BOTH, BOTH[::-1]], ids=["rankproof first", "rankproof-integrity first"]
)
def test_either_is_installed_upgraded_and_removed_beside_the_other(
    wheels: dict[str, list[Path]], empty: Installed, order: Sequence[str]
) -> None:
    """In either order: after each step whatever is installed works, from its own files."""
    first, second = order
    for name in order:
        empty.install(wheels[name][0])
    assert [empty.works(name) for name in order] == [True, True]
    for name in order:
        empty.install(wheels[name][1])
        assert empty.version(name) == "0.1.1"
        assert [empty.works(other) for other in order] == [True, True]
    empty.pip("uninstall", "--yes", first)
    assert [empty.works(name) for name in order] == [False, True]
    empty.install(wheels[first][0])
    empty.pip("uninstall", "--yes", second)
    assert [empty.works(name) for name in order] == [True, False]


def test_both_have_the_licence() -> None:
    """The package's copy is the repository's: a link would be one in its source archive too, and
    lead nowhere.
    """
    assert (PACKAGE / "LICENSE").read_bytes() == (PROJECT / "LICENSE").read_bytes()


def test_no_file_belongs_to_both(wheels: dict[str, list[Path]]) -> None:
    """The two wheels have no path in common, and the copy has the library's very files."""
    held: dict[str, dict[str, bytes]] = {}
    for name, (wheel, _) in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            held[name] = {
                path: archive.read(path) for path in archive.namelist() if ".dist-info/" not in path
            }
    assert not set(held["rankproof"]) & set(held["rankproof-integrity"])
    copy = {
        path.removeprefix("harness/_integrity/"): data for path, data in held["rankproof"].items()
    }
    original = {
        path.removeprefix("rankproof_integrity/"): data
        for path, data in held["rankproof-integrity"].items()
    }
    assert len(original) >= 30
    assert {path: copy.get(path) for path in original} == original


@pytest.mark.parametrize("name", BOTH)
def test_a_source_archive_builds_the_same_wheel(
    wheels: dict[str, list[Path]], tmp_path: Path, name: str
) -> None:
    """What pip builds from the source archive has the files of the wheel that is built from the
    checkout.
    """
    project = dict(zip(BOTH, (PROJECT, PACKAGE), strict=True))[name]
    (tmp_path / "source").mkdir()
    (tmp_path / "wheel").mkdir()
    with tarfile.open(built(project, tmp_path / "source", target="sdist")) as archive:
        assert not any(member.issym() or member.islnk() for member in archive.getmembers())
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with (
        zipfile.ZipFile(built(unpacked, tmp_path / "wheel")) as again,
        zipfile.ZipFile(wheels[name][0]) as wheel,
    ):
        assert sorted(again.namelist()) == sorted(wheel.namelist())


def test_a_clone_is_installed_with_the_copy(empty: Installed, tmp_path: Path) -> None:
    """`pip install git+…` follows the link of the checkout."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(clone)], check=True, timeout=120)
    assert (clone / "harness" / "_integrity").is_symlink()
    (tmp_path / "wheel").mkdir()
    empty.install(built(clone, tmp_path / "wheel"))
    assert empty.works("rankproof")
    assert not empty.works("rankproof-integrity")


def test_the_library_is_imported_fast_and_without_asyncio(
    wheels: dict[str, list[Path]], empty: Installed
) -> None:
    """Validators are imported without sockets, a transport without asyncio, each within 2.5 times
    the processor time of importing asyncio, some 60 ms on a quiet machine.
    """
    empty.install(wheels["rankproof-integrity"][0])

    def processor_time(statement: str, absent: tuple[str, ...]) -> float:
        code = (
            f"import sys, time; begin = time.process_time(); {statement}; "
            "took = time.process_time() - begin; "
            f"print(took, *(name for name in {absent} if name in sys.modules))"
        )
        command = [empty.python, "-P", "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        took, *imported = run.stdout.split()
        assert imported == []
        return float(took)

    for names, absent in (
        ("StreamValidator, TokenValidator", ("asyncio", "socket", "harness")),
        ("ReliableMessageTransport, DistributedBarrier", ("asyncio", "harness")),
    ):
        # In turn, and the least of each: a busy machine slows both.
        pairs = [
            (
                processor_time(f"from rankproof_integrity import {names}", absent),
                processor_time("import asyncio", ()),
            )
            for _ in range(5)
        ]
        ours, peer = (min(column) for column in zip(*pairs, strict=True))
        assert ours < 2.5 * peer
