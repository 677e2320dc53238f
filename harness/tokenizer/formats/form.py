"""The one form that tokenizers of every format are brought into, so that they can be compared.

A token is kept as GGUF stores it: UTF-8, bytes of a byte-level tokenizer as the letters of GPT-2's
table. So a GGUF file's arrays are digested where they lie, and the fingerprint of 128,000 tokens
takes some milliseconds.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from harness.tokenizer.components import BYTE_LEVEL
from harness.tokenizer.gguf.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    TYPE_NAMES,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)
from harness.tokenizer.identity import digest

__all__ = [
    "BESIDE",
    "BYTE",
    "CONTROL",
    "ENCODER",
    "NORMAL",
    "TYPE_NAMES",
    "UNKNOWN",
    "UNUSED",
    "USER_DEFINED",
    "Form",
]

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
    """The part of tokens or merges: as GGUF stores them, each after its length in 8 bytes."""
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


_LETTERS = {byte: letter for letter, byte in BYTE_LEVEL.items()}
_SPELLED = {byte: letter.encode() for byte, letter in _LETTERS.items()}


def spelled(content: bytes) -> bytes:
    """Bytes in the letters of GPT-2's table, as UTF-8."""
    return b"".join([_SPELLED[byte] for byte in content])


def plain(token: bytes) -> bytes:
    """The bytes that a token of a byte-level vocabulary stands for.

    The token itself where it is not of these letters.

    Half a character (a token ends where it likes) stays bytes.
    """
    text = token.decode("utf-8", "surrogatepass")
    if all(letter in BYTE_LEVEL for letter in text):
        return bytes(BYTE_LEVEL[letter] for letter in text)
    return token
