"""The tokenizer inside a GGUF model, written out as a tokenizer.json.

Only byte-level BPE with a split whose patterns are known is written out, and that proves nothing: it is then compared
with the model, id by id, like any other candidate.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.forms.text import quoted
from harness.tokenizer.form import Form, gguf_form
from harness.tokenizer.form.splits import PATTERNS, SPLITS
from harness.tokenizer.gguf.known import BPE, IGNORE_MERGES, MODEL, PRE
from harness.tokenizer.gguf.reader import GgufFile, Malformed
from harness.tokenizer.gguf.vocabulary import CONTROL, UNUSED, USER_DEFINED
from harness.tokenizer.problem import Unreadable, refused

Json = dict[str, Any]
_ELSEWHERE = "engines that read GGUF files can use it as it is"


def written_out(model: Path) -> bytes:
    """A tokenizer.json with the tokens, types, merges and split of the tokenizer inside a model.

    Raises:
        Unreadable: the model cannot be read, or holds a tokenizer that cannot be written this way.
    """
    try:
        with GgufFile(model) as file:
            kind, pre = file.value(MODEL), file.value(PRE)
            form = gguf_form(file)
            name = pre.decode(errors="replace") if isinstance(pre, bytes) else ""
            split = SPLITS.get(name)
            if kind != BPE.encode() or split is None:
                shown = f"the split {quoted(name)}" if kind == BPE.encode() else "another model than byte-level BPE"
                raise Unreadable(f"{model}: its tokenizer has {shown}, which is not written out here: {_ELSEWHERE}")
            content = _content(form, split=split, whole_words=name in IGNORE_MERGES)
    except Malformed as error:
        raise Unreadable(f"{model}: {error}") from None
    except OSError as error:
        raise refused(model, error) from None
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _content(form: Form, *, split: str, whole_words: bool) -> Json:
    tokens = [token.decode("utf-8", "backslashreplace") for token in form.tokens()]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": form.types[number] == CONTROL,
            }
            for number, token in enumerate(tokens)
            if form.types[number] in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": _pre_tokenizer(split, step),
        "post_processor": _around(form, tokens),
        "decoder": step | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": whole_words,
            "vocab": {token: number for number, token in enumerate(tokens) if form.types[number] != UNUSED},
            "merges": [merge.decode("utf-8", "backslashreplace").split(" ", 1) for merge in form.merges()],
        },
    }


def _pre_tokenizer(split: str, step: Json) -> Json:
    if split == "gpt-2":
        return step | {"use_regex": True}
    if split == "digits, gpt-2":
        before: list[Json] = [{"type": "Digits", "individual_digits": True}]
        step = step | {"use_regex": True}
    else:
        before = [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            for pattern in PATTERNS[split]
        ]
    return {"type": "Sequence", "pretokenizers": [*before, step]}


def _around(form: Form, tokens: list[str]) -> Json | None:
    """What is put before and after a text."""
    told = json.loads(form.parts["around"] or "{}")
    before, after = told.get("before", []), told.get("after", [])
    numbers = [*before, *after]
    if not numbers or not all(isinstance(number, int) and 0 <= number < len(tokens) for number in numbers):
        return None
    put = {number: {"SpecialToken": {"id": tokens[number], "type_id": 0}} for number in numbers}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    begin, end = [put[number] for number in before], [put[number] for number in after]
    return {
        "type": "TemplateProcessing",
        "single": [*begin, first, *end],
        "pair": [*begin, first, *end, *begin, second, *end],
        "special_tokens": {
            tokens[number]: {"id": tokens[number], "ids": [number], "tokens": [tokens[number]]} for number in numbers
        },
    }
