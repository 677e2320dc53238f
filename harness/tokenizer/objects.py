"""The identity of an object in memory."""

from __future__ import annotations

from typing import Any

from harness.tokenizer.backend import Parts, encoder_parts, ids_of, read, round_trip, type_of, view
from harness.tokenizer.digest import canonical_json
from harness.tokenizer.form.serialised import serialised_form
from harness.tokenizer.identity import Depth, Identity
from harness.tokenizer.problem import Unidentifiable
from harness.tokenizer.python_code import python_parts
from harness.tokenizer.serialised import Serialised
from harness.tokenizer.source import name_of
from harness.tokenizer.subject import Subject, in_python, on_backend
from harness.tokenizer.transformers_parts import own_code, transformers_parts, vocabulary_digest


def identify(tokenizer: object, *, depth: Depth = "full") -> Identity:
    """The identity of an object in memory, which is left as it is.

    Args:
        tokenizer: a transformers tokenizer of any kind, or a `tokenizers.Tokenizer`.
        depth: `cheap` leaves out the object's own `get_vocab` and the round trip; `semantic` is the same in both.

    Raises:
        Unidentifiable: its behaviour cannot be written down, or it does not work at all.
    """
    if depth not in {"cheap", "full"}:
        raise ValueError(f"depth must be cheap or full, not {depth!r}")
    if _is_backend(tokenizer):
        return Identity.of(alone_parts(tokenizer, depth=depth), depth=depth)
    backend = getattr(tokenizer, "_tokenizer", None) if hasattr(tokenizer, "special_tokens_map") else None
    if _is_backend(backend) and getattr(tokenizer, "is_fast", True):
        return Identity.of(_on_backend(tokenizer, backend, depth=depth), depth=depth)
    if backend is not None and not _is_backend(backend) and getattr(tokenizer, "is_fast", False):
        raise Unidentifiable(
            f"its backend is a {type_of(backend)}, which cannot be written down: "
            "something took the place of tokenizers.Tokenizer"
        )
    if hasattr(tokenizer, "special_tokens_map") and hasattr(tokenizer, "convert_tokens_to_ids"):
        return Identity.of(python_parts(tokenizer, depth=depth), depth=depth)
    raise Unidentifiable(
        f"{type_of(tokenizer)} is neither a transformers tokenizer nor a "
        "tokenizers.Tokenizer; a folder or a file goes to identify_folder"
    )


def subject_of(tokenizer: Any) -> Subject:
    """An object as a side of a comparison."""
    identity = identify(tokenizer)
    templates = getattr(tokenizer, "chat_template", None)
    if identity.parts["kind"] == "transformers in Python":
        return in_python(identity, tokenizer)
    return on_backend(identity, getattr(tokenizer, "_tokenizer", tokenizer), templates=templates)


def alone_parts(backend: Any, *, depth: Depth) -> Parts:
    """Parts of a `tokenizers.Tokenizer` by itself, or of a lone tokenizer.json."""
    pieces = read(backend)
    parts = {"scope": "encoder", "kind": "tokenizers", "class": type_of(backend)}
    parts |= encoder_parts(backend, pieces, alone=True, encode_special_tokens=bool(backend.encode_special_tokens))
    if depth == "full":
        parts |= deep_parts(backend, backend.get_vocab(), pieces)
    return parts


def deep_parts(backend: Any, vocabulary: dict[str, int], pieces: Serialised) -> Parts:
    """What the full form adds: the vocabulary as the object gives it, the round trip, and the fingerprint."""
    form = serialised_form(pieces, encode_special_tokens=bool(backend.encode_special_tokens))
    trip = round_trip(
        lambda text: ids_of(backend, text), lambda ids: str(backend.decode(ids, skip_special_tokens=False))
    )
    return {
        "get_vocab": vocabulary_digest(vocabulary),
        "tokens": str(len(vocabulary)),
        "round trip": trip,
        "fingerprint": f"sha256:{form.fingerprint}",
        **({"remarks": canonical_json(list(form.remarks))} if form.remarks else {}),
    }


def _on_backend(tokenizer: Any, backend: Any, *, depth: Depth) -> Parts:
    pieces = read(backend)
    parts = {"scope": "tokenizer", "kind": "transformers on tokenizers", "class": name_of(type(tokenizer))}
    special = getattr(tokenizer, "split_special_tokens", False)
    parts |= encoder_parts(backend, pieces, alone=False, encode_special_tokens=bool(special))
    parts |= own_code(tokenizer)
    parts |= transformers_parts(tokenizer)
    if depth == "full":
        plain = view(backend, pieces.head, encode_special_tokens=bool(special))
        parts |= deep_parts(plain, tokenizer.get_vocab(), pieces)
    return parts


def _is_backend(value: object) -> bool:
    """By name: asking the library would import it, and a stand-in from elsewhere has another module."""
    return all(hasattr(value, name) for name in ("to_str", "get_added_tokens_decoder", "encode_special_tokens"))
