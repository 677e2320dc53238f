"""Files that nobody vouches for, read with limits. Runs in the child process."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

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
        raise Unreadable(f"{path}: {_why(error)}") from None
    folder = inside.resolve()
    allowed = [folder]
    if folder.parent.name == "snapshots":
        allowed.append(folder.parent.parent / "blobs")
    if not any(real.is_relative_to(one) for one in allowed):
        raise Unreadable(f"{path}: is a link that leads out of its folder, to {real}; put the file itself there")
    largest = LARGEST.get(path.name, LARGEST_OTHER)
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - opened by descriptor, so that it is the file that was checked
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable(f"{path}: is not a regular file")
            if found.st_size > largest:
                raise Unreadable(f"{path}: has {found.st_size} bytes; more than {largest} is no {path.name}")
            read = file.read(largest + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {_why(error)}") from None
    if len(read) > largest:
        raise Unreadable(f"{path}: grew past {largest} bytes while it was read")
    return read


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
        read = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise Unreadable(f"{path}: is nested too deeply") from None
    except MemoryError:
        raise Unreadable(f"{path}: needs more memory than a tokenizer may take") from None
    except ValueError as error:
        raise Unreadable(f"{path}: {first_line(error)}") from None
    if not isinstance(read, dict):
        raise Unreadable(f"{path}: must be a JSON object, not {type(read).__name__}")
    return read, text


def _decode(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 at byte {error.start}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:80]!r} is given twice")
            seen.add(key)
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error)
