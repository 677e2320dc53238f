"""One thing that is wrong with a GGUF file, or worth knowing about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
