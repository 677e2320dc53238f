"""What stands in the files of a tokenizer repository: tokenizer.json and its parts, configs,
templates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.hub.layouts.vocabulary import Vocabulary

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] +"
    " '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%"
    " endif %}"
)
GPT4_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN_PATTERN = GPT4_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def as_json(value: Any, *, indent: int | None = 2) -> bytes:
    """JSON as the ecosystem writes it: UTF-8, keys in the given order, a newline at the end."""
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode()


def added(text: str, number: int, *, special: bool = True) -> dict[str, Any]:
    """An added token of tokenizer.json."""
    return {
        "id": number,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def numbered(texts: Sequence[str], *, first: int) -> dict[str, int]:
    """Ids for added tokens, from ``first``."""
    return {text: first + number for number, text in enumerate(texts)}


def byte_level_step(*, prefix: bool = False, regex: bool = False) -> dict[str, Any]:
    """The ByteLevel step of a pre-tokenizer, post-processor or decoder."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": regex,
    }


def split_then_bytes(pattern: str) -> dict[str, Any]:
    """A pre-tokenizer that splits by a pattern, then maps bytes."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, byte_level_step()]}


def begin_with(text: str, number: int) -> dict[str, Any]:
    """A post-processor that puts one token before every text."""
    first = {"SpecialToken": {"id": text, "type_id": 0}}
    one = {"Sequence": {"id": "A", "type_id": 0}}
    two = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [first, one],
        "pair": [first, one, {"SpecialToken": {"id": text, "type_id": 1}}, two],
        "special_tokens": {text: {"id": text, "ids": [number], "tokens": [text]}},
    }


def tokenizer_json(
    vocabulary: Vocabulary,
    *,
    special: Mapping[str, int],
    plain: Mapping[str, int] | None = None,
    pre_tokenizer: Mapping[str, Any] | None = None,
    post_processor: Mapping[str, Any] | None = None,
    normalizer: Mapping[str, Any] | None = None,
    ignore_merges: bool = False,
) -> bytes:
    """A tokenizer.json of the BPE kind.

    Args:
        vocabulary: tokens and merges.
        special: special added tokens and their ids.
        plain: other added tokens and their ids.
        pre_tokenizer: its JSON; default: GPT-4's pattern, then bytes.
        post_processor: its JSON; default: ByteLevel.
        normalizer: its JSON, or None.
        ignore_merges: as Llama 3 sets it.
    """
    tokens = [added(text, number) for text, number in special.items()]
    tokens += [added(text, number, special=False) for text, number in (plain or {}).items()]
    head = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(tokens, key=lambda token: int(token["id"])),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer or split_then_bytes(GPT4_PATTERN),
        "post_processor": post_processor or byte_level_step(),
        "decoder": byte_level_step(prefix=True, regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": vocabulary.ids,
            "merges": vocabulary.merges,
        },
    }
    return as_json(head, indent=None)


def merges_txt(vocabulary: Vocabulary) -> bytes:
    """GPT-2's merges.txt."""
    return (
        "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in vocabulary.merges)
    ).encode()


def decoder_entries(special: Mapping[str, int]) -> dict[str, Any]:
    """``added_tokens_decoder`` of tokenizer_config.json."""
    entries = (added(text, number) for text, number in special.items())
    return {str(entry.pop("id")): entry for entry in entries}
