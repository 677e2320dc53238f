"""The one form that tokenizers of every format are brought into, so that they can be compared; and
text that a tokenizer cannot encode, because single bytes of UTF-8 have no token.

A token is kept as GGUF stores it: UTF-8, bytes of a byte-level tokenizer as the letters of GPT-2's
table. So a GGUF file's arrays are digested where they lie, and the fingerprint of 128,000 tokens
takes some milliseconds.
"""

from __future__ import annotations

import hashlib
import struct
import unicodedata
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.tokenizer.identity import digest

MOST_TOKENS = 1 << 20
# Types of tokens, as GGUF numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
TYPE_NAMES = {
    NORMAL: "NORMAL",
    UNKNOWN: "UNKNOWN",
    CONTROL: "CONTROL",
    USER_DEFINED: "USER_DEFINED",
    UNUSED: "UNUSED",
    BYTE: "BYTE",
}

# The parts of the fingerprint: what decides the ids of a text, before anything is put around them.
ENCODER = (
    "model",
    "tokens",
    "token types",
    "merges",
    "scores",
    "pre-tokenizer",
    "normalizer",
    "options",
    "added tokens",
)
# What stands beside it: put around every text, named, or read by others.
BESIDE = ("around", "bos", "eos", "pad", "chat templates")
_LENGTH = struct.Struct("<Q")
_SAME_TYPES = bytes(CONTROL if kind == UNKNOWN else kind for kind in range(256))


@dataclass(frozen=True, kw_only=True)
class Form:
    """A tokenizer, brought into the one form.

    Attributes:
        format: of the file: `GGUF`, `tokenizer.json`, `SentencePiece`, `tiktoken` or `tekken`.
        parts: value by name, of ENCODER and BESIDE; short text, or `sha256:` and 64 hex digits.
            None: the file does not say.
        assumed: parts for which the format has no field, with what engines do about it; their value
            is what engines take.
        tokens: gives the text of every id, from 0 on; what has no token is `[PADn]`, UNUSED.
            Padding at the end is cut.
        types: of every id, one byte each; UNKNOWN is CONTROL here, because `<unk>` is marked as
            either.
        merges: gives the merges as two pieces with a space between; empty where there are none.
        scores: gives the scores, float32, those of tokens that are not NORMAL as 0; empty where
            there are none.
        padding: ids that were cut at the end.
        remarks: what is worth saying about the file by itself.
    """

    format: str
    parts: Mapping[str, str | None]
    types: bytes
    tokens: Callable[[], list[bytes]]
    merges: Callable[[], list[bytes]] = list
    scores: Callable[[], array[float]] = lambda: array("f")
    assumed: Mapping[str, str] = field(default_factory=dict)
    padding: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """sha256 of the encoder's parts, 64 hex digits.

        Equal: both files describe one encoder. Unequal: they do not, or one of them does not say
        all.
        """
        return digest("tokenizer fingerprint 1", {name: self.parts[name] for name in ENCODER})

    @property
    def size(self) -> int:
        """Ids, without padding at the end."""
        return len(self.types)


def without_padding(types: bytes) -> int:
    """Count the ids that are left when unused ones at the end are cut."""
    return len(types.rstrip(bytes([UNUSED])))


def types_part(types: bytes) -> tuple[bytes, str]:
    """Types with UNKNOWN as CONTROL, and their part."""
    unified = types.translate(_SAME_TYPES)
    return unified, f"sha256:{hashlib.sha256(unified).hexdigest()}"


def strings_part(strings: Iterable[bytes]) -> str:
    """Return the part of tokens or merges: as GGUF stores them, each after its length in 8
    bytes.
    """
    pack = _LENGTH.pack
    digested = hashlib.sha256(b"".join([pack(len(string)) + string for string in strings]))
    return f"sha256:{digested.hexdigest()}"


def scores_part(scores: array[float], types: bytes) -> tuple[array[float], str]:
    """Scores with 0 for what no text becomes by its score, and their part."""
    normal = array("f", scores)
    for index, kind in enumerate(types):
        if kind != NORMAL:
            normal[index] = 0.0
    stored = normal
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        stored = array("f", normal)
        stored.byteswap()
    return normal, f"sha256:{hashlib.sha256(stored.tobytes()).hexdigest()}"


# The letters that ByteLevel writes for bytes (GPT-2's table).
_VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
# Byte by letter. A byte that cannot be seen gets a letter from 256 on.
BYTE_LEVEL = {chr(byte): byte for byte in _VISIBLE} | {
    chr(256 + index): byte for index, byte in enumerate(_HIDDEN)
}
_LETTERS = {byte: letter for letter, byte in BYTE_LEVEL.items()}
_SPELLED = {byte: letter.encode() for byte, letter in _LETTERS.items()}


def spelled(content: bytes) -> bytes:
    """Bytes in the letters of GPT-2's table, as UTF-8."""
    return b"".join([_SPELLED[byte] for byte in content])


def plain(token: bytes) -> bytes:
    """Return the bytes that a token of a byte-level vocabulary stands for.

    The token itself where it is not of these letters.

    Half a character (a token ends where it likes) stays bytes.
    """
    text = token.decode("utf-8", "surrogatepass")
    if all(letter in BYTE_LEVEL for letter in text):
        return bytes(BYTE_LEVEL[letter] for letter in text)
    return token


def text_of(token: str) -> str:
    """Return the text that ByteLevel writes as this token.

    The token itself where it is not of these letters.
    """
    if any(letter not in BYTE_LEVEL for letter in token):
        return token
    return bytes(BYTE_LEVEL[letter] for letter in token).decode("utf-8", "replace")


LAST = 0x10FFFF
# Bytes that occur in no UTF-8.
NEVER = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))
# Planes with characters that are seen: 0 to 3. Above them are tags and variation selectors, and
# private use.
_PLANES_END = (4 << 16) - 1
_CATEGORIES = frozenset("LMNPSZ")
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
                return "every character that needs them has its own token, so nothing is lost"
            return "they occur in no UTF-8 text, so nothing is lost"
        shown = ", ".join(_range(*pair) for pair in self.ranges[:_SHOWN])
        rest = len(self.ranges) - _SHOWN
        more = f" and {rest} more ranges" if rest > 0 else ""
        several = len(self.ranges) > 1 or self.ranges[0][0] != self.ranges[0][1]
        extent = f"code point{'s' if several else ''} {shown}{more} cannot be encoded"
        if not self.common:
            return (
                f"{extent}; none of these is a letter, mark, number, punctuation mark or symbol of"
                " planes 0 to 3"
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
    ranges = tuple(_joined(_code_points(without, frozenset(whole))))
    common = tuple(
        number
        for first, last in ranges
        for number in range(first, min(last, _PLANES_END) + 1)
        if _is_common(number)
    )
    return Lost(ranges=ranges, common=common, needed=bool(without))


def _code_points(missing: frozenset[int], kept: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Ranges of code points with one of these bytes in their UTF-8, without those that are kept."""
    blocks_with_kept = {number >> 6 for number in kept}
    # By the first byte that the last one of a character can be, in UTF-8 of any length.
    ends = {
        first: [offset for offset in range(64) if first + offset in missing]
        for first in (0x00, 0x40, 0x80)
    }
    for block in range((LAST + 1) >> 6 if missing else 0):
        first = block << 6
        if 0xD800 <= first <= 0xDFFF:
            continue
        # The 64 of a block differ in their last byte alone.
        *before, end = chr(first).encode()
        lost_whole = not missing.isdisjoint(before)
        if lost_whole and block not in blocks_with_kept:
            yield first, first + 63
            continue
        for offset in range(64) if lost_whole else ends[end]:
            if first + offset not in kept:
                yield first + offset, first + offset


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges, in order, with those that follow on one another made one."""
    joined = None
    for first, last in ranges:
        if joined is None:
            joined = first, last
        elif first == joined[1] + 1:
            joined = joined[0], last
        else:
            yield joined
            joined = first, last
    if joined is not None:
        yield joined


def _is_common(number: int) -> bool:
    character = chr(number)
    return character in _SPACES or unicodedata.category(character)[0] in _CATEGORIES


def _range(first: int, last: int) -> str:
    return f"U+{first:04X}" if first == last else f"U+{first:04X} to U+{last:04X}"


def _character(number: int) -> str:
    shown = f" ({chr(number)})" if chr(number).isprintable() and not chr(number).isspace() else ""
    return f"U+{number:04X}{shown}"


def bytes_in_words(numbers: Collection[int]) -> str:
    """Bytes as ranges: 0xC0, 0xC1 and so on."""
    ranges = list(_joined((number, number) for number in sorted(numbers)))
    shown = [
        f"0x{first:02X}" if first == last else f"0x{first:02X} to 0x{last:02X}"
        for first, last in ranges
    ]
    return f"byte{'s' if len(numbers) > 1 else ''} {', '.join(shown)}"
