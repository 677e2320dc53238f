"""`rankproof verify` on its command line: whose list of signers is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.arguments import policy_of
from harness.cli.commands import parser
from harness.cli.reports import arguments
from tests.kit.repositories import git


def test_the_list_is_that_of_the_repository_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is that at the top of the repository around the current folder, also inside a hook
    of another one.
    """
    for name in ("mine", "theirs"):
        (tmp_path / name / ".rankproof").mkdir(parents=True)
        git(tmp_path / name, "init", "-q")
        (tmp_path / name / ".rankproof" / "allowed_signers").write_text(f"# {name}\n")
    deep = tmp_path / "mine" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "theirs" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "theirs"))
    found = policy_of(parser("verify", arguments).parse_args(["verify", "report.md"]))
    assert found.allowed_from == str(tmp_path / "mine" / ".rankproof" / "allowed_signers")
    assert found.allowed == b"# mine\n"
