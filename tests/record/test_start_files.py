"""What Python may read before anybody's code runs is in the record, of the harness's environment
and of an arm's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from harness.forms.digest import sha256
from harness.record.environment import start_files_of
from tests.kit.pull_requests import ENGINE, SCENARIO

ROOT = Path(__file__).resolve().parent.parent.parent
EVIL = "import harness.checks.event as event\nevent.EventCheck.patched = True\n"
TELL = (
    "from harness.record.environment import start_files_here; print([one.name for one in"
    " start_files_here()])"
)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter of its own, which finds our packages where this one does."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "own")], check=True
    )
    packages(tmp_path).joinpath("ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return tmp_path / "own" / "bin" / "python"


def packages(folder: Path) -> Path:
    """Where its packages are."""
    (found,) = folder.glob("own/lib/python*/site-packages")
    return found


def told(python: Path) -> list[str]:
    """What the interpreter says of its own start."""
    done = subprocess.run([str(python), "-c", TELL], capture_output=True, text=True, check=True)
    return [name for name in json.loads(done.stdout.replace("'", '"')) if name in LAID]


LAID = (
    "evil.pth",
    "nested.pth",
    "below.pth",
    "sitecustomize.py",
    "sitecustomize/__init__.py",
    "sitecustomize.pyc",
)


def test_an_interpreter_tells_what_it_may_read(python: Path, tmp_path: Path) -> None:
    """A `.pth` file with or without an import, one in a folder that another one adds, and
    sitecustomize.
    """
    there, below = packages(tmp_path), tmp_path / "below"
    below.mkdir()
    assert told(python) == []
    (there / "evil.pth").write_text("import sys; sys.evil = True\n")
    (there / "nested.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
    (below / "below.pth").write_text("# nothing\n")
    (there / "sitecustomize.py").write_text("import sys\ndel sys.modules['sitecustomize']\n")
    # CPython itself complains of a module that takes itself away while it is imported, and goes on.
    assert told(python) == ["below.pth", "evil.pth", "nested.pth", "sitecustomize.py"]


def test_a_package_is_named_with_its_folder(python: Path, tmp_path: Path) -> None:
    """The file of a package is `__init__.py`, which says nothing of what was imported."""
    (packages(tmp_path) / "sitecustomize").mkdir()
    (packages(tmp_path) / "sitecustomize" / "__init__.py").write_text("")
    assert told(python) == ["sitecustomize/__init__.py"]


def test_a_customize_module_of_an_archive_is_named(python: Path, tmp_path: Path) -> None:
    """Python imports sitecustomize from an archive on its path too, and its digest is that of the
    module.
    """
    text = "import sys\nsys.evil = True\n"
    with zipfile.ZipFile(tmp_path / "custom.zip", "w") as archive:
        archive.writestr("sitecustomize.py", text)
    (packages(tmp_path) / "archive.pth").write_text(f"{tmp_path / 'custom.zip'}\n")
    assert told(python) == ["sitecustomize.py"]
    tell = TELL.replace("one.name for", "one.sha256 for")
    done = subprocess.run([str(python), "-c", tell], capture_output=True, text=True, check=True)
    assert sha256(text.encode()) in done.stdout


def test_an_environment_is_looked_at_from_outside(python: Path, tmp_path: Path) -> None:
    """What an environment of an arm reads at its start is found without starting it, so nothing
    there can deny it.
    """
    there, stdlib = packages(tmp_path), tmp_path / "stdlib"
    stdlib.mkdir()
    (there / "evil.pth").write_text("import os; os._exit(0)\n")
    (stdlib / "sitecustomize.py").write_text("pass\n")
    # Read only where users have packages of their own.
    (there / "usercustomize.py").write_text("pass\n")
    found = {one.name: one.sha256 for one in start_files_of(tmp_path / "own", stdlib)}
    assert found.keys() == {"ours.pth", "evil.pth", "sitecustomize.py"}
    assert found["evil.pth"] == sha256(b"import os; os._exit(0)\n")


@pytest.mark.slow
@pytest.mark.whole
def test_a_run_names_what_a_pth_file_imported(python: Path, tmp_path: Path) -> None:
    """A plug-in that no scenario names, imported by a `.pth` file, is in the record with the file
    that imported it.
    """
    there = packages(tmp_path)
    info = there / "evil-1.0.dist-info"
    info.mkdir()
    (there / "evil.py").write_text(EVIL)
    # After `ours.pth`, by which it finds what it patches.
    (there / "patch.pth").write_text("import evil\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "RECORD").write_text("evil.py,,\npatch.pth,,\n")
    (info / "entry_points.txt").write_text("[rankproof.checks]\nevil = evil:Kind\n")
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(
        SCENARIO.replace("  path: ../../engine\n", "").replace("[1, 2]", "[1]")
    )
    (folder / "rank.sh").write_text(ENGINE)
    results = tmp_path / "results"
    few = ["--set", "trials.candidate=1", "--set", "trials.control=1"]
    command = [
        str(python),
        "-m",
        "harness.cli",
        "run",
        str(folder),
        *few,
        "--unsigned",
        "--results",
        str(results),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr
    run = json.loads((results / "words" / "latest" / "results.json").read_text())["run"]
    assert [one["distribution"] for one in run["imported"]] == ["evil"]
    assert "patch.pth" in [one["name"] for one in run["environment"]["start_files"]]
