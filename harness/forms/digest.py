"""Digests of bytes, files and folders. Standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

MARK = 16


def sha256(content: bytes) -> str:
    """Return the sha256 of bytes: 64 lower-case hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes, read in pieces.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def git_blob(size: int) -> hashlib._Hash:
    """Return what git's id of a file is made with, to be fed its `size` bytes: 40 hexadecimal
    digits.
    """
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def mark(begin: bytes) -> str:
    """Return which world a rank belongs to, as it is given to every rank and comes back: a digest
    of the world's first line.

    Args:
        begin: the line of `world.begin`, as it stands in `events.jsonl`, without its newline.
    """
    return sha256(begin)[:MARK]


EMPTY = sha256(b"")
"""The sha256 of nothing."""


def lines(files: Mapping[str, str]) -> bytes:
    """List files, by path to sha256, as `sha256sum` does, sorted.

    Names that are not UTF-8 stay as they are.
    """
    text = "".join(f"{digest}  {path}\n" for path, digest in sorted(files.items()))
    return text.encode("utf-8", "surrogateescape")


def fold(files: Mapping[str, str]) -> str:
    """Return one digest for many files: the sha256 of their `lines`."""
    return sha256(lines(files))
