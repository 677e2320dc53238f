"""A `tokenizers.Tokenizer`: its serialisation, and the parts of its identity.

What `Tokenizer.to_str()` returns is canonical: defaults are filled in, the vocabulary is ordered by
id and the merges by rank. Its large pieces are digested as text, which is ten times faster than
parsing them. Inside a JSON string every quote is escaped, so that `,"model":{` and its like can
only be the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.tokenizer import components
from harness.tokenizer.identity import PAIR, PROBES, canonical_json, digest_text, short
from harness.tokenizer.problem import Unidentifiable, panics_become

BEGINNING = b'{"version":"'
MODEL = b',"model":'
ESCAPES = re.compile(rb"\\(.)", re.DOTALL)
TYPE = b'{"type":"'
VOCABULARY = b',"vocab":'
MERGES = b',"merges":'


def written(backend: Any) -> bytes:
    """The text of `backend.to_str()`, as UTF-8.

    The state that pickle saves is the same text, and comes as bytes. Making text of it and bytes
    again takes nearly as long as the writing itself.
    """
    state = backend.__getstate__()
    return (
        state
        if isinstance(state, bytes) and state.startswith(BEGINNING)
        else backend.to_str().encode()
    )


@dataclass(frozen=True, kw_only=True)
class Serialised:
    """The pieces of a serialised tokenizer.

    Attributes:
        head: everything but the model.
        model: the model's small fields.
        vocabulary: JSON text, ordered by id (Unigram: pairs of piece and score, in order of id).
        merges: JSON text of pairs in order of rank; None for a model without.
    """

    head: dict[str, Any]
    model: dict[str, Any]
    vocabulary: bytes
    merges: bytes | None

    @classmethod
    def take_apart(cls, text: bytes) -> Serialised:
        """Take apart what `written` returned.

        Raises:
            Unidentifiable: for a model whose layout is not known.
        """
        at = text.find(MODEL + TYPE)
        if at < 0:
            raise Unidentifiable(
                "this version of tokenizers writes a tokenizer in a layout that is not known here"
            )
        head = json.loads(text[:at] + b"}")
        begin = at + len(MODEL)
        kind = text[begin + len(TYPE) : text.index(b'"', begin + len(TYPE))].decode()
        opening = text.find(VOCABULARY, begin)
        if opening < 0 or kind not in FOLLOWS:
            raise Unidentifiable(f"a model of type {kind!r} is not known here")
        start = opening + len(VOCABULARY)
        closing = FOLLOWS[kind]
        # The last two braces close the model and the tokenizer.
        end = text.find(closing, start) if closing else len(text) - 2
        if end < 0:
            raise Unidentifiable(
                f"the model of type {kind!r} is written in a layout that is not known here"
            )
        rest = text[end:-2]
        merges = None
        if kind == "BPE":
            merges = rest.removeprefix(MERGES)
            rest = b""
        return cls(
            head=head,
            model=json.loads(text[begin:opening] + rest + b"}"),
            vocabulary=text[start:end],
            merges=merges,
        )

    def entries(self) -> int:
        """Count the tokens of a written vocabulary (not for Unigram, whose vocabulary is a
        list).
        """
        # A backslash takes the next character with it, so that what is left are the quotes around
        # tokens.
        return (self.vocabulary.count(b'"') - ESCAPES.findall(self.vocabulary).count(b'"')) // 2


# What follows the vocabulary, by type of model.
FOLLOWS = {
    "BPE": MERGES + b"[",
    "WordPiece": b"",
    "WordLevel": b',"unk_token":',
    "Unigram": b',"byte_fallback":',
}


Parts = dict[str, str]
NONE = "none"
MOST_ADDED = 512


def read(backend: Any) -> Serialised:
    """The pieces of a tokenizer.

    Raises:
        Unidentifiable: if a component is Python code, which cannot be written down.
    """
    with panics_become(
        Unidentifiable, "this tokenizer cannot be written down (is a component of it Python code?)"
    ):
        return Serialised.take_apart(written(backend))


def encoder_parts(
    backend: Any, pieces: Serialised, *, alone: bool, encode_special_tokens: bool
) -> Parts:
    """Everything that decides which ids a text gets, and what else a backend holds.

    Args:
        backend: a `tokenizers.Tokenizer`; it is not changed.
        pieces: from `read(backend)`.
        alone: whether `Tokenizer.encode` is what is called. transformers sets padding and
            truncation anew for each call, so that what is found there is left over from the last
            one and decides nothing.
        encode_special_tokens: whether special tokens in a text are split like any other text.
    """
    head = pieces.head
    model = pieces.model
    vocabulary, merges = _vocabulary(backend, pieces)
    normal = components.normal_form(head, model, pieces.vocabulary)
    added = head["added_tokens"]
    state = components.state(head) if alone else {}
    plain = backend
    if not alone and (
        head["padding"]
        or head["truncation"]
        or backend.encode_special_tokens != encode_special_tokens
    ):
        plain = view(backend, head, encode_special_tokens=encode_special_tokens)
    at_random = "dropout" in normal["model"]
    ids = NONE if at_random else _probe_ids(plain)
    added_ids = NONE if at_random else _added_ids(plain, added)
    encoding = {
        "vocabulary": vocabulary,
        "merges": merges,
        **normal,
        # After the probes: where a template names a token that it does not have, the library's
        # panic says so.
        "post_processor": components.post_processor(head["post_processor"]),
        "added tokens": added,
        "encode special tokens": encode_special_tokens,
        "state": state,
        "probe ids": ids,
        "ids of added tokens": added_ids,
    }
    return {
        "encoding": digest_text(canonical_json(encoding)),
        "backend": type_of(backend),
        "model": short(model),
        "vocabulary": vocabulary,
        "merges": merges,
        "added tokens": digest_text(canonical_json(added)) if added else NONE,
        "encode special tokens": str(encode_special_tokens).lower(),
        "probe ids": ids if ids != NONE else "not comparable: dropout chooses at random",
        **{
            name: short(head[name]) if head[name] is not None else NONE
            for name in (
                "normalizer",
                "pre_tokenizer",
                "post_processor",
                "decoder",
                "padding",
                "truncation",
            )
        },
    }


def round_trip(encode: Callable[[str], list[int] | str], decode: Callable[[list[int]], str]) -> str:
    """Encode and decode every probe: by name whether it is `kept`, `changed` or `lost`.

    A text that cannot be encoded (an error in words instead of ids) does not come back.
    """
    outcome = {}
    with panics_become(Unidentifiable, "the tokenizer fails on the round trip of the probe corpus"):
        for name, text in PROBES.items():
            ids = encode(text)
            back = decode([] if isinstance(ids, str) else ids)
            if back == text:
                outcome[name] = "kept"
            elif text.strip() and not back.strip():
                outcome[name] = "lost"
            else:
                outcome[name] = "changed"
    counts = {
        word: sum(result == word for result in outcome.values())
        for word in ("kept", "changed", "lost")
    }
    named = {
        word: [name for name, result in outcome.items() if result == word]
        for word in ("kept", "lost")
    }
    return canonical_json(
        counts | {"names": {word: names for word, names in named.items() if names}}
    )


def view(
    backend: Any, head: dict[str, Any] | None = None, *, encode_special_tokens: bool | None = None
) -> Any:
    """The same tokenizer without what a call leaves behind.

    The model is shared, and `backend` is left as it is.

    Args:
        backend: a `tokenizers.Tokenizer`.
        head: from `read(backend)`, if it is at hand.
        encode_special_tokens: as in `encoder_parts`; by default what the backend has.
    """
    from tokenizers import AddedToken, Tokenizer

    head = read(backend).head if head is None else head
    plain = Tokenizer(backend.model)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        component = getattr(backend, name)
        if component is not None:
            setattr(plain, name, component)
    for token in head["added_tokens"]:
        flags = {key: value for key, value in token.items() if key not in {"id", "content"}}
        plain.add_tokens([AddedToken(token["content"], **flags)])
    held = {index: str(token) for index, token in plain.get_added_tokens_decoder().items()}
    if held != {token["id"]: token["content"] for token in head["added_tokens"]}:
        # Ids that a new tokenizer would not give: take the slow way, a copy through JSON.
        plain = Tokenizer.from_str(backend.to_str())
        plain.no_padding()
        plain.no_truncation()
    plain.encode_special_tokens = (
        backend.encode_special_tokens if encode_special_tokens is None else encode_special_tokens
    )
    return plain


def _added_ids(backend: Any, added: list[dict[str, Any]]) -> str:
    """Digest of the ids of texts with added tokens.

    How a backend finds them depends on the order in which they and the normalizer were set, which
    is not written down.
    """
    with panics_become(Unidentifiable, "the tokenizer fails on a text with an added token"):
        ids = [
            ids_of(backend, f"a{token['content']} b {token['content'].lower()}")
            for token in added[:MOST_ADDED]
        ]
    return digest_text(canonical_json(ids))


def _probe_ids(backend: Any) -> str:
    """Ids of every probe, with and without the special tokens around it, and of one pair, as
    JSON.
    """
    ids: dict[str, Any] = {}
    with panics_become(Unidentifiable, "the tokenizer fails on a text of the probe corpus"):
        for name, text in PROBES.items():
            ids[name] = ids_of(backend, text)
        ids["with special tokens"] = ids_of(backend, PROBES["plain"], special=True)
        ids["pair"] = ids_of(backend, PROBES[PAIR[0]], PROBES[PAIR[1]], special=True)
    return canonical_json(ids)


def ids_of(backend: Any, *texts: str, special: bool = False) -> list[int] | str:
    """Ids, or the error in a few words: a vocabulary without an unknown token refuses some texts,
    each time alike.
    """
    try:
        return list(backend.encode(*texts, add_special_tokens=special).ids)
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        return f"error: {str(error)[:80]}"


def _vocabulary(backend: Any, pieces: Serialised) -> tuple[str, str]:
    """Digests of vocabulary and merges.

    Where two tokens share an id the library writes one of them, a different one each time; so they
    are read from it.
    """
    merges = digest_text(pieces.merges) if pieces.merges is not None else NONE
    if pieces.model["type"] == "Unigram" or pieces.entries() == backend.get_vocab_size(
        with_added_tokens=False
    ):
        return digest_text(pieces.vocabulary), merges
    tokens = backend.get_vocab(with_added_tokens=False)
    for content in (token["content"] for token in pieces.head["added_tokens"]):
        tokens.setdefault(content, backend.token_to_id(content))
    if pieces.merges is not None:
        by_id = [[tokens[left], tokens[right]] for left, right in json.loads(pieces.merges)]
        merges = digest_text(canonical_json(by_id))
    return digest_text(canonical_json(tokens)), merges


def type_of(value: object) -> str:
    """Module and name of a value's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
