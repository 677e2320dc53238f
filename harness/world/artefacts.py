"""What ranks kept: taken from their folders once they have ended, and told as the harness finds it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from harness.events import is_name
from harness.forms.digest import sha256_of
from harness.forms.strict_json import JSON
from harness.numeric.array import NotAnArray, header
from harness.rank.artefacts import ARRAY, BFLOAT16, BYTES

MANY = 256
LARGE = 1 << 30
"""A rank may leave so many files, none of them larger than so many bytes."""
FILE = re.compile(r"(?P<name>.+?)(?P<suffix>\.bfloat16\.npy|\.npy|\.bin)")


def take(folder: Path, to: Path) -> Iterator[dict[str, JSON]]:
    """Move a rank's artefacts where they outlive the world, each under its digest.

    Args:
        folder: of the rank; it may be missing. Nothing in it is trusted: it may hold links, pipes, holes.
        to: an existing folder on the same file system.

    Yields:
        The values of the event for each, by name: name, file, bytes, sha256, and of an array dtype and shape; or file
        and `why`, where it is not an artefact.

    Raises:
        OSError: the folder cannot be read, or something cannot be moved.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries[:MANY]:
        match = FILE.fullmatch(entry.name)
        shown = entry.name.encode("ascii", "backslashreplace").decode()[:200]
        why = _refusal(entry, match)
        if match is None or why:
            yield {"file": shown, "why": why}
            continue
        path = Path(entry.path)
        values: dict[str, JSON] = {"name": match["name"], "file": shown, "bytes": path.stat().st_size}
        values["sha256"] = sha256_of(path)
        if match["suffix"] != BYTES:
            try:
                with path.open("rb") as file:
                    found = header(file, name=entry.name)
            except NotAnArray as error:
                yield {"file": shown, "why": str(error)}
                continue
            if found.bytes != values["bytes"]:
                yield {"file": shown, "why": f"it has {values['bytes']} bytes, and its header says {found.bytes}"}
                continue
            values |= {"dtype": found.dtype, "shape": list(found.shape)}
        path.replace(to / stored(values))
        yield values
    if len(entries) > MANY:
        yield {"file": "", "why": f"the rank left {len(entries)} files, of which {MANY} are looked at"}


def stored(values: dict[str, JSON]) -> str:
    """The name of an artefact's file in the evidence: the same bytes lie there once, whoever kept them."""
    suffix = BFLOAT16 if values.get("dtype") == "bfloat16" else ARRAY if "dtype" in values else BYTES
    return f"{values['sha256']}{suffix}"


def _refusal(entry: os.DirEntry[str], match: re.Match[str] | None) -> str:
    """Why a file is not an artefact; empty where it may be one."""
    if match is None or not is_name(match["name"]):
        return f"it is not named as an artefact: dotted lower-case words, then {ARRAY}, {BFLOAT16} or {BYTES}"
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    return f"it has {status.st_size} bytes; the limit is {LARGE}" if status.st_size > LARGE else ""
