"""Finding an interpreter, wherever a machine keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.run.environments.pip import NoInterpreter, find_interpreter


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder inside one that may not be entered.

    Root, who may enter any, is somebody else meanwhile.
    """
    folder = tmp_path / "closed"
    (folder / "pyenv").mkdir(parents=True)
    folder.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield folder / "pyenv"
    finally:
        os.seteuid(before)
        folder.chmod(0o700)


def test_a_place_that_cannot_be_read_is_passed_over(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable PYENV_ROOT, a name that is too long and the home of nobody hold no interpreter,
    and end nothing.
    """
    for place in (str(closed), "x" * 5000, "~there-is-no-such-user/pyenv"):
        monkeypatch.setenv("PYENV_ROOT", place)
        with pytest.raises(NoInterpreter, match=r"Python 3\.99 was not found on this machine"):
            find_interpreter("3.99")
