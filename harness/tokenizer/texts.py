"""Texts on which engines are compared: the fixed ones, and generated ones that a seed says again.

Generated are what engines are known to disagree about: spaces, digits, apostrophes, marks that combine, bytes that no
word holds, tokens side by side, and special tokens with something around them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from harness.tokenizer.example import TURNING
from harness.tokenizer.probes import PROBES

VERSION = 1
"""Changes with what is generated, so that a seed means the same texts."""
_SPACES = " \t\n\r\u00a0\u2003\u3000\u200b\v\f\x85\u2028"
_SIGNS = "'\"`’.,:;!?-_/\\()[]{}<>|@#$%^&*+=~"
_LETTERS = "abcxyzSTDMLRVEstdmlrve"
_RANGES = (
    (0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
    (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2190, 0x23FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3), (0xFB00, 0xFDFF), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x1F300, 0x1FAFF),
    (0x20000, 0x2A6DF), (0xE0100, 0xE01EF),
)  # fmt: skip


def fixed() -> list[str]:
    """The probe corpus and what turns options on, without the empty text."""
    return [text for text in dict.fromkeys((*PROBES.values(), *TURNING)) if text]


def generated(count: int, *, seed: int, tokens: Sequence[str] = (), special: Sequence[str] = ()) -> list[str]:
    """So many texts, the same for the same arguments.

    Args:
        count: how many.
        seed: any number.
        tokens: the vocabulary as text; where there is none, words are made up.
        special: special and added tokens.
    """
    rng = random.Random(f"{VERSION} {seed}")  # noqa: S311 - to be said again, not to be secret
    words = [one for one in tokens if one and "\ufffd" not in one] or ["the", " of", "ing", "東京", "é"]
    kinds: list[Callable[[], str]] = [
        lambda: "".join(rng.choice(words) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice(words),
        lambda: rng.choice(_SPACES) * rng.randint(1, 3) + rng.choice(words) + rng.choice(_SPACES) * rng.randint(0, 3),
        lambda: "".join(_character(rng) for _ in range(rng.randint(1, 12))),
        lambda: "".join(rng.choice("0123456789٣４.,:") for _ in range(rng.randint(1, 9))) + rng.choice(("", "a", " ")),
        lambda: "".join(rng.choice(_LETTERS + "'’ ") for _ in range(rng.randint(2, 9))),
        lambda: "".join(rng.choice(_SIGNS + _SPACES + _LETTERS) for _ in range(rng.randint(1, 12))),
        lambda: rng.choice(words) + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(rng.randint(1, 3))),
        lambda: rng.choice(words).swapcase() + rng.choice(_SIGNS) + rng.choice(words).capitalize(),
    ]
    if special:
        around = (" ", "", "a", "\n", "  ", "é")
        kinds += [lambda: rng.choice(around) + rng.choice(special) + rng.choice(around) + rng.choice(words)] * 2
        kinds.append(lambda: rng.choice(special)[: rng.randint(1, 8)] + rng.choice(words))
    return [kinds[number % len(kinds)]() for number in range(count)]


def _character(rng: random.Random) -> str:
    first, last = rng.choice(_RANGES)
    return chr(rng.randint(first, last))
