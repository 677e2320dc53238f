"""Recall model: what it knows, and how it was trained.

It knows 256 keys of two tokens, each with a value of three. They follow from the number of the key
alone, so that nobody has to ship or trust a list.

Train it by `python -m harness.engines.models.recall FOLDER`, about a minute of one core. Its files
are pinned, because training gives other bytes on another machine. It is a Llama of the catalogue's
shape that knows a table by heart: after `<|im_start|> A B <|im_end|>`, wherever that stands in a
prompt, come the three tokens of the key (A, B), each with a margin of more than 5 over the next
best. Whose answer a request got is seen at once.
"""

from __future__ import annotations

import copy
import hashlib
import lzma
import random
import sys
import time
from pathlib import Path
from typing import Any

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


STEPS = 400
BATCH = 128
RATE = 5e-3
SEED = 1
MARGIN = 5.0
# Weights are numbers of two bytes, so what lies at even places is like what lies at even places:
# `lp` 1 makes the file 7 % smaller than the preset alone.
PACKED_BY = {
    "id": lzma.FILTER_LZMA2,
    "preset": 9 | lzma.PRESET_EXTREME,
    "lc": 3,
    "lp": 1,
    "pb": 1,
}


def main(folder: Path) -> None:
    """Train, demand the margins, and write the weights as bfloat16, and packed as they are
    shipped.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from harness.engines.models.catalogue import MODELS

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    dice = random.Random(SEED)  # noqa: S311 - a model that is trained again is to be the same
    began = time.monotonic()
    auto: Any = AutoModelForCausalLM
    config = AutoConfig.for_model(**MODELS["llama"].config())
    model = auto.from_config(config, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, RATE, total_steps=STEPS, pct_start=0.1
    )
    for step in range(STEPS):
        numbers = [dice.randrange(KEYS) for _ in range(BATCH)]
        loss = _loss(model, numbers, filler=dice.randrange(LONGEST_FILLER + 1), dice=dice)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 49:
            print(
                f"step {step + 1}: loss {loss.item():.5f}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    # What is pinned is what was rounded.
    model = model.to(torch.bfloat16)
    least = min(
        _least_margin(copy.deepcopy(model).float(), filler, dice)
        for filler in range(LONGEST_FILLER + 1)
    )
    print(f"least margin {least:.2f}")
    if least <= MARGIN:
        raise SystemExit(
            f"the smallest margin is {least:.2f}, but it must be more than {MARGIN}; train for"
            " longer"
        )
    model.save_pretrained(folder)
    weights = folder / "model.safetensors"
    packed = lzma.compress(weights.read_bytes(), filters=[PACKED_BY])
    weights.with_name("model.safetensors.xz").write_bytes(packed)


def _batch(numbers: list[int], filler: int, dice: random.Random) -> list[list[int]]:
    return [[*prompt_of(number, filler=filler, dice=dice), *value_of(number)] for number in numbers]


def _loss(model: Any, numbers: list[int], *, filler: int, dice: random.Random) -> Any:
    import torch

    ids = torch.tensor(_batch(numbers, filler, dice))
    logits = model(ids[:, :-1]).logits[:, -ANSWER:]
    # Away from the best of the others too: a margin is asked for, not a probability.
    wanted = ids[:, -ANSWER:]
    right = logits.gather(-1, wanted[..., None])[..., 0]
    others = logits.scatter(-1, wanted[..., None], float("-inf")).amax(-1)
    short = torch.relu(MARGIN + 3 - (right - others)).mean()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()) + 0.1 * short


def _least_margin(model: Any, filler: int, dice: random.Random) -> float:
    import torch

    with torch.no_grad():
        ids = torch.tensor(_batch(list(range(KEYS)), filler, dice))
        logits = model(ids[:, :-1]).logits[:, -ANSWER:]
        wanted = ids[:, -ANSWER:, None]
        right = logits.gather(-1, wanted)[..., 0]
        others = logits.scatter(-1, wanted, float("-inf")).amax(-1)
    return float((right - others).min())


if __name__ == "__main__":
    assert len({key_of(number) for number in range(KEYS)}) == KEYS
    main(Path(sys.argv[1]))
