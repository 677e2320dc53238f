"""GGUF files of tokenizers that exist in another format, as llama.cpp's converter writes them."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

from harness.hub.layouts import repository_files
from harness.tokenizer.formats import sentencepiece_form
from tests.tokenizer.gguf.writing import File, Tensor, bpe
from tests.tokenizer.making import Raw, raw

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_KEYS = "tokenizer.ggml."


@cache
def _llama_3() -> str:
    made = copy.deepcopy(raw("byte_level"))
    made["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": LLAMA_3},
                "behavior": "Isolated",
                "invert": False,
            },
            {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": False,
            },
        ],
    }
    made["model"]["ignore_merges"] = True
    begin = next(one["id"] for one in made["added_tokens"] if one["content"] == "<|begin|>")
    text = {"Sequence": {"id": "A", "type_id": 0}}
    made["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|begin|>": {"id": "<|begin|>", "ids": [begin], "tokens": ["<|begin|>"]}
        },
    }
    return json.dumps(made)


def llama_3() -> Raw:
    """A small tokenizer.json that is made like Llama 3's."""
    made: Raw = json.loads(_llama_3())
    return made


def of_serialised(content: Raw, *, pre: str = "llama-bpe", eos: str = "<|end|>") -> File:
    """The GGUF file of a byte-level tokenizer.json."""
    ids = dict(content["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), NORMAL)
    for one in content["added_tokens"]:
        ids[one["content"]] = one["id"]
        kinds[one["id"]] = CONTROL if one["special"] else USER_DEFINED
    texts = {index: text for text, index in ids.items()}
    tokens = [texts.get(index, f"[PAD{index}]") for index in range(max(texts) + 1)]
    made = bpe()
    merges = [one if isinstance(one, str) else " ".join(one) for one in content["model"]["merges"]]
    made.keys |= {
        f"{_KEYS}pre": ("string", pre),
        f"{_KEYS}tokens": ("[string]", tokens),
        f"{_KEYS}token_type": (
            "[int32]",
            [kinds.get(index, UNUSED) for index in range(len(tokens))],
        ),
        f"{_KEYS}merges": ("[string]", merges),
        f"{_KEYS}bos_token_id": ("uint32", ids.get("<|begin|>", 0)),
        f"{_KEYS}eos_token_id": ("uint32", ids.get(eos, 0)),
    }
    made.tensors[0] = rows(len(tokens))
    return made


def of_pieces(content: bytes) -> File:
    """The GGUF file of a SentencePiece model with BPE, or with Unigram."""
    form = sentencepiece_form(Path("tokenizer.model"), content)
    made = bpe()
    for name in [name for name in made.keys if name.startswith("tokenizer.")]:
        del made.keys[name]
    tokens = [one.decode() for one in form.tokens()]
    kinds = [
        UNKNOWN if text == "<unk>" else kind for text, kind in zip(tokens, form.types, strict=True)
    ]
    spaces = json.loads(form.parts["normalizer"] or "")
    made.keys |= {
        f"{_KEYS}model": ("string", {"BPE": "llama", "Unigram": "t5"}[form.parts["model"] or ""]),
        f"{_KEYS}tokens": ("[string]", tokens),
        f"{_KEYS}scores": ("[float32]", list(form.scores())),
        f"{_KEYS}token_type": ("[int32]", kinds),
        f"{_KEYS}bos_token_id": ("uint32", int(form.parts["bos"] or 1)),
        f"{_KEYS}eos_token_id": ("uint32", int(form.parts["eos"] or 2)),
        f"{_KEYS}unknown_token_id": ("uint32", kinds.index(UNKNOWN)),
        f"{_KEYS}add_space_prefix": ("bool", spaces["a space first"] == "always"),
        f"{_KEYS}remove_extra_whitespaces": ("bool", spaces["spaces collapse"]),
    }
    made.tensors[0] = rows(len(tokens))
    return made


def rows(count: int) -> Tensor:
    """An embedding for so many ids."""
    return Tensor("token_embd.weight", (8, count), 0, 8 * count * 4)


@cache
def layout(name: str) -> dict[str, bytes]:
    """The files of a made-up repository."""
    return repository_files(name)


def change(file: File, key: str, at: int, value: Any) -> None:
    """Change one element of an array."""
    kind, content = file.keys[f"{_KEYS}{key}"]
    changed = list(content)
    changed[at] = value
    file.keys[f"{_KEYS}{key}"] = (kind, changed)
