"""What an identity costs in CPU time, for a vocabulary of 100 000 tokens and as many merges.

Beside it stands what the library itself needs to write the tokenizer down, which no identity can do
without.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from harness.tokenizer import identify

TOKENS = 100_000


def synthetic(*, tokens: int = TOKENS) -> Tokenizer:
    """A byte-level BPE with this many tokens and 300 added ones, the same each time."""
    rng = random.Random(0)
    vocabulary = {
        letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    known, merges = list(vocabulary), []
    while len(vocabulary) < tokens:
        left, right = rng.choice(known), rng.choice(known[:5000])
        if left + right not in vocabulary and len(left + right) <= 14:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))
            known.append(left + right)
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([f"<|{index}|>" for index in range(300)])
    return made


def identity_seconds(*, rounds: int = 9) -> dict[str, list[float]]:
    """CPU seconds as minimum, median and maximum: of the library's own writing, and of both
    forms.
    """
    made = synthetic()
    measured: dict[str, Callable[[], object]] = {
        "tokenizers_to_str": made.to_str,
        "identity_cheap": lambda: identify(made, depth="cheap"),
        "identity_full": lambda: identify(made, depth="full"),
    }
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, call in measured.items():
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
    return {name: [min(one), statistics.median(one), max(one)] for name, one in times.items()}
