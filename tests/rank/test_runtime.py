"""The rank's runtime beside a subject that is Rankproof itself."""

from __future__ import annotations

import ast
from pathlib import Path

import harness

ROOT = Path(harness.__file__).parent


def test_the_runtime_imports_nothing_of_ours_late() -> None:
    """Once the subject is loaded, `harness` may be the subject's: what runs in a rank has its own
    modules by then.
    """
    files = [
        file
        for room in ("rank/*", "backends/*_inside", "faults/*_inside")
        for file in ROOT.glob(f"{room}.py")
    ]
    late = []
    for file in files:
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    names = (
                        [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                    )
                    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                    late += [
                        f"{file.name}:{node.lineno}"
                        for name in names
                        if name.partition(".")[0] == "harness"
                    ]
    assert late == []
