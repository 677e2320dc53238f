"""The API key in what a server sends back: found in the spellings that are listed here, and masked.

A spelling is the key itself, its bytes in hexadecimal, or the base64 of any bytes that contain it,
at each of the three alignments. Each character of a spelling may be written as it is, in another
case, or as an escape of JSON, of a URL or of HTML.
"""

from __future__ import annotations

import base64
import re
from typing import Final

NESTED: Final = rb"\\{0,7}"
"""Backslashes before a character: JSON in JSON in JSON has 7. They are bounded, as zeros are below,
so that a long run of them is not read again from each of its places.
"""
IN_URLS: Final = {"+": "-", "/": "_"}
"""What base64 for URLs has in the place of two characters."""
BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


class KeyMask:
    """Finds one key in bytes, however they spell it."""

    def __init__(self, key: str) -> None:
        raw = key.encode()
        self._plain = [_spelling(key), _spelling(raw.hex())]
        self._coded = [_spelling(_known(raw, before)) for before in range(3)]

    def masked(self, data: bytes) -> bytes:
        """Return the bytes with each spelling of the key as asterisks; their number stays."""
        masked = bytearray(data)
        for pattern in (*self._plain, *self._coded):
            for found in pattern.finditer(data):
                start, end = found.span(1)
                if pattern in self._coded:
                    # The characters beside it may hold some bits of the key.
                    start -= start > 0 and data[start - 1] in BASE64
                    end += end < len(data) and data[end] in BASE64
                masked[start:end] = b"*" * (end - start)
        return bytes(masked)

    def is_in(self, text: str) -> bool:
        """Whether a text spells the key."""
        data = text.encode("utf-8", "replace")
        return any(pattern.search(data) for pattern in (*self._plain, *self._coded))


def _known(raw: bytes, before: int) -> str:
    """Return what base64 has for a key that follows so many bytes, counted modulo 3: the characters
    that hold bits of nothing else.
    """
    coded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
    is_shared = (before + len(raw)) % 3 != 0
    return coded[before + 1 if before else 0 : -1 if is_shared else None]


def _cases(character: str) -> set[str]:
    other = {IN_URLS[character]} if character in IN_URLS else set()
    return {character, character.lower(), character.upper(), *other}


def _spelling(text: str) -> re.Pattern[bytes]:
    """Return the pattern of a text, each character as it is or as an escape.

    It looks ahead, so that a text is found also where it begins within another.
    """
    firsts = b"".join(re.escape(case.encode()) for case in sorted(_cases(text[0])))
    written = b"".join(_character(_cases(character)) for character in text)
    # Most bytes of an answer are nothing that a spelling begins with.
    return re.compile(rb"(?=[\\%%&uUxX%s])(?=(%s))" % (firsts, written))


def _character(cases: set[str]) -> bytes:
    """Return the pattern of a character in any of these cases."""
    as_it_is = b"|".join(re.escape(case.encode()) for case in sorted(cases))
    codes = sorted(ord(case) for case in cases)
    hexadecimal = b"|".join(_digits(b"%x" % code) for code in codes)
    decimal = b"|".join(b"%d" % code for code in codes)
    # The longest first: a key may end with a `u`.
    json = rb"%s(?:[uU]0{0,8}(?:%s)|[xX](?:%s)|%s)" % (NESTED, hexadecimal, hexadecimal, as_it_is)
    url = rb"%%(?:25){0,4}(?:%s)" % hexadecimal
    html = rb"&#(?:0{0,8}(?:%s)|[xX]0{0,8}(?:%s));" % (decimal, hexadecimal)
    return rb"(?:%s|%s|%s)" % (json, url, html)


def _digits(number: bytes) -> bytes:
    """Return the pattern of a hexadecimal number, its letters in either case."""
    return b"".join(b"[%c%c]" % (digit, ord(bytes([digit]).upper())) for digit in number)
