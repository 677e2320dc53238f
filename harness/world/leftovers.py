"""Files a rank leaves in its scratch folder, read as what they are: written by a process that may be hostile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.forms.regular_file import read_regular
from harness.forms.strict_json import NotStrict, strict_json
from harness.rank.failure import FILE_NAME

ERROR_LIMIT = 1024 * 1024
STACK_LIMIT = 256 * 1024
KEYS = {"ns", "type", "module", "message", "mro", "ours", "file", "line", "source", "frames", "causes"}


def read_error(scratch: Path) -> dict[str, Any] | None:
    """How the rank says it failed, or None where it says nothing that can be read."""
    text = _read(scratch / FILE_NAME, limit=ERROR_LIMIT)
    if text is None:
        return None
    try:
        error = strict_json(text)
    except NotStrict:
        return None
    if not isinstance(error, dict) or set(error) != KEYS or not isinstance(error["type"], str):
        return None
    return error


def read_stack(path: Path) -> bytes | None:
    """The stacks a rank wrote, at most 256 KiB of them."""
    return _read(path, limit=STACK_LIMIT, cut=True)


def _read(path: Path, *, limit: int, cut: bool = False) -> bytes | None:
    """Read a regular file, never through a link and never one that blocks."""
    try:
        return read_regular(path, limit=limit, follow=False, cut=cut)
    except OSError:
        return None
