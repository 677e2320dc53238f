"""What a rank tells of the code it loaded, whichever way that came in: nothing that a file brought
goes unsaid.
"""

from __future__ import annotations

import hashlib
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.stats.counterparts import Counterparts, InstalledCopy, Source
from harness.stats.provenance import judge, told
from tests.kit import wheels

pytestmark = pytest.mark.slow

THEIRS = 'WHO = "the installed one"\n'
OURS = 'WHO = "the commit\'s"\n'
COMMIT = Source(
    declared={"engine"}, files={"src/engine.py": hashlib.sha256(OURS.encode()).hexdigest()}
)


def repository(folder: str, text: str) -> Source:
    """A repository that declares the engine, and holds its module in this folder."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    files = {f"{folder}engine.py": sha256}
    copy = InstalledCopy(name="engine", version="2.0", files={"engine.py": sha256})
    known = Counterparts(roots={"engine": [("", folder)]}, files=files, installed=[copy])
    return Source(declared={"engine"}, files=files, counterparts=known)


def run(live: Any, tmp_path: Path, body: str, *, warm: bool = False, **more: Any) -> Any:
    """Run one rank whose subject does this; `elsewhere` is a folder outside of its arm's, with
    another `engine`.
    """
    arm, elsewhere = tmp_path / "arm", tmp_path / "elsewhere"
    for folder in (arm, elsewhere):
        folder.mkdir(exist_ok=True)
    (elsewhere / "engine.py").write_text(THEIRS)
    start = f"ELSEWHERE = {str(elsewhere)!r}\n\ndef run(context):\n"
    (arm / "subject.py").write_text(start + textwrap.indent(textwrap.dedent(body), "    "))
    lived = live("subject:run", folder=arm, backend="none", size=1, warm=warm, **more)
    assert lived.passed, lived.error(0)
    return lived


def listing(lived: Any) -> bytes:
    """What the rank had loaded at its end."""
    found: bytes = lived.capture.loaded[lived.said(0, "subject.loaded")[-1].values["packages"]]
    return found


INSERTED = "import sys; sys.path.insert(0, ELSEWHERE)\n"
BY_PATH = """
import importlib.util
spec = importlib.util.spec_from_file_location("anything", ELSEWHERE + "/engine.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""
WAYS = {
    "sys.path": f"{INSERTED}import engine",
    "forgotten": f"{INSERTED}import engine; del sys.modules['engine'], engine",
    "by its path": BY_PATH,
    "run": "import runpy; runpy.run_path(ELSEWHERE + '/engine.py')",
    "compiled": (
        "exec(compile(open(ELSEWHERE + '/engine.py').read(), ELSEWHERE + '/engine.py', 'exec'))"
    ),
    "changed back": (
        f"{INSERTED}import engine, pathlib; pathlib.Path(engine.__file__).write_text({OURS!r})"
    ),
    "removed": f"{INSERTED}import engine, shutil; shutil.rmtree(ELSEWHERE)",
    "written anew": (
        f"{INSERTED}import engine, importlib, pathlib; own = pathlib.Path(engine.__file__)\n"
        f"own.write_text({OURS!r}); importlib.reload(engine)"
    ),
    "put in place of another": (
        f"{INSERTED}import engine; sys.modules['json'] = sys.modules.pop('engine')"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_code_from_elsewhere_is_told(live: Any, tmp_path: Path, way: str) -> None:
    """Imported, executed by its path, forgotten, changed or removed afterwards: the file is told as
    it was loaded.
    """
    told = judge(listing(run(live, tmp_path, WAYS[way])), COMMIT)
    assert [why[:51] for why in told.unproven] == [
        "engine.py came from outside, but the repository has"
    ]


def test_what_is_there_before_the_subject_is_told_too(live: Any, tmp_path: Path) -> None:
    """A module that a .pth file or sitecustomize imported before any code of ours, by a path in
    PYTHONPATH.
    """
    site = tmp_path / "site"
    site.mkdir()
    (site / "more.pth").write_text(f"{tmp_path / 'elsewhere'}\nimport engine\n")
    (site / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(site)!r})\n")
    lived = run(live, tmp_path, "import engine", env={"PYTHONPATH": str(site)})
    told = judge(listing(lived), COMMIT)
    assert sorted(why.partition(",")[0] for why in told.unproven) == [
        "engine.py came from outside",
        "sitecustomize.py came from outside",
    ]


def test_code_in_an_archive_is_told(live: Any, tmp_path: Path) -> None:
    """A module in an egg or a zip is compared by its content there."""
    egg = tmp_path / "engine-1.0.egg"
    for text, proved in ((THEIRS, False), (OURS, True)):
        with zipfile.ZipFile(egg, "w") as archive:
            archive.writestr("engine.py", text)
        told = judge(
            listing(
                run(live, tmp_path, f"import sys; sys.path.insert(0, {str(egg)!r}); import engine")
            ),
            COMMIT,
        )
        assert (told.unproven == frozenset()) is proved


@pytest.mark.parametrize("warm", [False, True])
def test_an_installed_distribution_is_told_by_its_record(
    live: Any, tmp_path: Path, warm: bool
) -> None:
    """As RECORD says it is one line.

    With another content, or declared by the repository, each file is told.
    """
    site = tmp_path / "site-packages"
    with zipfile.ZipFile(wheels.write(tmp_path, "engine", "2.0", THEIRS)) as wheel:
        wheel.extractall(site)
    body = f"import sys; sys.path.insert(0, {str(site)!r}); import engine"
    lived = run(live, tmp_path, body, warm=warm)
    assert b'"engine": "engine 2.0"' in listing(lived)
    assert (b'"torch": "torch ' in listing(lived)) is warm
    other = Source(declared=(), files={})
    assert judge(listing(lived), other).unproven == frozenset()
    assert "an installed copy (engine 2.0), whose files were not reported" in str(
        judge(listing(lived), COMMIT).unproven
    )
    declared = listing(run(live, tmp_path, body, warm=warm, declared=("engine",)))
    assert "engine.py came from an installed copy (engine 2.0)" in str(
        judge(declared, COMMIT).unproven
    )
    theirs = repository("", THEIRS)
    assert judge(declared, theirs).unproven == frozenset()
    (site / "engine.py").write_text(OURS)
    changed = listing(run(live, tmp_path, body, warm=warm))
    assert "engine.py differs from the RECORD of engine 2.0" in str(judge(changed, other).unproven)
    # Of what was changed into the commit's very file nobody has to know where it came from.
    assert judge(changed, repository("src/", OURS)).unproven == frozenset()


def test_what_the_run_itself_wrote_is_no_stranger(live: Any, tmp_path: Path) -> None:
    """Generated code is listed, and proves nothing.

    A file of the repository's name from there is another version.
    """
    body = """
    import sys
    for name in ("generated", "engine"):
        open(name + ".py", "w").write("WHO = 'made here'")
    sys.path.insert(0, "")
    import generated, engine
    """
    lived = run(live, tmp_path, body)
    told = judge(listing(lived), COMMIT)
    assert [why.partition(" ")[0] for why in told.unproven] == ["engine.py"]
    assert [name.partition(" ")[0] for name in told.beside] == ["generated.py"]


CHILDREN = {
    "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])": [
        Path(sys.executable).name
    ],
    "import os; os.system('true')": ["true"],
    "import os\nif not (pid := os.fork()):\n    os._exit(0)\nos.waitpid(pid, 0)": ["fork"],
    "import multiprocessing as m; p = m.get_context('spawn').Process(target=print); p.start(); p.join()": [
        "spawn"
    ],
    "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)": ["true"],
    "context.emit('nothing')": None,
}


@pytest.mark.parametrize("body", CHILDREN)
def test_processes_that_a_rank_starts_are_told(live: Any, tmp_path: Path, body: str) -> None:
    """Nobody sees what a child of the rank loads, so that there is one is told, by its program's
    name.
    """
    lived = run(live, tmp_path, body)
    assert lived.said(0, "subject.loaded")[-1].values.get("children") == CHILDREN[body]


@pytest.mark.parametrize("warm", [False, True])
def test_what_differs_between_the_arms_is_told_in_full(
    live: Any, tmp_path: Path, warm: bool
) -> None:
    """Of such a distribution each file stands there with its digest.

    As one that its RECORD does not prove does too.
    """
    site = tmp_path / "site-packages"
    for name in ("engine", "other"):
        with zipfile.ZipFile(wheels.write(tmp_path, name, "2.0", THEIRS)) as wheel:
            wheel.extractall(site)
    body = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import engine, other; engine.WHO ="
        " 'patched'"
    )
    text = hashlib.sha256(THEIRS.encode()).hexdigest()
    lived = run(live, tmp_path, body, warm=warm, differing=("engine", "torch"))
    files, left_out = told(listing(lived))
    assert ("engine", "engine.py", text) in files
    assert not [name for name, _, _ in files if name == "other"]
    assert (len([file for name, file, _ in files if name == "torch"]) > 300) is warm
    assert left_out == 0
    source = Source(declared=(), files={}, differing=("engine", "torch"))
    assert judge(listing(lived), source).unproven == frozenset()
    silent = listing(run(live, tmp_path, body, warm=warm))
    assert (
        "a rank did not report which files of engine 2.0 it loaded for engine"
        in judge(silent, source).unproven
    )
    (site / "engine.py").write_text(OURS)
    changed = listing(run(live, tmp_path, body, warm=warm, differing=("engine",)))
    assert told(changed)[0] == [("engine", "engine.py", hashlib.sha256(OURS.encode()).hexdigest())]
