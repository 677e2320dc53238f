"""The letters that ByteLevel writes for bytes (GPT-2's table)."""

from __future__ import annotations

_VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
# Byte by letter. A byte that cannot be seen gets a letter from 256 on.
BYTE_LEVEL = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + index): byte for index, byte in enumerate(_HIDDEN)}


def text_of(token: str) -> str:
    """The text that ByteLevel writes as this token; the token itself where it is not of these letters."""
    if any(letter not in BYTE_LEVEL for letter in token):
        return token
    return bytes(BYTE_LEVEL[letter] for letter in token).decode("utf-8", "replace")
