"""The `tokenizer.model` family in the one form: SentencePiece, tiktoken and tekken.

A SentencePiece model is read without the sentencepiece library. Protobuf's wire format is read
within bounds: every length is checked before it is used, and nothing is guessed. Field numbers are
those of sentencepiece_model.proto. What the library refuses is refused here too.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.text import quoted
from harness.tokenizer.form import (
    BYTE,
    CONTROL,
    MOST_TOKENS,
    NORMAL,
    TYPE_NAMES,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Form,
    scores_part,
    spelled,
    strings_part,
    types_part,
    without_padding,
)
from harness.tokenizer.formats.gguf import ALWAYS, NEVER, spaces
from harness.tokenizer.gguf.known import split_of_pattern
from harness.tokenizer.identity import canonical_json
from harness.tokenizer.problem import Unreadable

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
_FIXED = {FIXED64: 8, FIXED32: 4}


class ProtobufMessage:
    """A message inside a file.

    Attributes:
        content: of the whole file.
        start, stop: bytes of it that are this message.
    """

    def __init__(
        self, content: bytes, *, path: str, start: int = 0, stop: int | None = None
    ) -> None:
        self.content = content
        self.path = path
        self.start = start
        self.stop = len(content) if stop is None else stop

    def fields(self) -> Iterator[tuple[int, int, int, int]]:
        """Number, wire type and place of each field, in the file's order.

        The place is its first byte and the one behind its last; of a varint it is the number
        itself, twice.

        Raises:
            Unreadable: with the byte of the file at which it is wrong.
        """
        at = self.start
        content = self.content
        stop = self.stop
        while at < stop:
            begins = at
            tag, at = self._varint(at)
            number = tag >> 3
            wire = tag & 7
            if not 0 < number < 1 << 29:
                raise self._wrong(begins, f"a field has an invalid number: {number}")
            if wire == VARINT:
                value, at = self._varint(at)
                yield number, wire, value, value
                continue
            if wire == BYTES:
                length, at = self._varint(at)
            elif wire in _FIXED:
                length = _FIXED[wire]
            else:
                raise self._wrong(
                    begins, f"field {number} has the wire type {wire}, which these files never use"
                )
            if length > stop - at:
                raise self._wrong(
                    begins, f"field {number} needs {length} bytes, but only {stop - at} are left"
                )
            yield number, wire, at, at + length
            at += length
        del content

    def inside(self, start: int, stop: int) -> ProtobufMessage:
        """Return a message that is a field of this one."""
        return ProtobufMessage(self.content, path=self.path, start=start, stop=stop)

    def float(self, start: int) -> float:
        """Return a float of four bytes."""
        return float(struct.unpack_from("<f", self.content, start)[0])

    def _varint(self, at: int) -> tuple[int, int]:
        begins = at
        value = 0
        shift = 0
        content = self.content
        stop = self.stop
        while at < stop and shift < 70:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value, at
            shift += 7
        raise self._wrong(begins, "a varint is truncated or longer than 64 bits")

    def _wrong(self, at: int, what: str) -> Unreadable:
        return Unreadable(
            f"{self.path}: this is not a SentencePiece model, or it is damaged: {what} (at byte"
            f" {at})"
        )


def signed(value: int) -> int:
    """Return a varint as the 32-bit number that it was: negative ones are written as 64 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


# Bytes of a file; the largest in use has 5 million.
LARGEST = 64 << 20
_MODELS = {1: "Unigram", 2: "BPE", 3: "words", 4: "characters"}
_PIECES = 1
_TRAINER = 2
_NORMALIZER = 3
_NUMBERS = {3: "model_type", 24: "treat_whitespace_as_suffix", 35: "byte_fallback"}
_TEXTS = {45: "unk", 46: "bos", 47: "eos", 48: "pad"}
_RULES = {3: "add_dummy_prefix", 4: "remove_extra_whitespaces", 5: "escape_whitespaces"}


def sentencepiece_form(path: Path, content: bytes) -> Form:
    """Return the form of a model file.

    Args:
        path: for messages.
        content: of the file.

    Raises:
        Unreadable: damaged, or a model that sentencepiece would not load; the message says where
            and why.
    """
    where = str(path)
    tokens: list[bytes] = []
    types = bytearray()
    scores = array("f")
    trainer: dict[str, Any] = {"model_type": 1} | {name: f"<{name}>" for name in ("unk", "pad")}
    trainer |= {"bos": "<s>", "eos": "</s>"}
    rules: dict[str, Any] = dict.fromkeys(_RULES.values(), 1) | {"charsmap": b""}
    whole = ProtobufMessage(content, path=where)
    for number, wire, start, stop in whole.fields():
        if number not in (_PIECES, _TRAINER, _NORMALIZER):
            continue
        if wire != BYTES:
            raise Unreadable(
                f"{where}: this is not a SentencePiece model, because field {number} is not a"
                " message"
            )
        message = whole.inside(start, stop)
        if number == _PIECES:
            if len(tokens) >= MOST_TOKENS:
                raise Unreadable(f"{where}: the model has more than {MOST_TOKENS} pieces")
            token, score, kind = _piece(message, len(tokens))
            tokens.append(token)
            scores.append(score)
            types.append(kind)
        elif number == _TRAINER:
            _read_settings(message, trainer, numbers=_NUMBERS, texts=_TEXTS)
        else:
            _read_settings(message, rules, numbers=_RULES, texts={2: "charsmap"})
    ids = _ids(where, tokens, types)
    model = _MODELS.get(trainer["model_type"])
    if model is None:
        raise Unreadable(
            f"{where}: its model_type is {trainer['model_type']}, which does not exist"
        )
    falls_back = bool(trainer.get("byte_fallback"))
    missing = [byte for byte in range(256) if types[ids.get(b"<0x%02X>" % byte, 0)] != BYTE]
    if falls_back and missing:
        raise Unreadable(
            f"{where}: the model uses byte fallback, but has no piece for byte"
            f" 0x{missing[0]:02x}{f' (and {len(missing) - 1} more)' if len(missing) > 1 else ''}"
        )
    size = without_padding(bytes(types))
    kinds, types_text = types_part(bytes(types[:size]))
    scored, scores_text = scores_part(scores[:size], kinds)
    unknown = types.index(UNKNOWN)
    suffix = bool(trainer.get("treat_whitespace_as_suffix"))
    parts = {
        "model": model,
        "tokens": strings_part(tokens[:size]),
        "token types": types_text,
        "merges": None,
        "scores": scores_text,
        "pre-tokenizer": "none",
        "normalizer": _normalizer(rules, suffix=suffix),
        "options": canonical_json({"byte_fallback": True} if falls_back else {"unk": unknown}),
        "added tokens": "[]",
        "around": None,
        **{name: _named(trainer[name], ids, types) for name in ("bos", "eos", "pad")},
        "chat templates": None,
    }
    return Form(
        format="SentencePiece",
        parts=parts,
        types=kinds,
        tokens=lambda: tokens[:size],
        scores=lambda: scored,
        assumed={"added tokens": "a SentencePiece model has no field for it"},
        padding=len(types) - size,
    )


def _piece(message: ProtobufMessage, index: int) -> tuple[bytes, float, int]:
    token = b""
    score = 0.0
    kind = NORMAL
    for number, wire, start, stop in message.fields():
        if number == 1 and wire == BYTES:
            token = message.content[start:stop]
        elif number == 2 and wire == FIXED32:
            score = message.float(start)
        elif number == 3 and wire == VARINT:
            kind = start
        elif number <= 3:
            raise Unreadable(
                f"{message.path}: piece {index} is malformed: field {number} has the unexpected"
                f" wire type {wire}"
            )
    where = f"{message.path}: piece {index}"
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"{where} is not UTF-8") from None
    if not token:
        raise Unreadable(f"{where} is empty")
    if kind not in TYPE_NAMES:
        raise Unreadable(f"{where}, {quoted(text)}, is of type {kind}, which does not exist")
    if not math.isfinite(score):
        raise Unreadable(
            f"{where}, {quoted(text)}, has a score of {score}, which is not a finite number"
        )
    return token, score, kind


def _read_settings(
    message: ProtobufMessage,
    settings: dict[str, Any],
    *,
    numbers: dict[int, str],
    texts: dict[int, str],
) -> None:
    for number, wire, start, stop in message.fields():
        if (number in numbers and wire != VARINT) or (number in texts and wire != BYTES):
            raise Unreadable(
                f"{message.path}: a setting is malformed: field {number} has the unexpected wire"
                f" type {wire}"
            )
        if number in numbers:
            settings[numbers[number]] = signed(start)
        elif number in texts:
            value = message.content[start:stop]
            settings[texts[number]] = (
                value if texts[number] == "charsmap" else value.decode(errors="backslashreplace")
            )


def _ids(where: str, tokens: list[bytes], types: bytearray) -> dict[bytes, int]:
    if not tokens:
        raise Unreadable(
            f"{where}: this is not a SentencePiece model, because it contains no pieces"
        )
    ids = {token: index for index, token in reversed(list(enumerate(tokens)))}
    if len(ids) < len(tokens):
        twice = next(index for index, token in enumerate(tokens) if ids[token] != index)
        shown = quoted(tokens[twice].decode())
        raise Unreadable(
            f"{where}: pieces {ids[tokens[twice]]} and {twice} are both {shown}, so encoding"
            " can produce only one of them"
        )
    if types.count(UNKNOWN) != 1:
        raise Unreadable(
            f"{where}: {types.count(UNKNOWN)} pieces are of type UNKNOWN, but there must be"
            " exactly one"
        )
    for index, token in enumerate(tokens):
        if types[index] == BYTE and not (
            len(token) == 6 and token[:3] == b"<0x" and token[5:] == b">"
        ):
            raise Unreadable(
                f"{where}: piece {index}, {quoted(token.decode())}, is of type BYTE, but its text"
                " is not a byte"
            )
    if types.count(UNUSED) == len(types):
        raise Unreadable(f"{where}: all pieces are of type UNUSED")
    return ids


def _normalizer(rules: dict[str, Any], *, suffix: bool) -> str:
    usual = spaces(
        charsmap=rules["charsmap"],
        first=ALWAYS if rules["add_dummy_prefix"] else NEVER,
        collapse=bool(rules["remove_extra_whitespaces"]),
    )
    unusual = [
        name
        for name, so in (("spaces last", suffix), ("spaces stay", not rules["escape_whitespaces"]))
        if so
    ]
    return canonical_json([usual, *unusual]) if unusual else usual


def _named(token: str, ids: dict[bytes, int], types: bytearray) -> str | None:
    index = ids.get(token.encode(errors="surrogatepass"))
    return str(index) if index is not None and types[index] == CONTROL else None


# Bytes of a token.
LONGEST = 1 << 16
BY_RANKS = "by ranks"


def tiktoken_form(path: Path, content: bytes) -> Form:
    """Return the form of a `.tiktoken` file: a line for each token, base64 and rank.

    Raises:
        Unreadable: with the line.
    """
    ranks: dict[int, bytes] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        fields = line.split()
        if len(fields) != 2 or not fields[1].isdigit() or len(fields[1]) > 8:
            raise Unreadable(f"{path}: line {number} must be a base64 token and a rank")
        _keep(
            ranks,
            int(fields[1]),
            _bytes(fields[0], f"{path}: line {number}"),
            f"{path}: line {number}",
        )
    _whole(path, ranks)
    return _form("tiktoken", [ranks[rank] for rank in range(len(ranks))], special={}, split=None)


def tekken_form(path: Path, content: bytes) -> Form:
    """Return the form of a `tekken.json`.

    Raises:
        Unreadable: it is none, or damaged.
    """
    try:
        read = strict_json(content)
    except NotStrict as error:
        raise Unreadable(f"{path}: {error}") from None
    config, vocabulary = (
        read.get(name) if isinstance(read, dict) else None for name in ("config", "vocab")
    )
    if not isinstance(config, dict) or not isinstance(vocabulary, list):
        raise Unreadable(
            f"{path}: the file lacks a config object or a vocab list, so it is not a tekken.json"
        )
    size = _number(config.get("default_vocab_size"))
    count = _number(config.get("default_num_special_tokens"))
    pattern = config.get("pattern")
    if not 0 < count < size or not isinstance(pattern, str):
        raise Unreadable(
            f"{path}: its config must contain pattern, default_vocab_size and"
            " default_num_special_tokens"
        )
    ranks: dict[int, bytes] = {}
    for number, entry in enumerate(vocabulary):
        where = f"{path}: entry {number} of vocab"
        given, rank = (
            entry.get(name) if isinstance(entry, dict) else None for name in ("token_bytes", "rank")
        )
        if not isinstance(given, str) or _number(rank) < 0:
            raise Unreadable(
                f"{where} must have token_bytes, a string, and rank, an integer from 0 to"
                f" {MOST_TOKENS:,}"
            )
        _keep(ranks, _number(rank), _bytes(given.encode(errors="replace"), where), where)
    _whole(path, ranks)
    if len(ranks) < size - count:
        raise Unreadable(
            f"{path} contains {len(ranks)} tokens, but default_vocab_size requires {size - count}"
        )
    special = _special(path, read.get("special_tokens"), count)
    return _form(
        "tekken",
        [ranks[rank] for rank in range(size - count)],
        special=special,
        split=pattern,
        first=count,
    )


def _number(value: object) -> int:
    """Return a number of tokens, or -1."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
        else -1
    )


def _bytes(text: bytes, where: str) -> bytes:
    try:
        token = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable(
            f"{where}: {quoted(text.decode(errors='backslashreplace'))} is not base64"
        ) from None
    if not 0 < len(token) <= LONGEST:
        raise Unreadable(f"{where}: the token has {len(token)} bytes, but must have 1 to {LONGEST}")
    return token


def _keep(ranks: dict[int, bytes], rank: int, token: bytes, where: str) -> None:
    if rank in ranks:
        raise Unreadable(f"{where}: rank {rank} is listed twice")
    if rank >= MOST_TOKENS:
        raise Unreadable(f"{where}: rank {rank} is outside the vocabulary of every model")
    ranks[rank] = token


def _whole(path: Path, ranks: dict[int, bytes]) -> None:
    if not ranks:
        raise Unreadable(f"{path}: the file contains no tokens")
    gap = next((rank for rank in range(len(ranks)) if rank not in ranks), None)
    if gap is not None:
        raise Unreadable(f"{path}: no token has the rank {gap}, but others have higher ranks")
    by_token: dict[bytes, int] = {}
    for rank, token in ranks.items():
        if token in by_token:
            raise Unreadable(
                f"{path}: ranks {by_token[token]} and {rank} have the same bytes, so encoding can"
                " produce only one of them"
            )
        by_token[token] = rank
    missing = [byte for byte in range(256) if bytes([byte]) not in by_token]
    if missing:
        raise Unreadable(
            f"{path}: there is no token for byte 0x{missing[0]:02x} (and {len(missing) - 1} more)"
        )


def _special(path: Path, given: Any, count: int) -> dict[int, tuple[bytes, int]]:
    """Special tokens by id; older files do not list them."""
    special: dict[int, tuple[bytes, int]] = {}
    for entry in given if isinstance(given, list) else []:
        rank, text = (
            entry.get(name) if isinstance(entry, dict) else None for name in ("rank", "token_str")
        )
        rank = _number(rank)
        if not isinstance(text, str) or not text or not 0 <= rank < count:
            raise Unreadable(
                f"{path}: a special token has no token_str, or its rank is not an integer from 0 to"
                f" {count - 1}"
            )
        if rank in special:
            raise Unreadable(
                f"{path}: {quoted(text)} and {quoted(special[rank][0].decode())} share the id"
                f" {rank}"
            )
        kind = CONTROL if entry.get("is_control", True) else USER_DEFINED
        special[rank] = (text.encode(errors="backslashreplace"), kind)
    return special


def _form(
    format_: str,
    ranked: list[bytes],
    *,
    special: dict[int, tuple[bytes, int]],
    split: str | None,
    first: int = 0,
) -> Form:
    tokens = [special.get(index, (b"[PAD%d]" % index, UNUSED)) for index in range(first)]
    texts = [token for token, _ in tokens] + [spelled(token_bytes) for token_bytes in ranked]
    types, types_text = types_part(
        bytes([kind for _, kind in tokens]) + bytes([NORMAL]) * len(ranked)
    )
    # Special tokens of an older file are known to have ids, and to nobody by what text.
    stated = bool(special) or not first
    parts = {
        "model": "BPE",
        "tokens": strings_part(texts) if stated else None,
        "token types": types_text if stated else None,
        "merges": None,
        "scores": BY_RANKS,
        "pre-tokenizer": None if split is None else split_of_pattern(split),
        "normalizer": "[]",
        "options": None,
        "added tokens": "[]" if split else None,
        **dict.fromkeys(("around", "bos", "eos", "pad", "chat templates")),
    }
    return Form(format=format_, parts=parts, types=types, tokens=lambda: texts)
