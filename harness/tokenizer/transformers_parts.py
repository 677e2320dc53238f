"""What any transformers tokenizer has around its encoder: names, templates, settings, and methods it replaced."""

from __future__ import annotations

from typing import Any

from harness.tokenizer.backend import Parts
from harness.tokenizer.digest import canonical_json, digest_text, short
from harness.tokenizer.names import name_parts
from harness.tokenizer.source import source_of

# Methods that decide ids; a subclass or a patch that brings its own is code, not data.
DECIDING = (
    "__call__",
    "encode",
    "_encode_plus",
    "_batch_encode_plus",
    "batch_encode_plus",
    "encode_plus",
    "_call_one",
    "tokenize",
    "convert_tokens_to_ids",
    "_convert_token_to_id",
    "_convert_token_to_id_with_added_voc",
    "apply_chat_template",
    "build_inputs_with_special_tokens",
    "set_truncation_and_padding",
)
SETTINGS = ("model_max_length", "padding_side", "truncation_side", "model_input_names", "clean_up_tokenization_spaces")


def transformers_parts(tokenizer: Any) -> Parts:
    """Names, templates and settings of any transformers tokenizer."""

    def token_to_id(token: str) -> int | None:
        index = tokenizer.convert_tokens_to_ids(token)
        return int(index) if index is not None else None

    named = dict(tokenizer.special_tokens_map)
    extra = named.pop("additional_special_tokens", [])
    extra = [*(extra or []), *(getattr(tokenizer, "extra_special_tokens", None) or [])]
    return name_parts(named, extra, getattr(tokenizer, "chat_template", None), token_to_id=token_to_id) | {
        name: short(_plain(getattr(tokenizer, name, None))) for name in SETTINGS
    }


def own_code(tokenizer: object) -> Parts:
    """Digests of methods that decide ids and that are not transformers' own base classes'."""
    digests = {name: source_of(vars(tokenizer)[name]) for name in DECIDING if name in vars(tokenizer)}
    for kind in type(tokenizer).__mro__:
        if kind.__module__.startswith("transformers.tokenization_") or kind is object:
            continue
        digests |= {
            f"{kind.__qualname__}.{name}": source_of(vars(kind)[name]) for name in DECIDING if name in vars(kind)
        }
    return {"own code": canonical_json(digests)} if digests else {}


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if value != float("inf") else "inf"
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return repr(type(value))


def vocabulary_digest(vocabulary: dict[str, int]) -> str:
    """Digest of tokens with their ids."""
    return digest_text("\n".join(sorted(f"{index} {token!r}" for token, index in vocabulary.items())))
