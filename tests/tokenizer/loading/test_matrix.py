"""Faults of a hub × requests × layouts: the same tokenizer or an error.

The whole matrix is run by its own script.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from harness.hub.layouts import cached

SCRIPT = Path(__file__).parents[3] / "scenarios" / "silent-wrong-tokenizer" / "matrix.py"
LAYOUTS = ("llama2", "kimi@pinned", "templates")
KINDS = ("missing", "wrong-bytes", "wrong-etag")


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("silent_wrong_tokenizer_matrix", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cached(LAYOUTS, cache=tmp_path_factory.mktemp("layouts"))


@pytest.mark.whole
@pytest.mark.slow
def test_no_fault_gives_another_tokenizer(matrix: ModuleType, folder: Path, tmp_path: Path) -> None:
    """In layouts where a fault silently changes what transformers builds, our loader gives the same
    or an error.
    """
    wanted = [cell for cell in matrix.cells(LAYOUTS, KINDS, folder=folder) if cell.when == "always"]
    found = matrix.run(wanted, folder=folder, work=tmp_path, jobs=4)
    counted = Counter((outcome.verdict, outcome.cell.kind) for outcome in found)
    files = len(wanted) // len(KINDS)
    assert {verdict for verdict, _ in counted} == {"same", "error", "not-struck"}, counted
    for kind in ("missing", "wrong-bytes"):
        # Not struck is a file that no tokenizer reads; a changed byte in a part of an answer nobody
        # reads is the same.
        assert counted["error", kind] >= 18, counted
        assert (
            counted["error", kind] + counted["same", kind] + counted["not-struck", kind] == files
        ), counted
    assert counted["same", "missing"] == 0, counted
    assert counted["same", "wrong-etag"] >= 12, counted
    assert counted["error", "wrong-etag"] == 0, counted


@pytest.mark.slow
def test_the_matrix_sees_another_tokenizer(
    matrix: ModuleType, folder: Path, tmp_path: Path
) -> None:
    """A loader that takes a 404 for an absent file, as transformers does, is caught by the same
    matrix.
    """
    from harness.tokenizer.loading import HubFailed
    from harness.tokenizer.loading.library import auto_tokenizer

    def swallows(repository: str, commit: str, endpoint: str, cache: Path, cell: object) -> object:
        try:
            return matrix.ours(repository, commit, endpoint, cache, cell)
        except HubFailed:
            whole, partial = folder / "rankproof" / cell.layout, cache / "partial"  # type: ignore[attr-defined]
            for path in whole.rglob("*"):
                name = path.relative_to(whole).as_posix()
                if path.is_file() and name != cell.target:  # type: ignore[attr-defined]
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    (partial / name).write_bytes(path.read_bytes())
            return auto_tokenizer().from_pretrained(partial)

    wanted = [
        cell
        for cell in matrix.cells(["llama2", "templates"], ["missing"], folder=folder)
        if cell.when == "always" and cell.target in {"tokenizer.model", "chat_template.jinja"}
    ]
    found = matrix.run(wanted, folder=folder, work=tmp_path, loader=swallows)
    assert Counter(outcome.verdict for outcome in found) == {"different": 2}, found


@pytest.mark.whole
def test_no_fault_sticks(matrix: ModuleType, folder: Path, tmp_path: Path) -> None:
    """After a 404 with a commit for any file, the same cache gives the right tokenizer once the hub
    is healthy.
    """
    wanted = [
        cell
        for cell in matrix.cells(["llama2"], ["missing"], folder=folder)
        if cell.when == "always"
    ]
    found = matrix.run(wanted, folder=folder, work=tmp_path, again=True)
    assert [outcome for outcome in found if outcome.verdict == "different"] == []
    assert len([outcome for outcome in found if outcome.verdict == "error"]) > 4
