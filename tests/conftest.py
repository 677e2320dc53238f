"""What tests of every folder use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder to be somebody's TMPDIR, with a path short enough for servers to lie in it: pytest's own are longer."""
    folder = Path(tempfile.mkdtemp(prefix="rp-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
