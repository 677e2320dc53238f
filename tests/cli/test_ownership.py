"""A repository that belongs to another user, which git refuses to read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.arms.code import GitRepository, RevisionError
from tests.kit.commands import Ran
from tests.kit.repositories import make

REMEDY = "belongs to another user (dubious ownership): chown the folder, or"


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of somebody else."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository to somebody else")
    for name, value in {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, value)
    folder = make(tmp_path / "theirs")
    os.chown(folder, 65534, 65534)
    return folder


@pytest.mark.parametrize("command", ["gate", "verify"])
def test_it_is_told_as_what_it_is(
    theirs: Path, rankproof: Callable[..., Ran], command: str
) -> None:
    """Gate and verify say whose the repository is and what to do, and not that there is none."""
    (theirs / "below").mkdir()
    words = ["gate"] if command == "gate" else ["verify", "report.md"]
    ran = rankproof(*words, cwd=theirs / "below", env={"GIT_CONFIG_NOSYSTEM": "1"})
    assert REMEDY in ran.out + ran.err
    assert "not in a git repository" not in ran.out + ran.err


def test_an_arm_from_it_is_refused_with_the_reason(theirs: Path) -> None:
    """A revision of such a repository cannot be laid out, and the message is not only git's last
    line.
    """
    with pytest.raises(
        RevisionError, match="repo theirs cannot be used: git refuses the repository because"
    ):
        GitRepository(theirs, given="theirs")
