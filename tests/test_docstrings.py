"""Every test states its promise."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
TESTS = sorted(
    [*(PROJECT / "tests").rglob("test_*.py"), *PROJECT.glob("packages/*/tests/test_*.py")]
)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_every_test_has_a_docstring(path: Path) -> None:
    """A test without a one-sentence docstring is not accepted."""
    functions = [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
    ]
    silent = [
        node.name
        for node in functions
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []
