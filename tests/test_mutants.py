"""The tool that puts slips into the judging code: which mutants there are, and what it calls killed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.mutation import mutants

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
