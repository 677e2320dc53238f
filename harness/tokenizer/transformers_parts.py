"""What any transformers tokenizer has around its encoder: names, templates, settings, and methods it replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.tokenizer.backend import NONE, Parts
from harness.tokenizer.digest import canonical_json, digest_text, short
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


def name_parts(
    named: Mapping[str, Any], extra: Iterable[Any], templates: object, *, token_to_id: Callable[[str], int | None]
) -> dict[str, str]:
    """The parts `names`, `special tokens`, `eos`, `bos`, `pad` and `chat templates`.

    Args:
        named: token by name (`eos_token`); a token is text or has its text as `str()`.
        extra: special tokens without a name.
        templates: None, one template, or templates by name.
        token_to_id: id of a token, None where it has none.
    """
    known = {name: [str(token), token_to_id(str(token))] for name, token in named.items() if token is not None}
    others = sorted({str(token) for token in extra} - {str(token) for token in named.values() if token is not None})
    digests = {name: digest_text(text) for name, text in by_name(templates).items()}
    return {
        "names": canonical_json(known),
        "special tokens": canonical_json([[token, token_to_id(token)] for token in others]),
        **{name: canonical_json(known.get(f"{name}_token")) for name in ("eos", "bos", "pad")},
        "chat templates": canonical_json(digests) if digests else NONE,
    }


def by_name(templates: object) -> dict[str, str]:
    """Chat templates by name; a lone one is `default`."""
    if isinstance(templates, list):
        templates = {one["name"]: one["template"] for one in templates}
    if isinstance(templates, Mapping):
        return {str(name): str(text) for name, text in templates.items()}
    return {} if templates is None else {"default": str(templates)}


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
