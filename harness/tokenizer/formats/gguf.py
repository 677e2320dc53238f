"""The tokenizer inside a GGUF file: its form, and how it is written out as a tokenizer.json.

Only byte-level BPE with a split whose patterns are known is written out, and that proves nothing:
it is then compared with the model, id by id, like any other candidate.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness.forms.text import quoted
from harness.tokenizer.form import (
    BYTE,
    CONTROL,
    MOST_TOKENS,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Form,
    scores_part,
    strings_part,
    types_part,
    without_padding,
)
from harness.tokenizer.gguf.known import (
    ADD_BOS,
    BPE,
    IGNORE_MERGES,
    MERGES,
    MODEL,
    PATTERNS,
    PRE,
    PRE_TOKENIZERS,
    SCORES,
    SPLITS,
    SPM,
    TEMPLATE,
    TOKENS,
    TYPES,
    UGM,
    WITHOUT,
    WPM,
)
from harness.tokenizer.gguf.reader import Array, GgufFile, opened
from harness.tokenizer.identity import canonical_json, digest_text
from harness.tokenizer.problem import Unreadable

_KINDS = {BPE: "BPE", SPM: "BPE", UGM: "Unigram", WPM: "WordPiece"}
_PREFIX = "tokenizer.ggml."
_NO_FIELD = "a GGUF file has no field for it"
UNNAMED = "no pre-tokenizer is named"
ALWAYS = "always"
NEVER = "never"


def gguf_form(file: GgufFile) -> Form:
    """The tokenizer of an open file. Its arrays are digested where they lie; `tokens` and `merges`
    read them later.

    Raises:
        Unreadable: it holds none, or one whose arrays are of the wrong type or length.
        Malformed: the file shrank.
    """
    model = _text(file, MODEL)
    if model is None or model in WITHOUT:
        raise Unreadable(
            f"{file.path}: the file contains no tokenizer; specify a tokenizer when"
            " you use the model"
        )
    stored = file.value(TOKENS)
    if (
        not isinstance(stored, Array)
        or stored.type != "string"
        or not 0 < stored.count <= MOST_TOKENS
    ):
        raise Unreadable(f"{file.path}: {TOKENS} must be an array of 1 to {MOST_TOKENS} strings")
    types = _types(file, stored.count)
    size = without_padding(types)
    if not size:
        raise Unreadable(f"{file.path}: all tokens are of type UNUSED, so text cannot be encoded")
    kept = _first(file, stored, size)
    kinds = types_part(types[:size])
    scores = _scores(file, stored.count, kinds[0]) if model in (SPM, UGM) else (array("f"), None)
    merges = file.value(MERGES)
    merged = (
        merges
        if isinstance(merges, Array) and merges.type == "string" and model not in (SPM, UGM, WPM)
        else None
    )

    def tokens() -> list[bytes]:
        read = list(file.strings(kept))
        return (
            [_word(token, kind) for token, kind in zip(read, kinds[0], strict=True)]
            if model == WPM
            else read
        )

    assumed = {
        "added tokens": f"{_NO_FIELD}, and engines find added tokens in the text as it is written"
    }
    normalizer = _normalizer(file, model, assumed)
    parts = {
        "model": _KINDS.get(model, model),
        "tokens": strings_part(tokens()) if model == WPM else f"sha256:{file.digest(kept)}",
        "token types": kinds[1],
        "merges": f"sha256:{file.digest(merged)}" if merged else None,
        "scores": scores[1],
        "pre-tokenizer": _split(file, model),
        "normalizer": normalizer,
        "options": _options(file, model, kinds[0]),
        "added tokens": "[]",
        "around": _around(file, model),
        "bos": _named(file, "bos"),
        "eos": _named(file, "eos"),
        "pad": _named(file, "padding"),
        "chat templates": _templates(file),
    }
    return Form(
        format="GGUF",
        parts=parts,
        types=kinds[0],
        tokens=tokens,
        merges=lambda: list(file.strings(merged)) if merged else [],
        scores=lambda: scores[0],
        assumed=assumed,
        padding=stored.count - size,
    )


def _text(file: GgufFile, key: str) -> str | None:
    value = file.value(key)
    if value is not None and not isinstance(value, bytes):
        raise Unreadable(f"{file.path}: {key} must be a string")
    return None if value is None else value.decode(errors="backslashreplace")


def _types(file: GgufFile, count: int) -> bytes:
    stored_types = file.value(TYPES)
    if stored_types is None:
        return bytes([NORMAL]) * count
    if (
        not isinstance(stored_types, Array)
        or stored_types.type not in ("int32", "uint32")
        or stored_types.count != count
    ):
        raise Unreadable(
            f"{file.path}: {TYPES} must be an array of {count} int32 values, one for each token"
        )
    numbers = file.numbers(stored_types)
    stored = numbers.tobytes()
    # A byte of each number holds all of it; which one is the machine's affair.
    low, *high = (
        stored[at::4] for at in (range(4) if sys.byteorder == "little" else range(3, -1, -1))
    )
    if any(part.count(0) < count for part in high):
        wrong = next(number for number, kind in enumerate(numbers) if not 0 <= kind < 256)
        raise Unreadable(
            f"{file.path}: id {wrong} is of type {numbers[wrong]}, which does not exist"
        )
    return low


def _first(file: GgufFile, tokens: Array, size: int) -> Array:
    """Return the array of the first tokens: what pads it at the end is left out."""
    if size == tokens.count:
        return tokens
    used = sum(8 + len(token) for token in islice(file.strings(tokens), size))
    return Array(type=tokens.type, count=size, start=tokens.start, stop=tokens.start + used)


def _scores(file: GgufFile, count: int, types: bytes) -> tuple[array[float], str]:
    scores = file.value(SCORES)
    if not isinstance(scores, Array) or scores.type != "float32" or scores.count != count:
        raise Unreadable(
            f"{file.path}: {SCORES} must be an array of {count} float32 values, one for each token"
        )
    return scores_part(array("f", file.numbers(scores)[: len(types)]), types)


def _word(token: bytes, kind: int) -> bytes:
    """Return a token of WordPiece as vocab.txt has it: GGUF marks the beginnings of words,
    vocab.txt their continuations.
    """
    if kind != NORMAL or (token.startswith(b"[") and token.endswith(b"]")):
        return token
    begins = "▁".encode()
    return token.removeprefix(begins) if token.startswith(begins) else b"##" + token


def _split(file: GgufFile, model: str) -> str | None:
    pre = _text(file, PRE)
    if model != BPE:
        return "none" if model in (SPM, UGM) else None
    if pre is None:
        return UNNAMED
    if pre not in PRE_TOKENIZERS:
        return f"llama.cpp's {quoted(pre)}, which is not known here"
    return SPLITS.get(pre, f"llama.cpp's {pre}")


def _normalizer(file: GgufFile, model: str, assumed: dict[str, str]) -> str | None:
    if model == BPE:
        assumed["normalizer"] = f"{_NO_FIELD}, and llama.cpp does not change text"
        return "[]"
    if model not in (SPM, UGM):
        return None
    map_ = file.value(f"{_PREFIX}precompiled_charsmap")
    content = (
        file.numbers(map_).tobytes()
        if isinstance(map_, Array) and map_.type in ("int8", "uint8")
        else b""
    )
    if not content and model == SPM:
        assumed["normalizer"] = (
            f"{_NO_FIELD} except for spaces, and llama.cpp does not change other text"
        )
    first = ALWAYS if _flag(file, "add_space_prefix", default=True) else NEVER
    return spaces(
        charsmap=content,
        first=first,
        collapse=_flag(file, "remove_extra_whitespaces", default=False),
    )


def spaces(*, charsmap: bytes, first: str, collapse: bool) -> str:
    """Return the normalizer of a SentencePiece tokenizer.

    Args:
        charsmap: the table that replaces characters.
        first: when a space is put before a text: ALWAYS, NEVER, or other words.
        collapse: whether spaces at both ends, and all but one of several, are dropped.
    """
    table = hashlib.sha256(charsmap).hexdigest() if charsmap else "as they are"
    return canonical_json(
        {"characters": table, "a space first": first, "spaces collapse": collapse}
    )


def _flag(file: GgufFile, name: str, *, default: bool) -> bool:
    value = file.value(f"{_PREFIX}{name}")
    return value if isinstance(value, bool) else default


def _options(file: GgufFile, model: str, types: bytes) -> str | None:
    if model == BPE:
        pre = _text(file, PRE)
        if pre is not None and pre not in PRE_TOKENIZERS:
            return None
        return canonical_json({"ignore_merges": True} if pre in IGNORE_MERGES else {})
    if model not in (SPM, UGM):
        return None
    if types.count(BYTE) == 256:
        return canonical_json({"byte_fallback": True})
    unknown = file.value(f"{_PREFIX}unknown_token_id")
    return canonical_json(
        {"unk": unknown if isinstance(unknown, int) else 0}
        | ({"byte_fallback": True} if BYTE in types else {})
    )


def _around(file: GgufFile, model: str) -> str | None:
    pre = _text(file, PRE)
    begins = {SPM: True, WPM: True, BPE: pre in ADD_BOS}.get(model, False)
    first, last = (file.value(f"{_PREFIX}{name}_token_id") for name in ("bos", "eos"))
    if model == WPM:
        first = file.value(f"{_PREFIX}cls_token_id") if first is None else first
        last = file.value(f"{_PREFIX}seperator_token_id")
    ends = _flag(file, "add_eos_token", default=model == UGM) or _flag(
        file, "add_sep_token", default=model == WPM
    )
    before = [first] if _flag(file, "add_bos_token", default=begins) else []
    return around(before, [last] if ends else [])


def around(before: Sequence[object], after: Sequence[object]) -> str:
    """Return the part that says which ids are put before and after every text."""
    return canonical_json({"before": before, "after": after})


def _named(file: GgufFile, name: str) -> str | None:
    value = file.value(f"{_PREFIX}{name}_token_id")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _templates(file: GgufFile) -> str | None:
    templates = {}
    for key in file.keys.values():
        if key.name.startswith(TEMPLATE) and isinstance(key.value, bytes):
            templates[key.name.removeprefix(TEMPLATE).removeprefix(".") or "default"] = digest_text(
                key.value
            )
    return canonical_json(templates) if templates else None


Json = dict[str, Any]
_ELSEWHERE = "engines that read GGUF files can use it as it is"


def written_out(model: Path) -> bytes:
    """Return a tokenizer.json with the tokens, types, merges and split of the tokenizer inside a
    model.

    Raises:
        Unreadable: the model cannot be read, or holds a tokenizer that cannot be written this way.
    """
    with opened(model) as file:
        kind = file.value(MODEL)
        pre = file.value(PRE)
        form = gguf_form(file)
        name = pre.decode(errors="replace") if isinstance(pre, bytes) else ""
        split = SPLITS.get(name)
        if kind != BPE.encode() or split is None:
            shown = (
                f"the split {quoted(name)}"
                if kind == BPE.encode()
                else "a model other than byte-level BPE"
            )
            raise Unreadable(
                f"{model}: its tokenizer has {shown}, which cannot be converted: {_ELSEWHERE}"
            )
        content = _content(form, split=split, whole_words=name in IGNORE_MERGES)
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _content(form: Form, *, split: str, whole_words: bool) -> Json:
    tokens = [token.decode("utf-8", "backslashreplace") for token in form.tokens()]
    step = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
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
        "post_processor": _post_processor(form, tokens),
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
            "vocab": {
                token: number for number, token in enumerate(tokens) if form.types[number] != UNUSED
            },
            "merges": [
                merge.decode("utf-8", "backslashreplace").split(" ", 1) for merge in form.merges()
            ],
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
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
            for pattern in PATTERNS[split]
        ]
    return {"type": "Sequence", "pretokenizers": [*before, step]}


def _post_processor(form: Form, tokens: list[str]) -> Json | None:
    """Return the post-processor that puts ids before and after a text."""
    around_text = json.loads(form.parts["around"] or "{}")
    before = around_text.get("before", [])
    after = around_text.get("after", [])
    numbers = [*before, *after]
    if not numbers or not all(
        isinstance(number, int) and 0 <= number < len(tokens) for number in numbers
    ):
        return None
    put = {number: {"SpecialToken": {"id": tokens[number], "type_id": 0}} for number in numbers}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    begin = [put[number] for number in before]
    end = [put[number] for number in after]
    return {
        "type": "TemplateProcessing",
        "single": [*begin, first, *end],
        "pair": [*begin, first, *end, *begin, second, *end],
        "special_tokens": {
            tokens[number]: {"id": tokens[number], "ids": [number], "tokens": [tokens[number]]}
            for number in numbers
        },
    }
