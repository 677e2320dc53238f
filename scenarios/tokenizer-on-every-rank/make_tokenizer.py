"""Make the scenario's default tokenizer: a byte-level BPE, trained on text that this file
generates.

    python make_tokenizer.py FOLDER

The same bytes come out on every machine; a test trains it again and compares the digest with the
one the scenario pins.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

VOCABULARY = 2048
SENTENCES = 4000
SEED = 20260103
SPECIAL = "<|endoftext|>"

SUBJECTS = [
    "the rank",
    "every rank",
    "a worker",
    "the server",
    "one process",
    "the world",
    "our model",
    "a shard",
    "the tokenizer",
    "the barrier",
]
VERBS = [
    "loads",
    "waits for",
    "sends",
    "receives",
    "gathers",
    "checks",
    "encodes",
    "decodes",
    "holds",
    "loses",
    "finds",
    "repeats",
]
OBJECTS = [
    "the prompt",
    "its tokens",
    "a tensor",
    "the vocabulary",
    "the next layer",
    "a message",
    "the cache",
    "hello world",
    "the answer",
]
PLACES = [
    "before the barrier",
    "after warm-up",
    "over the ring",
    "in the first step",
    "without a reason",
    "on rank {n}",
    "at step {n}",
]
OTHERS = [
    "naïve café déjà vu",
    "größer als null",
    "日本語のテキストです",
    "привет мир",
    "שלום עולם",
    "def warm_up(rank): return None",
    "{n} + {n} = {n}",
]


def corpus():
    """Yield the training text, line by line."""
    chance = random.Random(SEED)
    for _ in range(SENTENCES):
        if chance.random() < 0.2:
            sentence = chance.choice(OTHERS)
        else:
            words = (chance.choice(part) for part in (SUBJECTS, VERBS, OBJECTS, PLACES))
            sentence = " ".join(words)
            sentence = sentence[0].upper() + sentence[1:] + chance.choice(".!?;")
        while "{n}" in sentence:
            sentence = sentence.replace("{n}", str(chance.randrange(1000)), 1)
        yield sentence


def make(folder: Path) -> None:
    """Train the tokenizer and write it in the layout of a hub repository."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(
        json.dumps(model, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": 1024,
        "bos_token": SPECIAL,
        "eos_token": SPECIAL,
        "unk_token": SPECIAL,
        "add_prefix_space": False,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=1) + "\n", encoding="utf-8"
    )
    (folder / "config.json").write_text(
        json.dumps({"model_type": "gpt2"}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
