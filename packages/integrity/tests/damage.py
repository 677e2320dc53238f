"""What is done to outputs on purpose: each kind of corruption, to the text, to the ids, or to
both.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from rankproof_integrity.token_validator import TokenValidator

FIRST = 8  # ids before it are special
WRITTEN = (Path(__file__).parent / "tokenizer.json").read_text(encoding="utf-8")
VOCABULARY = json.loads(WRITTEN)["model"]["vocab"]
SIZE = len(VOCABULARY)
_PLAIN = [
    *range(ord("!"), ord("~") + 1),
    *range(ord("¡"), ord("¬") + 1),
    *range(ord("®"), ord("ÿ") + 1),
]
_HIDDEN = [byte for byte in range(256) if byte not in _PLAIN]
BYTE_LEVEL = {chr(byte): byte for byte in _PLAIN} | {
    chr(256 + at): byte for at, byte in enumerate(_HIDDEN)
}
"""The byte of each of GPT-2's printable characters."""


@cache
def tokenizer() -> Tokenizer:
    """Byte-level BPE of 528 tokens: that of the models that Rankproof makes."""
    return Tokenizer.from_str(WRITTEN)


@cache
def spellings() -> list[bytes]:
    """The bytes of every id."""
    by_id = {number: token for token, number in VOCABULARY.items()}
    ordinary = [bytes(BYTE_LEVEL[letter] for letter in by_id[one]) for one in range(FIRST, SIZE)]
    return [by_id[one].encode() for one in range(FIRST)] + ordinary


def spell(token_id: int) -> bytes:
    """The bytes of one id."""
    return spellings()[token_id]


def decode(ids: list[int]) -> str:
    """The text of ids, by the tokenizer itself."""
    return tokenizer().decode(ids, skip_special_tokens=False)


def encode(text: str) -> list[int]:
    """The ids of a text."""
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


@cache
def vocabulary() -> TokenValidator:
    """What is known of its ids."""
    return TokenValidator.of(tokenizer())


@dataclass(frozen=True)
class Output:
    """One output: as it was made, and as it came."""

    text: str
    ids: list[int]
    sent: list[int]


def clean(text: str) -> Output:
    """As it was made."""
    ids = encode(text)
    return Output(text, ids, ids)


def _mojibake(output: Output, chance: random.Random) -> Output:
    raw = output.text.encode()
    return replace(
        output, text="".join(bytes([one]).decode("cp1252", "ignore") or chr(one) for one in raw)
    )


def _characters(character: str) -> Callable[[Output, random.Random], Output]:
    def damaged(output: Output, chance: random.Random) -> Output:
        letters = list(output.text)
        for _ in range(chance.randint(1, 3)):
            letters[chance.randrange(len(letters))] = character
        return replace(output, text="".join(letters))

    return damaged


def _repeated_text(output: Output, chance: random.Random) -> Output:
    at, text = chance.randrange(len(output.text)), output.text
    piece = text[at : at + chance.randint(2, 20)]
    return replace(
        output, text=text[:at] + piece * chance.randint(10, 30) + text[at + len(piece) :]
    )


def _of_ids(ids: list[int], output: Output) -> Output:
    return replace(output, ids=ids, text=decode(ids))


def _repeated_ids(output: Output, chance: random.Random) -> Output:
    at, ids = chance.randrange(len(output.ids)), output.ids
    piece = ids[at : at + chance.randint(1, 8)]
    return _of_ids(ids[:at] + piece * chance.randint(10, 30) + ids[at + len(piece) :], output)


def _other_order(output: Output, chance: random.Random) -> Output:
    order = list(range(FIRST, SIZE))
    random.Random("another vocabulary of the same size").shuffle(order)
    return replace(
        output, text=decode([order[one - FIRST] if one >= FIRST else one for one in output.ids])
    )


def _larger_vocabulary(output: Output, chance: random.Random) -> Output:
    # As many ids as 32,000 tokens have, not 528.
    return _of_ids([one * 61 for one in output.ids], output)


def _shifted(output: Output, chance: random.Random) -> Output:
    by = chance.choice((-2, -1, 1, 2))
    return _of_ids(
        [
            FIRST + (one - FIRST + by) % (SIZE - FIRST) if one >= FIRST else one
            for one in output.ids
        ],
        output,
    )


def _flipped(output: Output, chance: random.Random) -> Output:
    ids = list(output.ids)
    ids[chance.randrange(len(ids))] ^= 1 << chance.randrange(32)
    return _of_ids(ids, output)


def _dropped(output: Output, chance: random.Random) -> Output:
    ids = list(output.ids)
    del ids[chance.randrange(len(ids))]
    return _of_ids(ids, output)


def _swapped(output: Output, chance: random.Random) -> Output:
    ids, at = list(output.ids), chance.randrange(max(1, len(output.ids) - 1))
    ids[at : at + 2] = ids[at : at + 2][::-1]
    return _of_ids(ids, output)


DAMAGE: dict[str, Callable[[Output, random.Random], Output]] = {
    "mojibake by double encoding": _mojibake,
    "replacement characters": _characters("\ufffd"),
    "NUL bytes": _characters("\0"),
    "repeated n-gram in the text": _repeated_text,
    "repeated n-gram in the ids": _repeated_ids,
    "decoded with another vocabulary": _other_order,
    "ids of a larger vocabulary": _larger_vocabulary,
    "shifted ids": _shifted,
    "one flipped bit of an id": _flipped,
    "a token that was lost": _dropped,
    "two tokens in the other order": _swapped,
}


def damaged(kind: str, text: str, number: int) -> Output | None:
    """An output with that damage; None where it left everything as it was (mojibake of ASCII): not
    counted.
    """
    made = clean(text)
    found = DAMAGE[kind](made, random.Random(f"{kind} {number}"))
    return None if (found.text, found.ids) == (made.text, made.ids) else found
