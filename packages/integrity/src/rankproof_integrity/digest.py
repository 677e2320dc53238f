"""Digest of bytes as they lie: xxh3 of 64 bits. It finds accidents.

It does not keep out whoever forges bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SIZE = 8

_missing: str | None = None
try:
    import xxhash
except ModuleNotFoundError:
    _missing = (
        "rankproof-integrity needs xxhash for digests, but it is not installed; run pip install"
        " xxhash"
    )


def digest(*parts: Any) -> int:
    """Xxh3 of 64 bits, of the bytes of all parts one after the other, none of which is copied.

    Args:
        parts: contiguous buffers: bytes, bytearray, memoryview, an array.

    Raises:
        ModuleNotFoundError: xxhash is not installed.
    """
    if _missing:
        raise ModuleNotFoundError(_missing)
    if len(parts) == 1:
        return digest_of(parts[0])
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part)
    return state.intdigest()


class Chunks:
    """Digest of bytes that come one part after the other.

    Args:
        first: the first of them, which may be empty.
    """

    def __init__(self, first: Any) -> None:
        self._state = xxhash.xxh3_64(first)
        self.add = self._state.update

    def digest(self) -> int:
        """Of all parts so far: the same as `digest` of them."""
        return int(self._state.intdigest())


def _hexadecimal(data: Any) -> str:
    return f"{digest(data):016x}"


# The functions themselves where they are installed: one of ours around each would take as long as
# they do for a token. Without xxhash `digest` says what to install.
digest_of: Callable[[Any], int] = xxhash.xxh3_64_intdigest if _missing is None else digest
"""Of one buffer."""

hexadecimal: Callable[[Any], str] = xxhash.xxh3_64_hexdigest if _missing is None else _hexadecimal
"""Of one buffer too, in sixteen lower-case letters and digits."""
