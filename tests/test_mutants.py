"""The tool that puts slips into the judging code: which mutants there are, and what it calls
killed.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from tests.mutants import mutation
from tests.mutants.mutation import Mutant, mutants
from tests.mutants.trial import ROOT, is_in_functions, swap

TEXT = """
LIMIT = 0.05

def decide(upper, failed):
    if failed and upper >= LIMIT:
        return "FAIL"
    return "PASS" if not failed else "INCONCLUSIVE"
"""
CHANGES = [
    "module: 0.05 -> 0.1",
    "decide: failed and upper >= LIMIT -> failed or upper >= LIMIT",
    "decide: upper >= LIMIT -> upper > LIMIT",
    "decide: not failed -> not not failed",
]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module with one of each."""
    path = tmp_path / "judge.py"
    path.write_text(TEXT)
    return path


def test_comparisons_bounds_and_negations_are_changed(module: Path) -> None:
    """Each in a mutant of its own, named by its function and what it reads before and after."""
    found = mutants(module, root=module.parent)
    assert sorted(one.key for one in found) == sorted(f"judge.py::{change}" for change in CHANGES)


def test_a_mutant_differs_in_that_alone(module: Path) -> None:
    """Without its change a mutant is the module: nothing else is lost on the way."""
    whole = ast.unparse(ast.parse(TEXT))
    for one in mutants(module, root=module.parent):
        assert one.source != whole
        assert len(set(whole.splitlines()) ^ set(one.source.splitlines())) == 2


def test_equal_changes_of_a_function_are_numbered(tmp_path: Path) -> None:
    """The list of equivalents names one of them, not all."""
    path = tmp_path / "twice.py"
    path.write_text("def f(a):\n    a < 2\n    a < 2\n")
    keys = [one.key for one in mutants(path, root=tmp_path)]
    assert len(set(keys)) == len(keys) == 4
    assert "twice.py::f: a < 2 -> a <= 2 #2" in keys


# -- what counts as killed ---------------------------------------------------------------------

JUDGE = """
LIMIT = 2

def decide(failed):
    # a comment, which no mutant has
    return "FAIL" if failed > LIMIT else "PASS"

def loose(number):
    return number > 5

def lonely(number):
    return number > 7
"""
TESTS = '''
import inspect
import os
from pathlib import Path

from harness import judge

FOLDER = Path(os.environ["MUTANTS_FOLDER"])

def test_decide():
    assert [judge.decide(failed) for failed in (2, 3)] == ["PASS", "FAIL"]

def test_loose():
    assert judge.loose(9) and not judge.loose(1)

def test_of_lonely_that_breaks_after_its_first_run():
    """Passes while it is looked which lines it reaches, and in no later session."""
    judge.lonely(7)
    seen = FOLDER / "seen"
    if seen.exists():
        raise AssertionError
    seen.touch()
'''


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the tool prints of a small tree with tests of three sorts."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(Path(mutation.__file__).parent, tree / "tests" / "mutants")
    (tree / "tests" / "__init__.py").touch()
    (tree / "tests" / "mutants" / "equivalents.txt").write_text("")
    (tree / "tests" / "judged").mkdir()
    (tree / "tests" / "judged" / "test_judge.py").write_text(TESTS)
    (tree / "harness").mkdir()
    (tree / "harness" / "__init__.py").touch()
    (tree / "harness" / "judge.py").write_text(JUDGE)
    (tree / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\npythonpath = .\nmarkers = whole: w\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.mutants",
            "harness/judge.py",
            "--tests",
            "tests/judged",
            "--jobs",
            "1",
        ],
        cwd=tree,
        env={**os.environ, "MUTANTS_FOLDER": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def fates(said: str) -> dict[str, set[str]]:
    """Fate to the mutants that met it, in the list of those that live; the rest are killed."""
    found: dict[str, set[str]] = {}
    for line in said.partition(" live:")[2].splitlines():
        if "::" in line:
            fate, _, key = line.partition(" line ")
            found.setdefault(fate.strip(), set()).add(key.partition("::")[2])
    return found


@pytest.mark.whole
def test_what_no_test_sees_is_alive(said: str) -> None:
    """A bound that a test never meets is named, in a function and at the top of the module."""
    assert fates(said)["alive"] == {
        "loose: number > 5 -> number >= 5",
        "loose: number > 5 -> number > 6",
    }


@pytest.mark.slow
def test_a_test_that_fails_without_a_change_kills_nothing(said: str) -> None:
    """Whatever breaks a session by itself would call every mutant killed."""
    assert fates(said)["unreached"] == {
        "lonely: number > 7 -> number >= 7",
        "lonely: number > 7 -> number > 8",
    }
    name = "tests/judged/test_judge.py::test_of_lonely_that_breaks_after_its_first_run"
    assert (
        f"fails on harness/judge.py without a change, and kills none of its mutants: {name}" in said
    )


@pytest.mark.slow
def test_what_a_test_sees_is_killed(said: str) -> None:
    """Mutants of a function and of a constant of the module die by a test that is named nowhere
    else.
    """
    lives = set().union(*fates(said).values())
    assert not {key for key in lives if key.startswith(("decide", "module"))}
    assert "killed by: a test (" in said


def test_functions_that_are_there_get_the_mutants_code() -> None:
    """The code is that of the mutant afterwards, and the module was not imported again."""
    path = "tests/mutants/mutation.py"
    text = (ROOT / path).read_text(encoding="utf-8")
    one = next(
        one for one in mutants(ROOT / path, root=ROOT) if one.key.endswith("> 1 -> self.number > 2")
    )
    original = dataclasses.replace(one, source=text)
    assert is_in_functions(one, original)
    getter = mutation.Mutant.key.fget
    assert isinstance(getter, FunctionType)
    there = FunctionType(getter.__code__, vars(mutation))
    assert swap(one, [there])
    assert there(dataclasses.replace(one, number=2)) == one.key.removesuffix(" #2")
    assert there(dataclasses.replace(one, number=3)).endswith(" #3")


@pytest.mark.parametrize(
    ("text", "is_inside"),
    [
        ("A = 3\ndef f(a):\n    return a > 2\n", False),
        ("A = 2\ndef f(a):\n    return a > 3\n", True),
        ("A = 2\nclass C:\n    B = 5\ndef f(a):\n    return a > 2\n", False),
        ("A = 2\ndef f(a, b=3):\n    return a > 2\n", False),
    ],
)
def test_what_runs_at_import_is_imported_again(text: str, *, is_inside: bool) -> None:
    """A constant, the body of a class or a default is no code of a function."""
    values = {"path": "x.py", "name": "f", "line": 1, "before": "", "after": "", "number": 1}
    original = Mutant(source="A = 2\ndef f(a):\n    return a > 2\n", **values)
    assert is_in_functions(Mutant(source=text, **values), original) is is_inside
