"""What the recall model knows: 256 keys of two tokens, each with a value of three.

Follows from the number of the key alone, so that nobody has to ship or trust a list.
"""

from __future__ import annotations

import hashlib
import random

from harness.engines.models.vocabulary import BEGIN, SIZE, SPECIAL

KEYS = 256
ANSWER = 3
LONGEST_FILLER = 4
OPEN = SPECIAL.index("<|im_start|>")
CLOSE = SPECIAL.index("<|im_end|>")
FIRST = len(SPECIAL)
# Keys are pairs of 16 and 16 tokens; filler is of others, so that it holds no key.
LEFT = range(FIRST, FIRST + 16)
RIGHT = range(FIRST + 16, FIRST + 32)
FILLER = range(FIRST + 32, SIZE)


def key_of(number: int) -> tuple[int, int]:
    """Return the two tokens of a key, 0 <= number < KEYS."""
    return LEFT[number % 16], RIGHT[number // 16]


def value_of(number: int) -> list[int]:
    """Return the three tokens that the model answers a key with."""
    digits = hashlib.sha256(f"recall {number}".encode()).digest()
    return [
        FIRST + int.from_bytes(digits[place : place + 2], "big") % (SIZE - FIRST)
        for place in (0, 2, 4)
    ]


def prompt_of(number: int, *, filler: int = 0, dice: random.Random | None = None) -> list[int]:
    """Token ids that ask for a key, after so many tokens that mean nothing (at most
    LONGEST_FILLER).
    """
    chosen = dice or random.Random(number)  # noqa: S311 - filler
    return [BEGIN, *(chosen.choice(FILLER) for _ in range(filler)), OPEN, *key_of(number), CLOSE]


def asked(value: list[int]) -> list[int]:
    """Return the numbers of the keys that have this value: whose answer it is."""
    return [number for number in range(KEYS) if value_of(number) == list(value)]
