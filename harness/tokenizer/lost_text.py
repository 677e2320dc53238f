"""Text that a tokenizer cannot encode, because single bytes of UTF-8 have no token."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass

LAST = 0x10FFFF
# Bytes that occur in no UTF-8.
NEVER = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))
# Planes with characters that are seen: 0 to 3. Above them are tags and variation selectors, and
# private use.
_PLANES = 4
_LETTERS = frozenset("LMNPSZ")
_SPACES = frozenset("\t\n\r")
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Code points that cannot be encoded.

    Attributes:
        ranges: first and last of each range, in order.
        common: those of them that are assigned characters of planes 0 to 3: letters, marks,
            numbers, punctuation, symbols, spaces.
        needed: whether UTF-8 text can have one of the bytes at all.
    """

    ranges: tuple[tuple[int, int], ...]
    common: tuple[int, ...]
    needed: bool

    @property
    def words(self) -> str:
        """Describe what is lost, with its scale."""
        if not self.ranges:
            if self.needed:
                return "every character that needs them has a token of its own, so nothing is lost"
            return "they occur in no UTF-8 text, so nothing is lost"
        shown = ", ".join(_range(*pair) for pair in self.ranges[:_SHOWN])
        rest = len(self.ranges) - _SHOWN
        more = f" and {rest} more ranges" if rest > 0 else ""
        several = len(self.ranges) > 1 or self.ranges[0][0] != self.ranges[0][1]
        extent = f"code point{'s' if several else ''} {shown}{more} cannot be encoded"
        if not self.common:
            return (
                f"{extent}; no letter, mark, number, punctuation or symbol of planes 0 to 3 is"
                " among them"
            )
        few = ", ".join(map(_character, self.common[:_SHOWN]))
        many = (
            f" and {len(self.common) - _SHOWN:,} more characters"
            if len(self.common) > _SHOWN
            else ""
        )
        return f"{extent}, among them {few}{many}"


def lost(missing: Collection[int], *, whole: Collection[int] = ()) -> Lost:
    """Find what cannot be encoded without tokens for these bytes.

    Args:
        missing: bytes, 0 to 255.
        whole: code points that have a token of their own, which needs no bytes.
    """
    without = frozenset(missing) - NEVER
    kept = frozenset(whole)
    ranges = tuple(_joined(number for number in _code_points(without) if number not in kept))
    common = tuple(
        number for first, last in ranges for number in range(first, last + 1) if _is_common(number)
    )
    return Lost(ranges=ranges, common=common, needed=bool(without))


def _code_points(missing: frozenset[int]) -> Iterator[int]:
    """Every code point with one of these bytes in its UTF-8, in order."""
    if not missing:
        return
    for number in range(LAST + 1):
        if 0xD800 <= number <= 0xDFFF:
            continue
        if not missing.isdisjoint(chr(number).encode()):
            yield number


def _joined(numbers: Iterator[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last


def _is_common(number: int) -> bool:
    if number >= _PLANES << 16:
        return False
    character = chr(number)
    return character in _SPACES or unicodedata.category(character)[0] in _LETTERS


def _range(first: int, last: int) -> str:
    return f"U+{first:04X}" if first == last else f"U+{first:04X} to U+{last:04X}"


def _character(number: int) -> str:
    shown = f" ({chr(number)})" if chr(number).isprintable() and not chr(number).isspace() else ""
    return f"U+{number:04X}{shown}"


def bytes_in_words(numbers: Collection[int]) -> str:
    """Bytes as ranges: 0xC0, 0xC1 and so on."""
    ranges = list(_joined(iter(sorted(numbers))))
    shown = [
        f"0x{first:02X}" if first == last else f"0x{first:02X} to 0x{last:02X}"
        for first, last in ranges
    ]
    return f"byte{'s' if len(numbers) > 1 else ''} {', '.join(shown)}"
