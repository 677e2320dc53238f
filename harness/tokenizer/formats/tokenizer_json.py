"""A tokenizer of the tokenizers library (an object, or its tokenizer.json) in the one form."""

from __future__ import annotations

import base64
import binascii
import json
import math
from array import array
from collections.abc import Mapping
from itertools import chain as chain_of
from typing import Any

from harness.tokenizer.backend import (
    Component,
    Serialised,
    model_options,
    normalizer_steps,
    post_processor_items,
    pre_tokenizer_steps,
    text_settings,
)
from harness.tokenizer.form import (
    BYTE,
    BYTE_LEVEL,
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Form,
    bytes_in_words,
    lost,
    scores_part,
    strings_part,
    types_part,
    without_padding,
)
from harness.tokenizer.formats.gguf import ALWAYS, NEVER, around, spaces
from harness.tokenizer.gguf.known import split_of_components
from harness.tokenizer.identity import canonical_json, digest_text

BEGINS = "▁"
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": BEGINS}
_USUAL = {"single_word": False, "lstrip": False, "rstrip": False}


def serialised_form(
    pieces: Serialised,
    *,
    named: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    encode_special_tokens: bool = False,
) -> Form:
    """Return the form of what the tokenizers library writes down.

    Args:
        pieces: from `harness.tokenizer.backend.read`, with the tokens of the files beside it.
        named: special tokens by name (`eos_token`), where the files beside it name them; None for a
            lone file.
        templates: chat templates by name; None where none can be there.
        encode_special_tokens: whether special tokens in a text are split like any other text.
    """
    vocabulary = json.loads(pieces.vocabulary)
    unigram = isinstance(vocabulary, list)
    ids: dict[str, int] = (
        {piece[0]: index for index, piece in enumerate(vocabulary)} if unigram else dict(vocabulary)
    )
    added = pieces.head["added_tokens"]
    chain = pre_tokenizer_steps(pieces.head["pre_tokenizer"])
    options = model_options(pieces.model, vocabulary=pieces.vocabulary, before=chain)
    kind = options.pop("type")
    falls_back = bool(options.get("byte_fallback"))
    for token in added:
        ids[token["content"]] = token["id"]
    tokens, types = _by_id(ids, added, falls_back=falls_back)
    size = without_padding(types)
    padding = len(types) - size
    types, types_text = types_part(types[:size])
    del tokens[size:]
    merges, merges_text = _merges(pieces)
    scores = scores_text = None
    if unigram:
        scores, scores_text = _scores([float(piece[1]) for piece in vocabulary], types)
    if encode_special_tokens:
        options["special tokens are split"] = True
    if "unk_token" in options or "unk_id" in options:
        options["unk"] = options.pop("unk_id") if unigram else ids.get(options.pop("unk_token"))
        options.pop("fuse_unk", None)
    normalizer, split = _spaces(pieces.head["normalizer"], chain, ids=ids, added=added)
    parts = {
        "model": kind,
        "tokens": strings_part(tokens),
        "token types": types_text,
        "merges": merges_text,
        "scores": scores_text,
        "pre-tokenizer": split,
        "normalizer": normalizer,
        "options": canonical_json(options),
        "added tokens": canonical_json(_flags(added, normalizer)),
        "around": _around(pieces.head, alone=named is None),
        **{name: _named(named, ids, f"{name}_token") for name in ("bos", "eos", "pad")},
        "chat templates": None if templates is None else _templates(templates),
    }
    return Form(
        format="tokenizer.json",
        parts=parts,
        types=types,
        tokens=lambda: tokens,
        merges=lambda: merges,
        scores=lambda: scores if scores is not None else array("f"),
        padding=padding,
        remarks=tuple(missing_bytes(ids, chain=chain, falls_back=falls_back)),
    )


def missing_bytes(ids: Mapping[str, int], *, chain: list[Component], falls_back: bool) -> list[str]:
    """Describe what is lost where a byte-level tokenizer, or one with byte fallback, lacks the
    token of a byte.
    """
    whole: list[int] = []
    if falls_back:
        missing = [byte for token, byte in BYTES.items() if token not in ids]
        # Bytes are asked for only where a character has no token of its own.
        whole = [ord(" " if text == BEGINS else text) for text in ids if len(text) == 1]
    elif chain and chain[-1]["type"] == "ByteLevel":
        missing = [byte for letter, byte in BYTE_LEVEL.items() if letter not in ids]
    else:
        return []
    what = lost(missing, whole=whole)
    return [f"no token covers {bytes_in_words(missing)}; {what.words}"] if what.ranges else []


def _by_id(
    ids: Mapping[str, int], added: list[dict[str, Any]], *, falls_back: bool
) -> tuple[list[bytes], bytes]:
    count = max(ids.values(), default=-1) + 1
    tokens: list[bytes | None] = [None] * count
    types = bytearray([NORMAL]) * count
    for text, index in zip(_encoded(list(ids)), ids.values(), strict=True):
        tokens[index] = text
    for token in added:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    if falls_back:
        for name in BYTES:
            if (place := ids.get(name)) is not None:
                types[place] = BYTE
    texts = [b"[PAD%d]" % index if text is None else text for index, text in enumerate(tokens)]
    if None in tokens:
        for index, held in enumerate(tokens):
            if held is None:
                types[index] = UNUSED
    return texts, bytes(types)


def _encoded(strings: list[str]) -> list[bytes]:
    """Each as UTF-8. One text is encoded and cut, which takes half the time, where no string holds
    the mark.
    """
    joined = "\0".join(strings)
    if joined.count("\0") != len(strings) - 1:
        return [string.encode("utf-8", "surrogatepass") for string in strings]
    return joined.encode("utf-8", "surrogatepass").split(b"\0")


def _merges(pieces: Serialised) -> tuple[list[bytes], str | None]:
    if pieces.merges is None:
        return [], None
    if b" " in pieces.merges:
        # A piece with a space in it: GGUF could not tell where the left one ends.
        pairs = json.loads(pieces.merges)
        return _encoded([" ".join(pair) for pair in pairs]), digest_text(canonical_json(pairs))
    merges = _cut(pieces.merges)
    return merges, strings_part(merges)


def _cut(text: bytes) -> list[bytes]:
    """Return the merges of a JSON text without blanks, cut at its marks: parsing takes several
    times as long.
    """
    merges = text[3:-3].split(b'"],["') if len(text) > 2 else []
    # Where nothing is escaped no string holds a quote, so that the marks are marks; the others are
    # parsed.
    for rank, merge in enumerate(merges):
        if b"\\" not in merge:
            merges[rank] = merge.replace(b'","', b" ")
            continue
        try:
            merges[rank] = " ".join(json.loads(b'["' + merge + b'"]')).encode(
                "utf-8", "surrogatepass"
            )
        except ValueError:  # a piece that ends like a mark
            return _encoded([" ".join(pair) for pair in json.loads(text)])
    return merges


def _scores(scores: list[float], types: bytes) -> tuple[array[float], str]:
    # Tokens that were added to the vocabulary have no score: no text becomes them by one.
    padded = [*scores, *([0.0] * (len(types) - len(scores)))][: len(types)]
    single = array(
        "f", [score if abs(score) < 3e38 else math.copysign(3e38, score) for score in padded]
    )
    normal, text = scores_part(single, types)
    exact = all(
        score == rounded
        for score, rounded, kind in zip(padded, single, types, strict=True)
        if kind == NORMAL
    )
    # Scores that float32 cannot hold are not those of a file that stores float32.
    return normal, text if exact else digest_text(canonical_json(padded))


def _spaces(
    normalizer: Component | None,
    chain: list[Component],
    *,
    ids: Mapping[str, int],
    added: list[dict[str, Any]],
) -> tuple[str, str]:
    """Normalizer and pre-tokenizer, as SentencePiece says it where they do what SentencePiece
    does.
    """
    listed = normalizer_steps(normalizer)
    opaque = canonical_json(listed), split_of_components(chain)
    rest = list(listed)
    charsmap = b""
    collapse = False
    if rest and rest[0]["type"] == "Precompiled":
        try:
            charsmap = base64.b64decode(rest.pop(0)["precompiled_charsmap"] or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            return opaque
    if [step["type"] for step in rest[:2]] == ["Strip", "Replace"] and rest[0].get("strip_right"):
        pattern = rest[1].get("pattern")
        content = rest[1].get("content")
        if pattern == {"Regex": " {2,}"} and content in (" ", BEGINS):
            collapse = True
            rest = rest[2:]
    prefix = bool(rest) and rest[0] == {"type": "Prepend", "prepend": BEGINS}
    if rest[1 if prefix else 0 :] == [_SPACES] and not chain:
        return (
            spaces(charsmap=charsmap, first=ALWAYS if prefix else NEVER, collapse=collapse),
            "none",
        )
    if (
        not rest
        and len(chain) == 1
        and chain[0]["type"] == "Metaspace"
        and chain[0].get("replacement") == BEGINS
    ):
        scheme = chain[0].get("prepend_scheme", "always")
        if chain[0].get("split", True) and _crosses(ids, added):
            return opaque
        # `first` differs from `always` behind an added token only; SentencePiece knows no such
        # place.
        first = ALWAYS if collapse else "unless there is one"
        if scheme == "never":
            first = NEVER
        elif scheme == "first" and added:
            first += ", and not behind an added token"
        return spaces(charsmap=charsmap, first=first, collapse=collapse), "none"
    return opaque


def _crosses(ids: Mapping[str, int], added: list[dict[str, Any]]) -> bool:
    """Tell whether a piece holds the mark of a word's beginning elsewhere than first: then
    splitting at it matters.
    """
    names = {token["content"] for token in added}
    return any(BEGINS in token[1:] for token in ids if token not in names)


def _flags(added: list[dict[str, Any]], normalizer: str) -> list[Any]:
    """Added tokens that are not simply found in the text as it is written, with their flags."""
    flagged = []
    for token in added:
        flags = {name: token[name] for name in _USUAL if token[name]}
        if token["normalized"] and normalizer != "[]":
            flags["normalized"] = True
        if flags:
            flagged.append([token["id"], flags])
    return flagged


def _around(head: dict[str, Any], *, alone: bool) -> str:
    state = text_settings(head) if alone else {}
    said = _put(post_processor_items(head["post_processor"]))
    return canonical_json([said, state]) if state else said


def _put(chain: list[Any]) -> str:
    if not chain:
        return around([], [])
    if len(chain) == 1 and "single" in chain[0] and chain[0]["single"].count("A") == 1:
        single = chain[0]["single"]
        at = single.index("A")
        if all(isinstance(item, list) for item in (*single[:at], *single[at + 1 :])):
            return around([*chain_of(*single[:at])], [*chain_of(*single[at + 1 :])])
    return canonical_json(chain)


def _named(named: Mapping[str, str] | None, ids: Mapping[str, int], name: str) -> str | None:
    token = (named or {}).get(name)
    return None if token is None or token not in ids else str(ids[token])


def _templates(templates: Mapping[str, str]) -> str | None:
    return (
        canonical_json({name: digest_text(text) for name, text in templates.items()})
        if templates
        else None
    )
