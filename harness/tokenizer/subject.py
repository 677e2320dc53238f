"""One side of a comparison: an identity, and what is at hand of the tokenizer behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.tokenizer.backend import read, view
from harness.tokenizer.identity import Identity
from harness.tokenizer.serialised import Serialised
from harness.tokenizer.transformers_parts import by_name

# Ids of one text or of two, with special tokens around them or without; an error in words.
Encode = Callable[[tuple[str, ...], bool], "list[int] | str"]
Decode = Callable[[list[int]], str]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Subject:
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


def on_backend(identity: Identity, backend: Any, *, templates: object = None) -> Subject:
    """The side of a `tokenizers.Tokenizer`; it is not changed."""
    pieces = read(backend)
    plain = backend
    if identity.parts["scope"] == "tokenizer":
        plain = view(backend, pieces.head, encode_special_tokens=identity.parts["encode special tokens"] == "true")

    def encode(texts: tuple[str, ...], special: bool) -> list[int] | str:
        return _quietly(lambda: list(plain.encode(*texts, add_special_tokens=special).ids))

    def decode(ids: list[int]) -> str:
        return _quietly(lambda: str(plain.decode(ids, skip_special_tokens=False)))

    return Subject(
        identity=identity,
        encode=encode,
        decode=decode,
        pieces=pieces,
        vocabulary=backend.get_vocab(with_added_tokens=False),
        templates=by_name(templates),
    )


def in_python(identity: Identity, tokenizer: Any) -> Subject:
    """The side of a transformers tokenizer that is Python code."""

    def encode(texts: tuple[str, ...], special: bool) -> list[int] | str:
        return _quietly(lambda: list(tokenizer.encode(*texts, add_special_tokens=special)))

    def decode(ids: list[int]) -> str:
        return _quietly(lambda: str(tokenizer.decode(ids)))

    return Subject(
        identity=identity,
        encode=encode,
        decode=decode,
        vocabulary=tokenizer.get_vocab(),
        templates=by_name(getattr(tokenizer, "chat_template", None)),
    )


def _quietly(ask: Callable[[], T]) -> T | str:
    """An answer, or the error in words: where one side fails and the other does not, that is the difference."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        return f"error: {str(error)[:120]}"
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return f"error: the library panicked: {str(error)[:100]}"
