"""Digests of values, the same on every machine."""

from __future__ import annotations

import json
from typing import Any

from harness.forms.digest import sha256

SHORT = 240


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, no escapes but those JSON needs."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(kind: str, value: Any) -> str:
    """64 hex digits of a value; `kind` keeps digests of different things apart."""
    return sha256(f"{kind}\n{canonical_json(value)}".encode())


def digest_text(text: str | bytes) -> str:
    """`sha256:` and 64 hex digits of a text. Half a character (a lone surrogate) is taken as it is."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return f"sha256:{sha256(raw)}"


def short(value: Any) -> str:
    """A value as a part: its JSON where that is short, else the digest of it."""
    text = canonical_json(value)
    return text if len(text) <= SHORT else digest_text(text)
