"""MANIFEST.sha256: files and their digests, in the one way `sha256sum` writes them.

Standard library only.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "MANIFEST.sha256"
MOST_FILES = 100_000
LONGEST_PATH = 1_024
DEEPEST = 32

_LINE = re.compile(r"([0-9a-f]{64})  (.+)", re.DOTALL)


class ManifestMalformed(ValueError):
    """Refusal of a manifest that is not written the one accepted way, by line."""


def encode(digests: Mapping[str, str]) -> bytes:
    """Return the manifest of files: path to sha256 in 64 lower-case hex digits, sorted by the bytes
    of the path.
    """
    lines = sorted((path.encode(), digest.encode()) for path, digest in digests.items())
    return b"".join(digest + b"  " + path + b"\n" for path, digest in lines)


def parse(data: bytes) -> dict[str, str]:
    """Return path to sha256, in the order of the manifest.

    Raises:
        ManifestMalformed: not UTF-8; not `digest, two blanks, path` on every line; not sorted; too
            many files; a path that is absolute, not plain, holds `..`, a backslash or an
            unprintable character, is listed twice, or differs from another only by case or by the
            way its accents are written.
    """
    if data.count(b"\n") > MOST_FILES:
        _refuse(MOST_FILES + 1, f"more than {MOST_FILES} files")
    if data and not data.endswith(b"\n"):
        _refuse(data.count(b"\n") + 1, "the last line has no newline")
    digests: dict[str, str] = {}
    alike: dict[str, str] = {}
    before = b""
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):
        digest, path = _entry(number, raw)
        same = path if path.isascii() else unicodedata.normalize("NFC", path)
        same = same.casefold()
        if path in digests:
            _refuse(number, f"{path!r} is listed twice")
        if same in alike:
            _refuse(
                number,
                f"{path!r} differs from {alike[same]!r} only in upper and lower case"
                " or in its Unicode form",
            )
        if raw[66:] <= before:
            _refuse(number, "the paths are not sorted by their bytes")
        before = raw[66:]
        alike[same] = path
        digests[path] = digest
    return digests


def _entry(number: int, raw: bytes) -> tuple[str, str]:
    try:
        line = raw.decode()
    except UnicodeDecodeError:
        _refuse(number, "not UTF-8")
    match = _LINE.fullmatch(line)
    if not match:
        _refuse(number, "not 64 lower-case hex digits, two blanks and a path")
    path = match[2]
    steps = path.split("/")
    if len(path) > LONGEST_PATH or len(steps) > DEEPEST:
        _refuse(number, "a path that is too long or too deep")
    if "\\" in path or not path.isprintable():
        _refuse(number, f"{path!r} contains a backslash or an unprintable character")
    if any(step in {"", ".", ".."} for step in steps):
        _refuse(number, f"{path!r} is not a plain path inside the folder")
    if path.casefold() == NAME.casefold():
        _refuse(number, "the manifest contains its own path")
    return match[1], path


def _refuse(number: int, what: str) -> NoReturn:
    raise ManifestMalformed(f"line {number} of {NAME}: {what}")
