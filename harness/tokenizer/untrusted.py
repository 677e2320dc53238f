"""Files that nobody vouches for, read with limits. Runs in the child process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.forms.regular_file import read_regular
from harness.forms.strict_json import NotStrict, strict_json
from harness.tokenizer.problem import Unreadable, first_line

LARGEST = {"tokenizer.json": 128 << 20}
LARGEST_OTHER = 16 << 20


def read_bytes(path: Path, *, inside: Path) -> bytes:
    """The bytes of a regular file in `inside`.

    A link is followed where the hub's cache makes one: from `snapshots/<commit>/` into `blobs/` beside it.

    Raises:
        Unreadable: for anything else.
    """
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise Unreadable(f"{path}: {_reason(error)}") from None
    folder = inside.resolve()
    allowed = [folder]
    if folder.parent.name == "snapshots":
        allowed.append(folder.parent.parent / "blobs")
    if not any(real.is_relative_to(one) for one in allowed):
        raise Unreadable(f"{path}: is a link that leads out of its folder, to {real}; put the file itself there")
    try:
        return read_regular(real, limit=LARGEST.get(path.name, LARGEST_OTHER), follow=False)
    except OSError as error:
        raise Unreadable(f"{path}: {_reason(error)}") from None


def read_text(path: Path, *, inside: Path) -> str:
    """A UTF-8 text as transformers reads it, with every line end turned into a newline."""
    return _decode(path, read_bytes(path, inside=inside)).replace("\r\n", "\n").replace("\r", "\n")


def read_object(path: Path, *, inside: Path) -> tuple[dict[str, Any], str]:
    """A JSON object, and its text; duplicate keys, NUL bytes and NaN are refused."""
    text = _decode(path, read_bytes(path, inside=inside))
    if not text.strip():
        raise Unreadable(f"{path}: is empty")
    if "\0" in text:
        raise Unreadable(f"{path}: holds NUL bytes at {text.index(chr(0))}; it was not written to its end")
    try:
        tree = strict_json(text)
    except MemoryError:
        raise Unreadable(f"{path}: needs more memory than a tokenizer may take") from None
    except NotStrict as error:
        raise Unreadable(f"{path}: {error}") from None
    if not isinstance(tree, dict):
        raise Unreadable(f"{path}: must be a JSON object, not {type(tree).__name__}")
    return tree, text


def _decode(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 at byte {error.start}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error)
