"""The prompts of a search: the same 50 for every model, worked out from nothing but this file.

What goes wrong in inference over ranks goes wrong at a boundary: of a chunk of the prefill, of a window, of a
character, of the vocabulary. Lengths lie around multiples of the chunk, texts have characters of several bytes, tokens
are special ones, the first and the last.
"""

from __future__ import annotations

import random

from harness.engines.models.vocabulary import BEGIN, END, PAD, SIZE, SPECIAL

CHUNK = 8
"""Tokens of a prompt that are read at a time."""
STEPS = 3
"""Tokens that are generated after each prompt."""
LENGTHS = (1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 18, 23, 24, 25, 31, 32, 33)
TWICE = (1, 2, 7, 8, 9, 15, 16, 17)
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    "",
    " ",
    "\n\n\n",
    "你好世界",
    "日本語 model",
    "مرحبا",
    "🙂🙂",
    "e\u0301 is not é",
    "a\u00a0b\u200dc",
    "<s>hello</s>",
    "<|im_start|>user\nhello world<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|endoftext|>",
    "<|im_start",
)
Prompt = str | list[int]


def prompts() -> list[Prompt]:
    """Texts, and lists of token ids."""
    found: list[Prompt] = [_drawn(length, seed) for seed, lengths in enumerate((LENGTHS, TWICE)) for length in lengths]
    found += [text for text in TEXTS if text]
    found += [
        [BEGIN],
        [END],
        [PAD] * CHUNK,
        [BEGIN, END] * CHUNK,
        list(range(len(SPECIAL))),
        [SIZE - 1],
        [SIZE - 1, 0] * 4 + [SIZE - 1],
        [40] * (2 * CHUNK + 1),
        [40] * CHUNK + [41],
        list(range(100, 100 + 2 * CHUNK)),
        list(range(300, 300 - 2 * CHUNK - 1, -1)),
        [*_drawn(CHUNK, 7), END, *_drawn(CHUNK, 8)],
    ]
    return found


def _drawn(length: int, seed: int) -> list[int]:
    """Ordinary tokens, drawn."""
    dice = random.Random(f"{seed} {length}")  # noqa: S311 - what is drawn has to be the same again
    return [dice.randrange(len(SPECIAL), SIZE) for _ in range(length)]
