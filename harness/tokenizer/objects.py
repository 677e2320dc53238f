"""Identify a tokenizer in memory, and make it a side of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.tokenizer.backend import (
    Parts,
    Serialised,
    encoder_parts,
    ids_of,
    read,
    round_trip,
    type_of,
    view,
)
from harness.tokenizer.formats.tokenizer_json import serialised_form
from harness.tokenizer.identity import Depth, Identity, canonical_json
from harness.tokenizer.problem import Unidentifiable
from harness.tokenizer.transformers_object import (
    by_name,
    name_of,
    own_code,
    python_parts,
    transformers_parts,
    vocabulary_digest,
)

# Ids of one text or of two, with special tokens around them or without; an error in words.
Encode = Callable[[tuple[str, ...], bool], "list[int] | str"]
Decode = Callable[[list[int]], str]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ComparedTokenizer:
    """One side of a comparison.

    Attributes:
        identity: what it is.
        encode, decode: what it does, where the tokenizer is at hand.
        pieces: its serialisation, where it has one.
        vocabulary: id by token.
        templates: chat templates by name, where they are at hand.
    """

    identity: Identity
    encode: Encode | None = None
    decode: Decode | None = None
    pieces: Serialised | None = None
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    templates: Mapping[str, str] | None = None


def compared_backend(
    identity: Identity, backend: Any, *, templates: object = None
) -> ComparedTokenizer:
    """Return the side of a `tokenizers.Tokenizer`; it is not changed."""
    pieces = read(backend)
    plain = backend
    if identity.parts["scope"] == "tokenizer":
        plain = view(
            backend,
            pieces.head,
            encode_special_tokens=identity.parts["encode special tokens"] == "true",
        )

    def encode(texts: tuple[str, ...], special: bool) -> list[int] | str:
        return _quietly(lambda: list(plain.encode(*texts, add_special_tokens=special).ids))

    def decode(ids: list[int]) -> str:
        return _quietly(lambda: str(plain.decode(ids, skip_special_tokens=False)))

    return ComparedTokenizer(
        identity=identity,
        encode=encode,
        decode=decode,
        pieces=pieces,
        vocabulary=backend.get_vocab(with_added_tokens=False),
        templates=by_name(templates),
    )


def compared_python(identity: Identity, tokenizer: Any) -> ComparedTokenizer:
    """Return the side of a transformers tokenizer that is Python code."""

    def encode(texts: tuple[str, ...], special: bool) -> list[int] | str:
        return _quietly(lambda: list(tokenizer.encode(*texts, add_special_tokens=special)))

    def decode(ids: list[int]) -> str:
        return _quietly(lambda: str(tokenizer.decode(ids)))

    return ComparedTokenizer(
        identity=identity,
        encode=encode,
        decode=decode,
        vocabulary=tokenizer.get_vocab(),
        templates=by_name(getattr(tokenizer, "chat_template", None)),
    )


def _quietly(ask: Callable[[], T]) -> T | str:
    """Return an answer, or the error in words: where one side fails and the other does not, that is
    the difference.
    """
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        return f"error: {str(error)[:120]}"
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return f"error: the library panicked: {str(error)[:100]}"


def identify(tokenizer: object, *, depth: Depth = "full") -> Identity:
    """Return the identity of an object in memory, which is left as it is.

    Args:
        tokenizer: a transformers tokenizer of any kind, or a `tokenizers.Tokenizer`.
        depth: `cheap` leaves out the object's own `get_vocab` and the round trip; `semantic` is the
            same in both.

    Raises:
        Unidentifiable: its behaviour cannot be written down, or it does not work at all.
    """
    if depth not in {"cheap", "full"}:
        raise ValueError(f"depth must be cheap or full, not {depth!r}")
    if _is_backend(tokenizer):
        return Identity.of(alone_parts(tokenizer, depth=depth), depth=depth)
    backend = (
        getattr(tokenizer, "_tokenizer", None) if hasattr(tokenizer, "special_tokens_map") else None
    )
    if _is_backend(backend) and getattr(tokenizer, "is_fast", True):
        return Identity.of(_on_backend(tokenizer, backend, depth=depth), depth=depth)
    if backend is not None and not _is_backend(backend) and getattr(tokenizer, "is_fast", False):
        raise Unidentifiable(
            f"its backend, a {type_of(backend)}, cannot be serialized because something replaced"
            " tokenizers.Tokenizer"
        )
    if hasattr(tokenizer, "special_tokens_map") and hasattr(tokenizer, "convert_tokens_to_ids"):
        return Identity.of(python_parts(tokenizer, depth=depth), depth=depth)
    raise Unidentifiable(
        f"{type_of(tokenizer)} is neither a transformers tokenizer nor a tokenizers.Tokenizer; use"
        " identify_folder for a folder or a file"
    )


def compared_object(tokenizer: Any) -> ComparedTokenizer:
    """Return an object as a side of a comparison."""
    identity = identify(tokenizer)
    templates = getattr(tokenizer, "chat_template", None)
    if identity.parts["kind"] == "transformers in Python":
        return compared_python(identity, tokenizer)
    return compared_backend(
        identity, getattr(tokenizer, "_tokenizer", tokenizer), templates=templates
    )


def alone_parts(backend: Any, *, depth: Depth) -> Parts:
    """Parts of a `tokenizers.Tokenizer` by itself, or of a lone tokenizer.json."""
    pieces = read(backend)
    parts = {"scope": "encoder", "kind": "tokenizers", "class": type_of(backend)}
    parts |= encoder_parts(
        backend, pieces, alone=True, encode_special_tokens=bool(backend.encode_special_tokens)
    )
    if depth == "full":
        parts |= deep_parts(backend, backend.get_vocab(), pieces)
    return parts


def deep_parts(backend: Any, vocabulary: dict[str, int], pieces: Serialised) -> Parts:
    """Parts that only the full depth has: the vocabulary as the object gives it, round trip and
    fingerprint.
    """
    form = serialised_form(pieces, encode_special_tokens=bool(backend.encode_special_tokens))
    trip = round_trip(
        lambda text: ids_of(backend, text),
        lambda ids: str(backend.decode(ids, skip_special_tokens=False)),
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
    parts = {
        "scope": "tokenizer",
        "kind": "transformers on tokenizers",
        "class": name_of(type(tokenizer)),
    }
    special = getattr(tokenizer, "split_special_tokens", False)
    parts |= encoder_parts(backend, pieces, alone=False, encode_special_tokens=bool(special))
    parts |= own_code(tokenizer)
    parts |= transformers_parts(tokenizer)
    if depth == "full":
        plain = view(backend, pieces.head, encode_special_tokens=bool(special))
        parts |= deep_parts(plain, tokenizer.get_vocab(), pieces)
    return parts


def _is_backend(value: object) -> bool:
    """By name: asking the library would import it, and a stand-in from elsewhere has another
    module.
    """
    return all(
        hasattr(value, name)
        for name in ("to_str", "get_added_tokens_decoder", "encode_special_tokens")
    )
