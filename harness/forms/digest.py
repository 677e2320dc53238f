"""Digests of bytes, files and folders. Standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

MARK = 16


def mark(begin: bytes) -> str:
    """What every rank of a world is told, and tells, of which world it is: a digest of the world's first line.

    Args:
        begin: the line of `world.begin`, as it stands in `events.jsonl`, without its newline.
    """
    return hashlib.sha256(begin).hexdigest()[:MARK]


EMPTY = hashlib.sha256().hexdigest()
"""The sha256 of nothing."""


def fold(files: Mapping[str, str]) -> str:
    """One digest for many files: sha256 over their sorted `sha256  path` lines, as `sha256sum` writes them.

    Args:
        files: path inside the folder to sha256, both as text.
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
