"""Runs to be reproduced: programs without a group, so that each takes about a second.

And people to reproduce them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.people import Person, Ran, repository
from tests.kit.repositories import git


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    """Who makes the first run."""
    return Person(tmp_path / "ann")


@pytest.fixture
def bob(tmp_path: Path) -> Person:
    """Who reproduces it."""
    return Person(tmp_path / "bob")


@pytest.fixture
def project(ann: Person) -> Callable[..., Path]:
    """Ann's repository with the scenario in `scenarios/words`; `files` are added, or replace the
    usual ones.
    """
    return lambda files=None: repository(ann, files)


@pytest.fixture(scope="session")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Person, Ran]:
    """The usual run and who made it, for tests that only read it: once for all of them."""
    maker = Person(tmp_path_factory.mktemp("usual") / "ann")
    return maker, maker("run", "scenarios/words", cwd=repository(maker))


@pytest.fixture
def clone(bob: Person) -> Callable[[Path], Path]:
    """Bob's clone of a repository, which knows nothing of where it came from."""

    def make(project: Path) -> Path:
        place = bob.folder / "clone"
        git(bob.folder, "clone", "-q", "--no-local", str(project), str(place))
        git(place, "remote", "remove", "origin")
        return place

    return make
