"""The arm's code comes first in a real rank: before editable installs, what is loaded already, and
Rankproof itself.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.world.below.preload import Preload

pytestmark = pytest.mark.slow

SUBJECT = """
import mypkg.sub, sys

def run(context):
    context.emit("found", top=mypkg.WHO, sub=mypkg.sub.WHO, finders=[type(f).__name__ for f in sys.meta_path])
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "mypkg"
version = "1"
[tool.setuptools]
packages = ["mypkg"]
package-dir = {mypkg = "code"}
"""
# What meson-python's and scikit-build's editable installs do: a finder before all others, for
# submodules too.
FIRST_FINDER = """
import importlib.util, sys
class First:
    @staticmethod
    def find_spec(name, path=None, target=None):
        files = {"mypkg": "__init__.py", "mypkg.sub": "sub.py"}
        if name in files:
            where = [CODE] if name == "mypkg" else None
            file = CODE + "/" + files[name]
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=where)
sys.meta_path.insert(0, First)
"""
LOADED = "import mypkg.sub\n"
# Engines take seconds to import, and nothing here meets: what counts is whether the rank is forked
# or starts anew.
APART: dict[str, Any] = {"size": 1, "backend": "none", "preload": Preload(modules=())}


def package(folder: Path, who: str, *, sub: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"WHO = {who!r}\n")
    if sub:
        (folder / "sub.py").write_text(f"WHO = {who!r}\n")
    return folder


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Variables under which every interpreter has `mypkg` installed editable, in one of three
    ways.
    """

    def install(way: str) -> dict[str, str]:
        project, site = tmp_path / "project", tmp_path / "site"
        code = package(project / "code", "installed")
        site.mkdir()
        start = f"import site; site.addsitedir({str(site)!r})\n"
        if way == "setuptools":
            # Not imported here: setuptools replaces `distutils`, and refuses where something has
            # loaded that before.
            if importlib.util.find_spec("setuptools") is None:
                pytest.skip("needs setuptools, which comes with torch")
            (project / "pyproject.toml").write_text(PROJECT)
            build = f"import setuptools.build_meta as b; b.build_editable({str(site)!r})"
            subprocess.run(
                [sys.executable, "-c", build], cwd=project, check=True, capture_output=True
            )
            with zipfile.ZipFile(next(site.glob("*.whl"))) as wheel:
                wheel.extractall(site)
            assert list(site.glob("__editable___*_finder.py"))
        else:
            start += FIRST_FINDER.replace("CODE", repr(str(code)))
        start += LOADED if way == "loaded" else ""
        (site / "sitecustomize.py").write_text(start)
        return {"PYTHONPATH": str(site)}

    return install


@pytest.mark.parametrize(
    ("way", "warm"), [("setuptools", False), ("first", False), ("loaded", False), ("loaded", True)]
)
def test_the_arms_copy_wins_over_an_editable_install(
    live: Any, tmp_path: Path, installed: Callable[[str], dict[str, str]], way: str, warm: bool
) -> None:
    """Package and submodule come from the arm, and `subject.loaded` proves both, however it is
    installed.
    """
    arm = tmp_path / "arm"
    package(arm / "mypkg", "arm")
    (arm / "subject.py").write_text(SUBJECT)
    lived = live("subject:run", folder=arm, env=installed(way), warm=warm, **APART)
    assert lived.passed, lived.error(0)
    found = lived.said(0, "found")[0].values
    assert (found["top"], found["sub"]) == ("arm", "arm")
    assert any("ditable" in finder or finder == "type" for finder in found["finders"])
    loaded = lived.said(0, "subject.loaded")[-1].values
    assert [module["file"] for module in loaded["modules"]] == [
        "mypkg/__init__.py",
        "mypkg/sub.py",
        "subject.py",
    ]
    assert "strays" not in loaded


def test_a_part_that_only_the_installed_copy_has_is_told(
    live: Any, tmp_path: Path, installed: Callable[[str], dict[str, str]]
) -> None:
    """A submodule that the arm lacks and an editable install gives is named, and the verdict will
    not be PASS.
    """
    arm = tmp_path / "arm"
    package(arm / "mypkg", "arm", sub=False)
    (arm / "subject.py").write_text(SUBJECT)
    lived = live("subject:run", folder=arm, env=installed("first"), warm=False, **APART)
    assert lived.said(0, "found")[0].values["sub"] == "installed"
    assert lived.said(0, "subject.loaded")[-1].values["strays"] == ["mypkg.sub"]


SPACE = "def run(context):\n    context.emit('found', who=WHO)\n"


@pytest.fixture
def regular(tmp_path: Path) -> dict[str, str]:
    """Variables under which every interpreter has a regular package `space` installed, with a
    module `engine`.
    """
    site = tmp_path / "site"
    package(site / "space", "installed")
    (site / "space" / "engine.py").write_text(f"WHO = 'installed'\n{SPACE}")
    return {"PYTHONPATH": str(site)}


def test_the_entrys_namespace_package_wins(
    live: Any, tmp_path: Path, regular: dict[str, str]
) -> None:
    """An entry in a folder without `__init__.py` comes from the arm, where a regular package would
    hide the folder.
    """
    (tmp_path / "arm/space").mkdir(parents=True)
    (tmp_path / "arm/space/engine.py").write_text(f"WHO = 'arm'\n{SPACE}")
    lived = live("space.engine:run", folder=tmp_path / "arm", env=regular, warm=False, **APART)
    assert lived.passed, lived.error(0)
    assert lived.said(0, "found")[0].values["who"] == "arm"
    assert "strays" not in lived.said(0, "subject.loaded")[-1].values


def test_other_parts_of_the_entrys_namespace_are_found(live: Any, tmp_path: Path) -> None:
    """A namespace that installed packages share stays shared: what the arm does not hold comes from
    them.
    """
    (tmp_path / "site/space").mkdir(parents=True)
    (tmp_path / "site/space/more.py").write_text("WHO = 'installed'\n")
    (tmp_path / "arm/space").mkdir(parents=True)
    (tmp_path / "arm/space/engine.py").write_text(f"from space.more import WHO\n{SPACE}")
    env = {"PYTHONPATH": str(tmp_path / "site")}
    lived = live("space.engine:run", folder=tmp_path / "arm", env=env, warm=False, **APART)
    assert lived.passed, lived.error(0)
    assert lived.said(0, "found")[0].values["who"] == "installed"
    assert "strays" not in lived.said(0, "subject.loaded")[-1].values


def test_an_installed_package_that_hides_a_folder_of_the_arm_is_told(
    live: Any, tmp_path: Path, regular: dict[str, str]
) -> None:
    """The arm's module is there and another of its name was loaded: a stray.

    A folder without it is data.
    """
    told = []
    for name in ("notes", "engine"):
        arm = tmp_path / f"arm-with-{name}"
        (arm / "space").mkdir(parents=True)
        (arm / "space" / f"{name}.py").write_text("WHO = 'arm'\n")
        (arm / "subject.py").write_text(f"from space.engine import WHO\n{SPACE}")
        lived = live("subject:run", folder=arm, env=regular, warm=False, **APART)
        assert lived.said(0, "found")[0].values["who"] == "installed"
        told.append(lived.said(0, "subject.loaded")[-1].values.get("strays"))
    assert told == [None, ["space.engine"]]


def test_names_of_the_standard_library_are_left_alone(live: Any, tmp_path: Path) -> None:
    """A file of the arm called like a module that Python itself has loaded does not take that
    module away.
    """
    arm = tmp_path / "arm"
    arm.mkdir()
    for name in ("os", "types", "re", "threading", "__main__", "__init__"):
        (arm / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    (arm / "subject.py").write_text(
        "import os, types\n\ndef run(context):\n    context.emit('ok', sep=os.sep)\n   "
        " context.group.barrier()\n"
    )
    lived = live("subject:run", folder=arm)
    assert lived.passed, lived.error(0)
    assert lived.said(1, "ok")[0].values == {"sep": "/"}
