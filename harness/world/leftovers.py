"""Files a rank leaves in its scratch folder, read as what they are: written by a process that may be hostile."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

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
        found = strict_json(text)
    except NotStrict:
        return None
    if not isinstance(found, dict) or set(found) != KEYS or not isinstance(found["type"], str):
        return None
    return found


def read_stack(path: Path) -> bytes | None:
    """The stacks a rank wrote, at most 256 KiB of them."""
    return _read(path, limit=STACK_LIMIT, cut=True)


def _read(path: Path, *, limit: int, cut: bool = False) -> bytes | None:
    """Read a regular file, never through a link and never one that blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Python itself refuses to make a file of a folder's descriptor: look first.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = b""
        while len(content) <= limit and (more := os.read(descriptor, limit + 1 - len(content))):
            content += more
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(content) > limit:
        return content[:limit] if cut else None
    return content
