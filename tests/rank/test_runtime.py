"""The rank's runtime beside a subject that is Rankproof itself."""

from __future__ import annotations

import ast
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

import harness
from harness.rank.groups import Watch
from harness.rank.lifecycle import seed

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


def test_torch_gives_the_numbers_that_its_own_seeding_gives() -> None:
    """A rank seeds the generator of the CPU alone where torch has no other device."""
    torch = pytest.importorskip("torch")
    number = 2**64 - 3
    torch.manual_seed(number)
    expected = torch.rand(8)
    seed(number)
    assert torch.equal(torch.rand(8), expected)


def test_torch_seeds_all_its_devices_where_it_was_built_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a build for accelerators, and in an older torch that cannot tell, torch seeds itself."""
    seeded: list[int] = []
    for accelerator in (SimpleNamespace(current_accelerator=lambda: "cuda"), None):
        torch = SimpleNamespace(manual_seed=seeded.append)
        if accelerator is not None:
            torch.accelerator = accelerator
        monkeypatch.setitem(sys.modules, "torch", torch)
        seed(7)
    assert seeded == [7, 7]


def test_a_finder_without_find_spec_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject may leave a finder of the old kind, which the import system passes over."""
    watch = Watch(lambda _name, _values: None, size=1)
    monkeypatch.setattr(sys, "meta_path", [object(), watch, PathFinder])
    spec = watch.find_spec("torch.distributed", [])
    assert spec is None
