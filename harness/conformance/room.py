"""The folder in which an engine works while it is asked, and what a killed run left of one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "rankproof-room-"
OWNER: Final = ".owner"
"""A file that is locked as long as whoever made the room lives."""


@contextmanager
def room() -> Iterator[Path]:
    """Make a room for as long as this lasts, after removing those whose owner was killed."""
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        path = Path(name).resolve()
        with (path / OWNER).open("wb") as owner:
            with contextlib.suppress(OSError):  # a file system may have no locks
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path


def remove_abandoned() -> None:
    """Remove rooms of ours whose owner is dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Without the file it may be about to be made.
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(path / OWNER, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
