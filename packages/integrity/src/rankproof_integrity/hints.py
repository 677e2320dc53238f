"""Text heuristics: where a text looks corrupt.

A hint decides nothing, for clean texts look like that too.

How often they do is published with each: of 10,000 clean texts in twenty scripts, code, emoji,
base64, and texts that look corrupt on purpose, the guide (docs/integrity.md of this package) has
the table, and a test measures it again.

Standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# characters that repeat, in at least so many turns
LEAST_REPEATED = 48
TURNS = 10
MOJIBAKE_SHARE = 0.5  # of the characters that are not ASCII


def _windows_1252() -> dict[str, int]:
    """Byte of each character, where the five bytes that the code page lacks are what browsers take
    them for.
    """
    return {bytes([byte]).decode("cp1252", "ignore") or chr(byte): byte for byte in range(256)} | {
        chr(byte): byte for byte in range(0x80, 0xA0)
    }


_BYTES = _windows_1252()
_TO_BYTES = str.maketrans({letter: chr(byte) for letter, byte in _BYTES.items()})
_TAIL = (
    "[" + "".join(re.escape(letter) for letter, byte in _BYTES.items() if 0x80 <= byte < 0xC0) + "]"
)
_DOUBLE = re.compile(f"(?:[Â-ß]{_TAIL}|[à-ï]{_TAIL}{{2}}|[ð-ô]{_TAIL}{{3}})+")
_REPEATED = re.compile(rf"(?=\S)(.{{1,64}}?)\1{{{TURNS - 1},}}", re.DOTALL)


def decoded_once_more(text: str) -> str | None:
    """Return what a text was before its UTF-8 was read as Windows-1252 or Latin-1; None where it
    cannot have been.
    """
    try:
        raw = text.translate(_TO_BYTES).encode("latin-1")
        return None if raw.isascii() else raw.decode()
    except UnicodeError:
        return None


def _mojibake(text: str) -> Iterator[tuple[int, int]]:
    if text.isascii():
        return
    found = [
        match.span() for match in _DOUBLE.finditer(text) if decoded_once_more(match[0]) is not None
    ]
    others = sum(not letter.isascii() for letter in text)
    if sum(end - begin for begin, end in found) >= MOJIBAKE_SHARE * others:
        yield from found


def _replacements(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in re.finditer("\ufffd+", text))


def _nuls(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in re.finditer("\0+", text))


def _repetitions(text: str) -> Iterator[tuple[int, int]]:
    for match in _REPEATED.finditer(text):
        if match.end() - match.start() >= LEAST_REPEATED:
            yield match.span()


@dataclass(frozen=True, kw_only=True)
class Heuristic:
    """One way to look at a text.

    Attributes:
        name: what is looked for.
        false_positive_rate: share of the published clean texts where it is found.
        find: where in a text it is, as begin and end in characters.
    """

    name: str
    false_positive_rate: float
    find: Callable[[str], Iterator[tuple[int, int]]]


HEURISTICS = (
    Heuristic(name="mojibake", false_positive_rate=0.0046, find=_mojibake),
    Heuristic(name="replacement-character", false_positive_rate=0.0062, find=_replacements),
    Heuristic(name="nul", false_positive_rate=0.005, find=_nuls),
    Heuristic(name="repetition", false_positive_rate=0.0235, find=_repetitions),
)


@dataclass(frozen=True, kw_only=True)
class Hint:
    """A place where a text looks corrupt.

    Attributes:
        name: of the heuristic.
        affected_range: begin and end, in characters.
        false_positive_rate: in how large a share of clean texts this heuristic finds something.
    """

    name: str
    affected_range: tuple[int, int]
    false_positive_rate: float


def hints(text: str) -> tuple[Hint, ...]:
    """Every place where a text looks corrupt."""
    return tuple(
        Hint(name=one.name, affected_range=where, false_positive_rate=one.false_positive_rate)
        for one in HEURISTICS
        for where in one.find(text)
    )
