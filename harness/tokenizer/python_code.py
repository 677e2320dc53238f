"""A tokenizer that is Python code: slow, SentencePiece, or a repository's own class.

Its algorithm is code, so the code is part of what it is: the source of every class it has outside transformers' base
classes, and the state of the object (attributes, a SentencePiece model's bytes, a table of merges). Two of them are
semantically equal if code, state, vocabulary and probe ids are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from harness.tokenizer.backend import NONE, Parts, round_trip, type_of
from harness.tokenizer.digest import canonical_json, digest_text
from harness.tokenizer.identity import Depth
from harness.tokenizer.probes import PROBES
from harness.tokenizer.problem import Unidentifiable, panics_become
from harness.tokenizer.source import code_of, name_of, source_of
from harness.tokenizer.transformers_parts import own_code, transformers_parts, vocabulary_digest

DEEPEST = 8
# Attributes that decide no ids: where it came from, what is left over from a call, what other parts say.
ELSEWHERE = {
    "_in_target_context_manager",
    "_pad_token_type_id",
    "_processor_class",
    "backend",
    "cache",
    "_cache",
    "chat_template",
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
    "deprecation_warnings",
    "files_loaded",
    "init_inputs",
    "init_kwargs",
    "merges_file",
    "model_input_names",
    "model_max_length",
    "name_or_path",
    "padding_side",
    "response_schema",  # how an answer is parsed, in older releases
    "response_template",  # the same in newer ones
    "tokens_trie",  # made from the added tokens
    "truncation_side",
    "verbose",
    "vocab_file",
}


def python_parts(tokenizer: Any, *, depth: Depth) -> Parts:
    """Every part of a tokenizer that is Python code. The cheap form leaves out the round trip only."""
    with panics_become(Unidentifiable, "this tokenizer does not work"):
        vocabulary = tokenizer.get_vocab()
        ids = {name: _ids(tokenizer, text) for name, text in PROBES.items()}
        ids["with special tokens"] = list(tokenizer.encode(PROBES["plain"]))
        names = transformers_parts(tokenizer)
    kind = type(tokenizer)
    code = code_of(kind)
    vocabulary_part = vocabulary_digest(vocabulary)
    state = digest_text(canonical_json(_state(_held(tokenizer))))
    added = digest_text(canonical_json(_state(getattr(tokenizer, "added_tokens_decoder", {}))))
    encoding = [code, vocabulary_part, state, added, ids]
    parts = {
        "scope": "tokenizer",
        "kind": "transformers in Python",
        "class": name_of(kind),
        "backend": _engine(tokenizer),
        "encoding": digest_text(canonical_json(encoding)),
        "vocabulary": vocabulary_part,
        "added tokens": added,
        "state": state,
        "code": canonical_json(code),
        "probe ids": canonical_json(ids),
        **dict.fromkeys(("merges", "normalizer", "pre_tokenizer", "post_processor", "decoder"), NONE),
        **own_code(tokenizer),
        **names,
    }
    if depth == "full":
        parts |= {"get_vocab": vocabulary_part, "tokens": str(len(vocabulary))}
        parts["round trip"] = round_trip(lambda text: _ids(tokenizer, text), lambda ids: str(tokenizer.decode(ids)))
    return parts


def _ids(tokenizer: Any, text: str) -> list[int] | str:
    try:
        return list(tokenizer.encode(text, add_special_tokens=False))
    except Exception as error:  # noqa: BLE001 - whatever the class raises, each time alike, is what it does
        return f"error: {type(error).__name__}"


def _engine(tokenizer: Any) -> str:
    """What does the work inside: a SentencePiece processor, a tiktoken encoding, or the class itself."""
    for name in ("sp_model", "_tokenizer", "tokenizer", "model", "encoder"):
        held = vars(tokenizer).get(name)
        if held is not None and type(held).__module__.split(".")[0] not in {"builtins", "transformers"}:
            return type_of(held)
    return "python"


def _held(tokenizer: Any) -> dict[str, Any]:
    """The attributes that may decide ids."""
    # Which tokens in a message become text, if a call asks for that; older releases do not have the attribute.
    unset = ("chat_control_tokens", None)
    return {name: one for name, one in vars(tokenizer).items() if name not in ELSEWHERE and (name, one) != unset}


def _state(value: Any, *, depth: int = 0) -> Any:
    """A value as JSON that depends on nothing but its content."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return digest_text(value)
    if depth > DEEPEST:
        return f"deeper than {DEEPEST}: {type(value).__qualname__}"
    if isinstance(value, Mapping):
        if all(type(key) is str and type(one) is int for key, one in value.items()):
            return dict(value)
        pairs = [
            [canonical_json(_state(key, depth=depth + 1)), _state(one, depth=depth + 1)] for key, one in value.items()
        ]
        return {"pairs": sorted(pairs, key=lambda pair: str(pair[0]))}
    if isinstance(value, AbstractSet):
        return {"set": sorted(canonical_json(_state(one, depth=depth + 1)) for one in value)}
    if isinstance(value, (list, tuple)):
        return [_state(one, depth=depth + 1) for one in value]
    if isinstance(value, re.Pattern):
        return {"pattern": value.pattern, "flags": value.flags}
    return {"type": type(value).__qualname__} | _inside(value, depth=depth)


def _inside(value: Any, *, depth: int) -> dict[str, Any]:
    if hasattr(value, "serialized_model_proto"):
        return {"sentencepiece": digest_text(value.serialized_model_proto())}
    if hasattr(value, "to_str") and hasattr(value, "get_added_tokens_decoder"):
        return {"tokenizers": digest_text(value.to_str())}
    if inspect.isroutine(value):
        return {"function": value.__qualname__, "source": source_of(value)}
    if hasattr(value, "tobytes"):
        return {"array": digest_text(value.tobytes())}
    if type(value).__qualname__ == "AddedToken":
        flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        return {flag: getattr(value, flag) for flag in flags}
    if hasattr(value, "pattern") and isinstance(value.pattern, str):
        return {"pattern": value.pattern, "flags": getattr(value, "flags", None)}
    held = getattr(value, "__dict__", {})
    return {"holds": _state({name: one for name, one in held.items() if name not in ELSEWHERE}, depth=depth + 1)}
