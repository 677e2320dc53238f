"""Where what ranks kept lies until the last trial is over: in a file without a name.

In the results folder a rank would find it by walking up from its own code, and could hand in what the whole model, or
a smaller world, computed. Nor may it open the file through this process, whose descriptors the kernel lists.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.rank.process import keep_private


@dataclass(frozen=True)
class Piece:
    """What one file held."""

    _file: BinaryIO
    _begin: int
    size: int

    def content(self) -> bytes | mmap.mmap:
        """All of it, mapped into memory: it may be larger than what is free."""
        if not self.size:
            return b""  # nothing cannot be mapped
        return mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ, offset=self._begin)


class Spool:
    """Safe to use from several threads; to be closed."""

    def __init__(self, folder: Path) -> None:
        """Make the file.

        Args:
            folder: on whose file system it lies.

        Raises:
            OSError: it cannot be made.
        """
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with it
        keep_private(private=True)
        self._end = 0
        self._lock = threading.Lock()

    def add(self, path: Path) -> Piece:
        """Take in a file.

        Raises:
            OSError: it cannot be read, or there is no space.
        """
        with self._lock, path.open("rb") as source:
            begin = self._end
            self._file.seek(begin)
            shutil.copyfileobj(source, self._file)
            self._file.flush()
            size = self._file.tell() - begin
            # Only what begins at such a place can be mapped.
            self._end = begin + size + -size % mmap.ALLOCATIONGRANULARITY
        return Piece(self._file, begin, size)

    def close(self) -> None:
        """Give it back."""
        self._file.close()
        keep_private(private=False)
