"""Tokenizer of the models: byte-level BPE of 528 tokens, made by rule, with a chat template.

528 is divisible by 12, so that a vocabulary split over 2, 3 or 4 ranks has no uneven end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

SIZE = 528
SPECIAL = (
    "<s>",
    "</s>",
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|tool|>",
    "<|endoftext|>",
)
BEGIN = 0
END = 1
PAD = 2
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] +"
    " '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%"
    " endif %}"
)
WORDS = """
the and of to in is that for with as not are this be on by from at or an have was you it
rank token model hello world over quick brown fox jumps lazy dog user assistant what
which key value cache layer split every answer capital tell story about who how many one
two
"""
OTHERS = "éüß你好世界日本語مرحبا🙂"


def tokenizer_files() -> dict[str, bytes]:
    """`tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`, which is read by both
    libraries.
    """
    alphabet = _alphabet()
    ids = {text: number for number, text in enumerate((*SPECIAL, *alphabet.values()))}
    merges: list[tuple[str, str]] = []
    for left, right in _merges(alphabet):
        if len(ids) == SIZE:
            break
        if left + right not in ids:
            ids[left + right] = len(ids)
            merges.append((left, right))
    assert len(ids) == SIZE, f"the rule produces {len(ids)} tokens, not {SIZE}"
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    marks = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": text, **marks} for number, text in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": step,
        "post_processor": None,
        "decoder": step,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BEGIN],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    return {
        "tokenizer.json": as_json(whole),
        "tokenizer_config.json": as_json(config),
        "chat_template.jinja": TEMPLATE.encode(),
    }


def as_json(value: Any) -> bytes:
    """Return JSON as the ecosystem writes it: UTF-8, keys in order, a newline at the end."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte."""
    plain = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    out = {byte: chr(byte) for byte in plain}
    for number, byte in enumerate(byte for byte in range(256) if byte not in out):
        out[byte] = chr(256 + number)
    return dict(sorted(out.items()))


def _merges(alphabet: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Yield all merges of the rule, most important first: of words with the space before them,
    then of characters.
    """
    words = WORDS.split()
    for text in (*(f" {word}" for word in words), *OTHERS, *words):
        written = "".join(alphabet[byte] for byte in text.encode())
        for end in range(1, len(written)):
            yield written[:end], written[end]
