"""A stand-in for a run: a record, evidence, and a judge and a renderer that are real, only
small.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.signed_runs import Keys, Run


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Key pairs for all tests, made when they are first asked for."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def run(tmp_path: Path, keys: Keys) -> Run:
    """A good folder, signed by `ci`."""
    made = Run(tmp_path / "run", keys)
    made.folder.mkdir()
    made.write({"trial-1": "pass", "trial-2": "pass"})
    made.write_manifest()
    made.sign()
    return made
