"""What transformers calls tokens, and the chat templates: the semantic parts beside the encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.tokenizer.digest import canonical_json, digest_text

NONE = "none"


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
    return {
        "names": canonical_json(known),
        "special tokens": canonical_json([[token, token_to_id(token)] for token in others]),
        **{name: canonical_json(known.get(f"{name}_token")) for name in ("eos", "bos", "pad")},
        "chat templates": template_part(templates),
    }


def template_part(templates: object) -> str:
    """Digest per template by name; a lone template is `default`."""
    if templates is None:
        return NONE
    if isinstance(templates, str):
        templates = {"default": templates}
    if isinstance(templates, list):
        templates = {one["name"]: one["template"] for one in templates}
    if not isinstance(templates, Mapping):
        return digest_text(repr(templates))
    return (
        canonical_json({str(name): digest_text(str(text)) for name, text in templates.items()}) if templates else NONE
    )
