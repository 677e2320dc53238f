"""Holding on to a snapshot while something is built from it.

A snapshot that is pruned, or replaced because it is damaged, first loses its name in one step. Whoever builds from it
looks afterwards whether the name still leads to the folder it began with: then nothing was taken away meanwhile, on any
file system. The shared lock beside it is only so that pruning passes over what is in use, and saves the second try.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from harness.tokenizer.loading.held import NO_LOCKS


class Lease:
    """Holds a snapshot for as long as this object lives.

    Args:
        folder: of the snapshot's files.

    Raises:
        OSError: the folder is gone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # filelock has exclusive locks only; this one is shared, on the folder itself, so that a read-only cache works.
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def holds(self) -> bool:
        """Whether the snapshot still is where it was, so that none of it was taken away."""
        begun = os.fstat(self._descriptor)
        try:
            now = self._folder.stat()
        except OSError:
            return False
        return (begun.st_dev, begun.st_ino) == (now.st_dev, now.st_ino)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Have a snapshot to oneself, to take it away; yields False where somebody is using it.

    Where the file system has no such locks it yields True: whoever builds from it finds out, and loads again.

    Raises:
        OSError: the folder is gone.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield free
    finally:
        os.close(descriptor)
