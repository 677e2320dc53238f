"""An installed package that has the import name of the commit's code is the commit's, or no gate
opens.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from harness.reason import VerdictCode
from tests.kit import wheels
from tests.kit.repositories import commit, git
from tests.run.test_provenance import (
    BROKEN,
    FIXED,
    SCENARIO,
    SUBJECT,
    Workshop,
    interpreter,
    reasons,
    word,
    workshop,
)

__all__ = ["interpreter", "workshop"]

pytestmark = [pytest.mark.slow, pytest.mark.whole]

TABLE = """
import json, pathlib, sys

def greeting(rank):
    place = pathlib.Path(FOLDER, "table.json")
    return json.loads(place.read_text())[min(rank, 1)]
"""
BESIDE = TABLE.replace(
    'pathlib.Path(FOLDER, "table.json")', 'pathlib.Path(__file__).with_name("table.json")'
)
SHARED = TABLE.replace("FOLDER", 'sys.prefix, "share/engine"')
GOOD, BAD = '["hello", "hello"]\n', '["hello", null]\n'
NAMED = '[project]\nname = "engine"\nversion = "1.0"\n'
UNNAMED = (
    'import os\nfrom setuptools import setup\nsetup(name=os.environ.get("NAME"),'
    ' packages=["engine"])\n'
)
MAPPED = 'from setuptools import setup\nsetup(name="engine", package_dir={"engine": "code"})\n'
COMPUTED = MAPPED.replace('{"engine": "code"}', '{"engine": where()}')
PACKAGE = "engine/__init__.py"
SPACE = SUBJECT.replace("import engine", "from space import engine")
NOWHERE = COMPUTED.replace('"engine", package', 'os.environ.get("NAME"), package')
MATURIN = '[build-system]\nrequires = ["maturin"]\nbuild-backend = "maturin"\n'
POETRY = '[tool.poetry]\nname = "engine"\nversion = "1.0"\n'
POETRY += 'packages = [{include = "engine", from = "lib", to = "space"}]\n'
ZIPPED = TABLE.replace('    place = pathlib.Path(FOLDER, "table.json")\n', "").replace(
    "place.read_text()", "pkgutil.get_data(__name__, 'table.json')"
)
ZIPPED = ZIPPED.replace("pathlib", "pkgutil", 1)
ON_PATH = SUBJECT.replace(
    "import engine",
    "import os, sys\nsys.path.insert(0, os.path.join(sys.prefix, 'old'))\nimport engine",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A repository whose branch changes something, and a wheel that is installed.

    Attributes:
        base: files of the trusted branch.
        change: what the branch changes; None removes a file.
        wheel: what is installed, by path.
        name: of the wheel.
        subject: of the scenario.
    """

    base: Mapping[str, str]
    change: Mapping[str, str | None]
    wheel: Mapping[str, str]
    name: str = "engine"
    subject: str = SUBJECT


def package(folder: str, text: str = FIXED) -> dict[str, str]:
    return {f"{folder}/__init__.py": text}


SLIPS = {
    "an old copy that tests keep": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine"),
            **package("tests/snapshots/v1/engine"),
        },
        change=package("src/engine", BROKEN),
        wheel=package("engine"),
    ),
    "an old copy that can be installed itself": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine"),
            "old/v1/pyproject.toml": NAMED,
            **package("old/v1/engine"),
        },
        change=package("src/engine", BROKEN),
        wheel=package("engine"),
    ),
    "a vendored copy": Case(
        base={**package("engine"), **package("third_party/engine")},
        change=package("engine", BROKEN),
        wheel=package("engine"),
    ),
    "a table of the package": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine", BESIDE),
            "src/engine/table.json": GOOD,
        },
        change={"src/engine/table.json": BAD},
        wheel={**package("engine", BESIDE), "engine/table.json": GOOD},
    ),
    "data that is installed elsewhere": Case(
        base={"pyproject.toml": NAMED, **package("src/engine", SHARED), "conf/table.json": GOOD},
        change={"conf/table.json": BAD},
        wheel={**package("engine", SHARED), "engine-1.0.data/data/share/engine/table.json": GOOD},
    ),
    "a name that is worked out": Case(
        base={"setup.py": UNNAMED, **package("engine")},
        change=package("engine", BROKEN),
        wheel=package("engine"),
    ),
    "a name from an attribute": Case(
        base={
            "setup.cfg": (
                "[metadata]\nname = attr: engine.NAME\n[options]\npackage_dir =\n    = lib\n"
            ),
            **package("lib/engine"),
        },
        change=package("lib/engine", BROKEN),
        wheel=package("engine"),
        name="anything",
    ),
    "another distribution of the import name": Case(
        base={"pyproject.toml": NAMED, **package("src/engine")},
        change=package("src/engine", BROKEN),
        wheel=package("engine"),
        name="engine_nightly",
    ),
    "one package of several": Case(
        base={
            "libs/a/pyproject.toml": NAMED.replace("engine", "alpha"),
            **package("libs/a/src/alpha"),
            "libs/b/setup.py": UNNAMED,
            **package("libs/b/src/engine"),
        },
        change=package("libs/b/src/engine", BROKEN),
        wheel=package("engine"),
    ),
    "a part of a namespace": Case(
        base={"src/space/engine.py": FIXED},
        change={"src/space/engine.py": BROKEN},
        wheel={"space/engine.py": FIXED},
        name="space_engine",
        subject=SPACE,
    ),
    "a folder of another name": Case(
        base={"setup.py": MAPPED, **package("code")},
        change=package("code", BROKEN),
        wheel=package("engine"),
    ),
    "a folder that is worked out": Case(
        base={"setup.py": COMPUTED, **package("code"), **package("tests/v1/engine")},
        change=package("code", BROKEN),
        wheel=package("engine"),
    ),
    "where a build tool looks": Case(
        base={
            "pyproject.toml": '[tool.hatch.build.targets.wheel]\npackages = ["python/engine"]\n',
            **package("python/engine"),
        },
        change=package("python/engine", BROKEN),
        wheel=package("engine"),
    ),
    "a single module": Case(
        base={"engine.py": FIXED, "setup.py": UNNAMED},
        change={"engine.py": BROKEN},
        wheel={"engine.py": FIXED},
    ),
    "a module that the commit removed": Case(
        base={
            **package("engine", "from engine.words import greeting\n"),
            "engine/words.py": FIXED,
            "engine/more.py": "",
            "engine/rest.py": "",
        },
        change={
            "engine/words.py": None,
            "engine/__init__.py": "from engine.words import greeting\n",
        },
        wheel={
            **package("engine", "from engine.words import greeting\n"),
            "engine/words.py": FIXED,
            "engine/more.py": "",
            "engine/rest.py": "",
        },
    ),
    "a name that is worked out, beside modules that are generated": Case(
        base={"setup.py": UNNAMED, **package("engine")},
        change=package("engine", BROKEN),
        wheel={**package("engine"), **{f"engine/messages_{index}.py": "" for index in range(4)}},
    ),
    "a name and a folder that are worked out": Case(
        base={"setup.py": NOWHERE, **package("code")},
        change=package("code", BROKEN),
        wheel=package("engine"),
    ),
    "a folder that is worked out, beside an old one": Case(
        base={
            "setup.py": COMPUTED.replace('"engine": where', '"": where'),
            **package("lib/engine"),
            **package("engine"),
        },
        change=package("lib/engine", BROKEN),
        wheel=package("engine"),
    ),
    "a name that only a crate has": Case(
        base={
            "pyproject.toml": MATURIN,
            "Cargo.toml": '[package]\nname = "engine"\n',
            "src/lib.rs": "fixed",
        },
        change={"src/lib.rs": "broken"},
        wheel={**package("engine", "from engine.core import greeting\n"), "engine/core.py": FIXED},
    ),
    "an old copy of data that is installed elsewhere": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine", SHARED),
            "conf/table.json": GOOD,
            "tests/v1/share/engine/table.json": GOOD,
        },
        change={"conf/table.json": BAD},
        wheel={**package("engine", SHARED), "engine-1.0.data/data/share/engine/table.json": GOOD},
    ),
    "code of the arm that is hidden": Case(
        base={"scenarios/meet/engine/words.py": FIXED},
        change={"scenarios/meet/engine/words.py": BROKEN},
        wheel={
            **package("engine", "from engine.words import greeting\n"),
            "engine/words.py": FIXED,
        },
    ),
}


# A trial of each arm says which code ran. That a run with trials enough for a PASS is refused for it
# is what test_provenance.py shows. Written into the scenario: an override takes half a second.
FEW = SCENARIO.replace("candidate: 4, control: 3", "candidate: 1, control: 1")


def prepare(workshop: Workshop, case: Case, *, scenario: str = FEW) -> None:
    """Commit the repository, and install the wheel."""
    repo = workshop.repo
    git(repo, "checkout", "-q", "main")
    git(repo, "rm", "-q", "engine.py", "pyproject.toml")
    files = {"README": "", "scenarios/meet/subject.py": case.subject}
    commit(repo, {**files, "scenarios/meet/scenario.yaml": scenario, **case.base})
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(repo, "checkout", "-q", "-B", "branch")
    for path in [path for path, text in case.change.items() if text is None]:
        git(repo, "rm", "-q", path)
    commit(
        repo,
        {
            "NEWS": "changed\n",
            **{path: text for path, text in case.change.items() if text is not None},
        },
    )
    held = {path: text.encode() for path, text in case.wheel.items()}
    workshop.pip(str(wheels.write(workshop.root / "wheels", case.name, "1.0", None, more=held)))


def refused(workshop: Workshop) -> str:
    """What the run says of the code, and that no gate opens for it."""
    ran = workshop.run()
    assert ran.code == 2, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert VerdictCode.CODE_NOT_PROVED in {reason.code for reason in cell.reasons}
    found = workshop.gate()
    assert found.answer != "OPEN"
    assert word(found).startswith("REFUSED: this does not prove that the commit's code ran")
    return reasons(ran)


@pytest.mark.long
@pytest.mark.parametrize("slip", SLIPS)
def test_an_older_wheel_of_the_import_name(workshop: Workshop, slip: str) -> None:
    """The installed wheel holds what main has, the commit breaks it: INCONCLUSIVE, and the gate is
    not OPEN.
    """
    prepare(workshop, SLIPS[slip])
    assert "the run does not prove which code ran" in refused(workshop)


REMOVED = {
    "a table": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine", BESIDE),
            "src/engine/table.json": GOOD,
        },
        change={"src/engine/table.json": None},
        wheel={**package("engine", BESIDE), "engine/table.json": GOOD},
    ),
    "a module named like a version file": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine", "from engine.version import greeting\n"),
            "src/engine/version.py": FIXED,
        },
        change={"src/engine/version.py": None},
        wheel={
            **package("engine", "from engine.version import greeting\n"),
            "engine/version.py": FIXED,
        },
    ),
}


@pytest.mark.parametrize("what", REMOVED)
def test_what_the_commit_removed_was_not_written_by_its_build(
    workshop: Workshop, what: str
) -> None:
    """The run cannot know, and a gate has the trusted revision, which still holds what is
    installed.
    """
    prepare(workshop, REMOVED[what], scenario=SCENARIO)
    assert workshop.run().code == 0
    assert "of origin/main is no longer in the commit" in word(workshop.gate())


def test_a_table_in_an_egg(workshop: Workshop) -> None:
    """A zipped egg of main, whose code is the commit's and whose table is older: no import loads a
    table.
    """
    base = {"pyproject.toml": NAMED, **package("src/engine", ZIPPED), "src/engine/table.json": GOOD}
    prepare(
        workshop,
        Case(
            base=base, change={"src/engine/table.json": BAD}, wheel={"unused.py": ""}, name="unused"
        ),
    )
    with zipfile.ZipFile(workshop.site / "engine-1.0-py3.11.egg", "w") as egg:
        egg.writestr(PACKAGE, ZIPPED)
        egg.writestr("engine/table.json", GOOD)
    (workshop.site / "easy-install.pth").write_text("./engine-1.0-py3.11.egg\n")
    assert "engine/table.json" in refused(workshop)


def test_a_table_of_a_folder_that_the_subject_puts_on_the_path(workshop: Workshop) -> None:
    """The same release twice: the commit's is installed, and ranks load an older one from a folder
    of their own.
    """
    base = {"pyproject.toml": NAMED, **package("src/engine", BESIDE), "src/engine/table.json": GOOD}
    wheel = {**package("engine", BESIDE), "engine/table.json": BAD}
    prepare(
        workshop,
        Case(base=base, change={"src/engine/table.json": BAD}, wheel=wheel, subject=ON_PATH),
    )
    more = {path: text.encode() for path, text in {**wheel, "engine/table.json": GOOD}.items()}
    older = wheels.write(workshop.root / "older", "engine", "1.0", None, more=more)
    with zipfile.ZipFile(older) as archive:
        archive.extractall(workshop.python.parents[1] / "old")
    assert "engine/table.json" in refused(workshop)


def test_a_path_that_ends_alike_elsewhere_proves_nothing(workshop: Workshop) -> None:
    """Code from a folder that no metadata names has to be unlike no file of its path, or nobody
    knows which it is.
    """
    base = {**package("python/engine"), **package("tests/v1/engine")}
    change = package("python/engine", BROKEN)
    prepare(
        workshop,
        Case(base=base, change=change, wheel={"unused.py": ""}, name="unused", subject=ON_PATH),
    )
    old = workshop.python.parents[1] / "old" / "engine"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text(FIXED)
    assert "engine/__init__.py came from outside" in refused(workshop)


@pytest.mark.long
@pytest.mark.parametrize("way", ["folder", "archive", "no RECORD"])
def test_an_older_copy_that_comes_first(workshop: Workshop, way: str) -> None:
    """A .pth file that puts an old copy before the commit's, as a folder or an archive.

    A package without RECORD.
    """
    prepare(
        workshop,
        Case(
            base=package("src/engine"),
            change=package("src/engine", BROKEN),
            wheel=package("engine"),
        ),
    )
    if way == "no RECORD":
        for record in workshop.site.glob("engine-*.dist-info/RECORD"):
            record.unlink()
    else:
        old = workshop.root / "old"
        (old / "engine").mkdir(parents=True)
        (old / PACKAGE).write_text(FIXED)
        if way == "archive":
            with zipfile.ZipFile(workshop.root / "old.zip", "w") as archive:
                archive.writestr(PACKAGE, FIXED)
            old = workshop.root / "old.zip"
        (workshop.site / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(old)!r})\n")
    assert "engine/__init__.py came from" in refused(workshop)


@pytest.mark.long
def test_a_table_beside_an_editable_install(workshop: Workshop) -> None:
    """An editable install of another working tree brings its own table: the commit's is another
    one.
    """
    project = (
        NAMED + '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    )
    base = {
        "pyproject.toml": project,
        **package("src/engine", BESIDE),
        "src/engine/table.json": GOOD,
    }
    prepare(
        workshop,
        Case(
            base=base, change={"src/engine/table.json": BAD}, wheel={"unused.py": ""}, name="unused"
        ),
    )
    other = workshop.root / "main"
    git(workshop.repo, "worktree", "add", "-q", str(other), "main")
    workshop.pip("-e", str(other))
    assert "engine/table.json" in refused(workshop)


@pytest.mark.long
def test_a_warm_server_hides_code_of_the_arm(workshop: Workshop) -> None:
    """A folder of the arm that is hidden by a package which the server had imported before the rank
    began.
    """
    warm = FEW.replace("start: fresh", "start: warm").replace("backend: [none]", "backend: [gloo]")
    base = {
        "scenarios/meet/scenario.yaml": warm,
        "scenarios/meet/filelock/version.py": "version = None\n",
    }
    subject = f"import torch\n{SUBJECT}".replace("import engine\n", "import filelock\n").replace(
        "engine.greeting(context.rank)", "'hello'"
    )
    prepare(
        workshop,
        Case(base=base, change={}, wheel={"unused.py": ""}, name="unused", subject=subject),
    )
    assert "filelock of the arm's folder is hidden by the installed filelock" in refused(workshop)


HEALTHY = {
    "beside an old copy, with what its build wrote": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine"),
            **package("tests/snapshots/v1/engine"),
        },
        change=package("src/engine", f"{FIXED}# mended\n"),
        wheel={
            **package("engine", f"{FIXED}# mended\n"),
            "engine/_version.py": "version = '1.0'\n",
            "engine/_core.cpython-311-x86_64-linux-gnu.so": "compiled",
        },
    ),
    "a folder of another name": Case(
        base={"setup.py": MAPPED, **package("code")},
        change=package("code", f"{FIXED}# mended\n"),
        wheel=package("engine", f"{FIXED}# mended\n"),
    ),
    "a part of a namespace": Case(
        base={"src/space/engine.py": FIXED},
        change={"src/space/engine.py": f"{FIXED}# mended\n"},
        wheel={"space/engine.py": f"{FIXED}# mended\n"},
        subject=SPACE,
    ),
    "data that is installed elsewhere": Case(
        base={"pyproject.toml": NAMED, **package("src/engine", SHARED), "conf/table.json": BAD},
        change={"conf/table.json": GOOD},
        wheel={**package("engine", SHARED), "engine-1.0.data/data/share/engine/table.json": GOOD},
    ),
    "a folder that poetry renames": Case(
        base={"pyproject.toml": POETRY, **package("lib/engine")},
        change=package("lib/engine", f"{FIXED}# mended\n"),
        wheel={"space/engine/__init__.py": f"{FIXED}# mended\n"},
        subject=SPACE,
    ),
    "two trees of data": Case(
        base={
            "pyproject.toml": NAMED,
            **package("src/engine"),
            "t/a/c.json": "1",
            "t/b/c.json": "2",
            "docs/a/c.json": "",
        },
        change={"t/a/c.json": "3"},
        wheel={
            **package("engine"),
            "engine-1.0.data/data/share/engine/t/a/c.json": "3",
            "engine-1.0.data/data/share/engine/t/b/c.json": "2",
        },
    ),
    "tests, docs and examples that collide": Case(
        base={
            "tests/__init__.py": "",
            "tests/test_a.py": "",
            "docs/conf.py": "",
            "examples/a.py": "",
        },
        change={},
        wheel={
            "tests/__init__.py": FIXED,
            "tests/one.py": "",
            "tests/two.py": "",
            "docs/other.py": "",
            "examples/b.py": "",
        },
        name="careless",
        subject=SUBJECT.replace(
            "import engine", "import docs.other, examples.b\nimport tests as engine"
        ),
    ),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_wheel_of_the_commit_opens_the_gate(workshop: Workshop, kind: str) -> None:
    """What was built from the commit, or is only called like one of its folders, is PASS, and the
    gate opens.
    """
    prepare(workshop, HEALTHY[kind], scenario=SCENARIO)
    ran = workshop.run()
    assert ran.code == 0, ran.out + ran.err
    found = workshop.gate()
    assert found.answer == "OPEN", found.requirements
    assert ("2 files that the build of its packages wrote (sha256 " in word(found)) is (
        kind in list(HEALTHY)[:1]
    )
