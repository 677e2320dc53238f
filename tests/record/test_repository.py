"""The repository a scenario lies in, as git tells of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.record.repository import describe, with_files
from harness.record.results import ResultsFolder
from tests.kit.repositories import commit, git


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one file, and nothing that it ignores."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {"scenarios/it/scenario.yaml": "x"})
    return folder


def leave_a_run(results: Path) -> Path:
    """A run that ended and one that did not."""
    ResultsFolder(results, "it").abandon("stopped")
    run = ResultsFolder(results, "it")
    run.write("evidence/it's\t/log", b"")
    return run.finish(manifest=("MANIFEST.sha256", b""), report=("report.md", b""))


def test_a_new_results_folder_is_hidden_from_git(repo: Path) -> None:
    """A results folder that a run makes ignores itself; one that was there is left as it is."""
    leave_a_run(repo / "results")
    assert git(repo, "status", "--porcelain") == ""
    (repo / "mine").mkdir()
    leave_a_run(repo / "mine")
    assert not (repo / "mine" / ".gitignore").exists()


@pytest.mark.parametrize("place", ["results", ".", "scenarios", "some/where's ö"])
def test_what_runs_left_is_no_change_of_the_tree(repo: Path, place: str) -> None:
    """Wherever results are kept, runs make no clean repository dirty; anything else there does."""
    results = repo / place
    results.mkdir(parents=True, exist_ok=True)
    run = leave_a_run(results)
    assert describe(repo / "scenarios", results=results).dirty is False
    assert describe(repo / "scenarios", results=repo / "elsewhere").dirty is True
    for name in ("notes.md", "it/subject.py", f"it/{run.name}x/subject.py", "a/it/latest"):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text("")
        found = describe(repo / "scenarios", results=results)
        assert (found.dirty, found.untracked) == (True, 1), name
        (results / name).unlink()
    (repo / "scenarios/it/scenario.yaml").write_text("y")
    assert describe(repo / "scenarios", results=results).dirty is True


def test_evidence_in_git_that_was_changed_is_a_change(repo: Path) -> None:
    """Only what is untracked is left out: a committed run that was edited makes the tree dirty."""
    (repo / "results").mkdir()
    run = leave_a_run(repo / "results")
    commit(repo, {})
    (run / "report.md").write_text("other")
    assert describe(repo, results=repo / "results").dirty is True


def test_a_repository_of_somebody_else_is_told_as_that(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git refuses a folder of another user: the record says so and what to do, and not that it has
    no commit.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository to somebody else")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    os.chown(repo, 65534, 65534)
    found = describe(repo)
    assert (found.commit, found.dirty) == (None, None)
    assert "belongs to another user (dubious ownership)" in found.why_unknown
    assert "git config --global --add safe.directory" in found.why_unknown
    assert str(repo) not in found.why_unknown


def test_a_file_that_git_overlooks_is_a_change(repo: Path) -> None:
    """A file that ran is held against the commit by its content, whatever `git status` says: one
    that git ignores, and one that it was told to assume unchanged.
    """
    folder = repo / "scenarios/it"
    commit(repo, {".gitignore": "local.py\n", "scenarios/it/helper.py": "VALUE = 1\n"})
    ran = ["scenario.yaml", "helper.py"]
    assert with_files(describe(folder), folder, ran).dirty is False
    (folder / "local.py").write_text("VALUE = 2\n")
    assert describe(folder).dirty is False
    assert with_files(describe(folder), folder, ran).dirty is False
    assert with_files(describe(folder), folder, [*ran, "local.py"]).dirty is True
    git(repo, "update-index", "--assume-unchanged", "scenarios/it/helper.py")
    (folder / "helper.py").write_text("VALUE = 3\n")
    assert describe(folder).dirty is False
    assert with_files(describe(folder), folder, ran).dirty is True
