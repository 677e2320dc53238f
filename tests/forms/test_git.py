"""Running git: it reads what it is asked about, and nothing of the repository's runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.forms.git import NO_ANSWER, batch, complaint, contents, entries_of, git
from tests.kit.repositories import commit
from tests.kit.repositories import git as user_git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, whose configuration names programs that leave a trace."""
    folder = tmp_path / "repository"
    folder.mkdir()
    user_git(folder, "init", "-q", "-b", "main")
    commit(folder, {"a": "x"})
    user_git(folder, "config", "core.fsmonitor", f"touch {tmp_path}/monitor #")
    return folder


def test_no_program_of_the_repository_runs(repository: Path, tmp_path: Path) -> None:
    """A file monitor is not asked, and the index stays as it is, byte for byte."""
    index = (repository / ".git" / "index").read_bytes()
    (repository / "a").touch()
    assert git("status", "--porcelain", folder=repository).stdout == b""
    assert not (tmp_path / "monitor").exists()
    assert (repository / ".git" / "index").read_bytes() == index


def test_what_a_hook_was_started_with_is_not_heard(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR of another repository, as git sets it for its hooks, does not lead elsewhere."""
    head = user_git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert git("rev-parse", "HEAD", folder=repository).stdout.decode().strip() == head


def test_a_machine_without_git_is_an_answer_too(repository: Path) -> None:
    """Where git is missing, the result says so and what to do."""
    done = git("rev-parse", "HEAD", folder=repository, environ={"PATH": "/nowhere"})
    assert (done.returncode, complaint(done.stderr)) == (
        NO_ANSWER,
        "git is not installed; install git",
    )


def test_files_of_a_commit_and_their_content(repository: Path) -> None:
    """Every file has its mode, id and size.

    Content comes by id, for what is there and is a file.
    """
    entries = entries_of(git("ls-tree", "-r", "-z", "-l", "HEAD", folder=repository).stdout)
    assert {path: (entry.mode, entry.size) for path, entry in entries.items()} == {
        "a": ("100644", 1)
    }
    wanted = [entries["a"].blob, "HEAD", "0" * 40]
    answer = git("cat-file", "--batch", folder=repository, given=batch(wanted)).stdout
    assert contents(answer, wanted) == {wanted[0]: b"x"}
