"""One thing that is wrong with a GGUF file, or worth knowing about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.tokenizer.gguf.reader import GgufFile

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found.

    Attributes:
        code: which kind it is, for programs: words with hyphens.
        severity: error: an engine refuses the file, or computes something wrong; warning: engines guess or differ
            here; note: worth knowing, and nothing is wrong.
        where: the key or tensor.
        offset: byte of the file, -1 where it is about something that is not there.
        message: what is so, and why it matters.
        remedy: what to do; empty for a note.
    """

    code: str
    severity: Severity
    where: str
    offset: int
    message: str
    remedy: str = ""


def finding(file: GgufFile, where: str, code: str, severity: Severity, message: str, remedy: str = "") -> Finding:
    """A finding about a key or a tensor of a file, with the byte at which that lies."""
    place = file.keys.get(where) or file.tensors.get(where)
    offset = place.offset if place is not None else -1
    return Finding(code=code, severity=severity, where=where, offset=offset, message=message, remedy=remedy)


def is_text(content: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
