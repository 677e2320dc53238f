"""Findings about the tokenizer inside a GGUF file: tokens, types, scores, merges, special ids and
missing bytes.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from harness.forms.text import quoted
from harness.tokenizer.form import (
    BYTE,
    BYTE_LEVEL,
    CONTROL,
    MOST_TOKENS,
    NORMAL,
    TYPE_NAMES,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    bytes_in_words,
    lost,
)
from harness.tokenizer.gguf.known import (
    ADD_BOS,
    BPE,
    MERGES,
    MODEL,
    MODELS,
    PRE,
    PRE_TOKENIZERS,
    SCORES,
    SPM,
    TEMPLATE,
    TOKENS,
    TYPES,
    UGM,
    WITHOUT,
)
from harness.tokenizer.gguf.reader import Array, GgufFile
from harness.tokenizer.gguf.shape import GgufFinding, Severity, embedding_rows, finding, is_text

_ID = re.compile(r"tokenizer\.ggml\.(\w+)_token_id")
# What engines must not read in a user's text: tokens that a chat template writes between its turns.
_MARKER = re.compile(
    rb"<\|[^<>|]+\|>|<(?:s|/s|bos|eos|pad|unk|mask|start_of_turn|end_of_turn)>|\[/?INST\]"
)
_CONVERT = "convert the model again"
# Models with tokens such as <0x41> for the bytes of what has no token.
_FALLING_BACK = (SPM, "gemma4")
_COMPARE = "compare with the tokenizer that it was made from"
_SAME = "use the engine that it was written for, or convert the model again"
_GIVE = "specify a tokenizer when you use the model"


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The arrays of a tokenizer, by id."""

    file: GgufFile
    model: str
    tokens: list[bytes]
    types: array[int] | array[float]
    ids: dict[bytes, int]
    """The first id of each text."""

    def type(self, number: int) -> int:
        """Return the type of a token; NORMAL where no types are stored."""
        return int(self.types[number]) if self.types else NORMAL


def tokenizer(file: GgufFile) -> Iterator[GgufFinding]:
    """Every finding about the tokenizer inside a file."""
    model = file.value(MODEL)
    if model is None or (isinstance(model, bytes) and model.decode(errors="replace") in WITHOUT):
        if file.tensors and model is None:
            yield finding(
                file,
                MODEL,
                "no-tokenizer",
                "warning",
                "is missing, so the file contains no tokenizer",
                _GIVE,
            )
        return
    if not isinstance(model, bytes):
        return  # another type than it has to be: the keys' findings say so
    name = model.decode(errors="backslashreplace")
    if name not in MODELS:
        yield finding(
            file,
            MODEL,
            "tokenizer-model",
            "error",
            f"{quoted(name)} is not one of the tokenizers that engines know: {', '.join(MODELS)}",
            _SAME,
        )
        return
    stored = file.value(TOKENS)
    if not isinstance(stored, Array) or stored.type != "string" or not stored.count:
        yield finding(file, TOKENS, "no-tokens", "error", "contains no tokens", _CONVERT)
        return
    if stored.count > MOST_TOKENS:
        yield finding(
            file,
            TOKENS,
            "too-many-tokens",
            "error",
            f"contains {stored.count} tokens; at most {MOST_TOKENS} are checked",
            "check where the file came from",
        )
        return
    lengths = list(_lengths(file, stored.count))
    yield from lengths
    tokens = list(file.strings(stored))
    ids: dict[bytes, int] = {}
    for number, token in enumerate(tokens):
        ids.setdefault(token, number)
    types = file.value(TYPES)
    usable = (
        isinstance(types, Array)
        and types.type in ("int32", "uint32")
        and types.count == stored.count
    )
    numbers = file.numbers(types) if usable and isinstance(types, Array) else array("i")
    vocabulary = _Vocabulary(file=file, model=name, tokens=tokens, types=numbers, ids=ids)
    yield from _pre_tokenizer(file, name)
    yield from _texts(vocabulary)
    yield from _types(vocabulary)
    yield from _scores(vocabulary)
    yield from _merges(vocabulary)
    yield from _special(vocabulary)
    yield from _bytes(vocabulary)


def _lengths(file: GgufFile, count: int) -> Iterator[GgufFinding]:
    for key in (TYPES, SCORES):
        stored = file.value(key)
        if isinstance(stored, Array) and stored.count != count:
            yield finding(
                file,
                key,
                "array-length",
                "error",
                f"has {stored.count} entries for {count} tokens",
                _CONVERT,
            )
    rows = embedding_rows(file)
    if rows is not None and rows < count:
        yield finding(
            file,
            TOKENS,
            "more-tokens-than-rows",
            "error",
            f"contains {count} tokens, but the model has only {rows} rows, so the last"
            f" {count - rows} have none",
            "it belongs to a different model",
        )
    elif rows is not None and rows > count:
        yield finding(
            file,
            TOKENS,
            "padding",
            "note",
            f"the model has {rows} rows for {count} tokens, so the last {rows - count} are padding",
            "",
        )


def _pre_tokenizer(file: GgufFile, model: str) -> Iterator[GgufFinding]:
    if model != BPE:
        return
    pre = file.value(PRE)
    if pre is None:
        yield finding(
            file,
            PRE,
            "pre-tokenizer",
            "error",
            "is missing, so engines split text in their own way, and the ids differ",
            _CONVERT,
        )
    elif isinstance(pre, bytes) and pre.decode(errors="replace") not in PRE_TOKENIZERS:
        shown = quoted(pre.decode(errors="backslashreplace"))
        yield finding(
            file,
            PRE,
            "pre-tokenizer",
            "error",
            f"{shown} is not among the {len(PRE_TOKENIZERS)} that this version knows, so we do not"
            " know how text is split",
            _SAME,
        )
    elif pre == b"default":
        yield finding(
            file,
            PRE,
            "pre-tokenizer",
            "warning",
            "is default, so engines split text in their own way",
            _CONVERT,
        )


def _texts(vocabulary: _Vocabulary) -> Iterator[GgufFinding]:
    """Two ids with one text, no text, and bytes that are not text."""
    tokens = vocabulary.tokens
    ids = vocabulary.ids
    double = [number for number, token in enumerate(tokens) if ids[token] != number and token]
    if double:
        first = double[0]
        used = [number for number in double if vocabulary.type(number) != UNUSED]
        yield _about_tokens(
            vocabulary,
            "duplicate-token",
            "error" if used else "warning",
            (
                f"ids {ids[tokens[first]]} and {first} are both"
                f" {_token(tokens[first])}{_more(len(double) - 1)}, so text can produce only one of"
                " them"
            ),
        )
    empty = [number for number, token in enumerate(tokens) if not token]
    if empty:
        yield _about_tokens(
            vocabulary,
            "empty-token",
            "warning",
            f"id {empty[0]} has no text{_more(len(empty) - 1)}",
        )
    if vocabulary.model != "rwkv":
        strange = [
            number
            for number, token in enumerate(tokens)
            if not token.isascii() and not is_text(token)
        ]
        if strange:
            yield _about_tokens(
                vocabulary,
                "encoding",
                "error",
                f"id {strange[0]} is not UTF-8{_more(len(strange) - 1)}",
            )


def _types(vocabulary: _Vocabulary) -> Iterator[GgufFinding]:
    file = vocabulary.file
    if not vocabulary.types:
        if TYPES not in file.keys:
            yield finding(
                file,
                TYPES,
                "no-token-types",
                "warning",
                "is missing, so control tokens cannot be distinguished from text",
                _CONVERT,
            )
        return
    wrong = [number for number, kind in enumerate(vocabulary.types) if kind not in TYPE_NAMES]
    if wrong:
        yield finding(
            file,
            TYPES,
            "token-type",
            "error",
            f"id {wrong[0]} is of type {vocabulary.types[wrong[0]]}, which does not"
            f" exist{_more(len(wrong) - 1)}",
            _CONVERT,
        )
    # A marker that is not CONTROL: whoever writes it in a prompt opens a turn of their own.
    open_ = [
        number
        for number, token in enumerate(vocabulary.tokens)
        if vocabulary.types[number] in (NORMAL, USER_DEFINED) and _MARKER.fullmatch(token)
    ]
    if open_:
        first = open_[0]
        kind = TYPE_NAMES[vocabulary.type(first)]
        yield finding(
            file,
            TYPES,
            "control-token",
            "warning",
            (
                f"id {first}, {_token(vocabulary.tokens[first])}, is {kind}, not"
                f" CONTROL{_more(len(open_) - 1)}, so either a user's text can contain this token,"
                " or a template cannot"
            ),
            _COMPARE,
        )


def _scores(vocabulary: _Vocabulary) -> Iterator[GgufFinding]:
    file = vocabulary.file
    stored = vocabulary.file.value(SCORES)
    if vocabulary.model not in (SPM, UGM):
        return
    if not isinstance(stored, Array):
        yield finding(
            file,
            SCORES,
            "no-scores",
            "error",
            f"is missing, but a {MODELS[vocabulary.model]} tokenizer needs it",
            _CONVERT,
        )
    elif stored.type == "float32":
        wrong = [
            number for number, score in enumerate(file.numbers(stored)) if not math.isfinite(score)
        ]
        if wrong:
            yield finding(
                file,
                SCORES,
                "score",
                "error",
                f"the score of id {wrong[0]} is not a finite number{_more(len(wrong) - 1)}",
                _CONVERT,
            )


def _merges(vocabulary: _Vocabulary) -> Iterator[GgufFinding]:
    file = vocabulary.file
    stored = vocabulary.file.value(MERGES)
    if vocabulary.model != BPE:
        return
    if not isinstance(stored, Array) or stored.type != "string" or not stored.count:
        yield finding(
            file,
            MERGES,
            "no-merges",
            "error",
            "contains no merges, so every text becomes single bytes",
            _CONVERT,
        )
        return
    seen: set[bytes] = set()
    for number, merge in enumerate(file.strings(stored)):
        left, space, right = merge.partition(b" ")
        if not (left and space and right) or b" " in right:
            yield finding(
                file,
                MERGES,
                "merge",
                "error",
                f"merge {number}, {_token(merge)}, must be two pieces separated by a space",
                _CONVERT,
            )
            return
        missing = next(
            (piece for piece in (left, right, left + right) if piece not in vocabulary.ids), None
        )
        if missing is not None:
            yield finding(
                file,
                MERGES,
                "merge",
                "error",
                f"merge {number}, {_token(merge)}, names {_token(missing)}, which is not a token",
                _CONVERT,
            )
            return
        if merge in seen:
            yield finding(
                file,
                MERGES,
                "duplicate-merge",
                "warning",
                f"merge {number}, {_token(merge)}, is listed twice; engines use either the first"
                " or the last",
                _CONVERT,
            )
            return
        seen.add(merge)


def _special(vocabulary: _Vocabulary) -> Iterator[GgufFinding]:
    """Ids with a name: inside the vocabulary, of the type they have to be, and there where a flag
    needs them.
    """
    file = vocabulary.file
    count = len(vocabulary.tokens)
    named: dict[str, int] = {}
    for key in file.keys.values():
        match = _ID.fullmatch(key.name)
        if match is None or not isinstance(key.value, int):
            continue
        if not 0 <= key.value < count:
            yield finding(
                file,
                key.name,
                "token-id",
                "error",
                f"is {key.value}, but there are only {count} tokens",
                _CONVERT,
            )
            continue
        named[match[1]] = key.value
        kind = vocabulary.type(key.value)
        if (
            match[1] in ("bos", "eos", "eot", "eom", "padding")
            and vocabulary.types
            and kind in (NORMAL, BYTE)
        ):
            shown = _token(vocabulary.tokens[key.value])
            yield finding(
                file,
                key.name,
                "control-token",
                "warning",
                (
                    f"is {key.value}, {shown}, of type {TYPE_NAMES[kind]}, not CONTROL, so engines"
                    " recognize it in a user's text"
                ),
                _COMPARE,
            )
    pre = file.value(PRE)
    add_bos = file.value("tokenizer.ggml.add_bos_token")
    if add_bos is None and isinstance(pre, bytes):
        add_bos = pre.decode(errors="replace") in ADD_BOS and vocabulary.model == BPE
    for flag, wanted, name in (
        ("tokenizer.ggml.add_bos_token", add_bos, "bos"),
        ("tokenizer.ggml.add_eos_token", file.value("tokenizer.ggml.add_eos_token"), "eos"),
    ):
        if wanted is True and name not in named:
            yield finding(
                file,
                flag,
                "token-id",
                "error",
                (
                    f"requests a token that has no id, because tokenizer.ggml.{name}_token_id is"
                    " missing or out of range"
                ),
                _CONVERT,
            )
    if "eos" not in named and "eot" not in named:
        yield finding(
            file,
            "tokenizer.ggml.eos_token_id",
            "token-id",
            "warning",
            "is missing, so engines do not know when to stop",
            _CONVERT,
        )
    template = file.value(TEMPLATE)
    if add_bos is True and "bos" in named and isinstance(template, bytes):
        bos = vocabulary.tokens[named["bos"]]
        head = template.lstrip()
        if head.startswith(bos) or re.match(rb"\{\{-?\s*bos_token", head):
            yield finding(
                file,
                TEMPLATE,
                "bos-twice",
                "warning",
                (
                    f"begins with {_token(bos)}, and add_bos_token also adds it, so the prompt may"
                    " begin with two"
                ),
                "check the ids of a rendered chat",
            )


def _bytes(vocabulary: _Vocabulary) -> Iterator[GgufFinding]:
    """Bytes without a token, and the text that cannot be encoded for want of them.

    An error where a character that people write is lost; a warning where only code points are that
    nobody sees.
    """
    if vocabulary.model == BPE:
        wanted = {letter.encode(): byte for letter, byte in BYTE_LEVEL.items()}
        whole: set[int] = set()
        yield from _letters(vocabulary, wanted)
    elif vocabulary.model in _FALLING_BACK:
        wanted = {b"<0x%02X>" % byte: byte for byte in range(256)}
        if not any(token in vocabulary.ids for token in wanted):
            yield _about_tokens(
                vocabulary,
                "missing-byte",
                "warning",
                (
                    "contains no tokens for single bytes, so text that has no token becomes the"
                    " unknown token"
                ),
            )
            return
        there = [vocabulary.ids[token] for token in wanted if token in vocabulary.ids]
        untyped = [
            number for number in there if vocabulary.types and vocabulary.type(number) != BYTE
        ]
        if untyped:
            kind = TYPE_NAMES.get(vocabulary.type(untyped[0]), "without a type")
            shown = f"id {untyped[0]}, {_token(vocabulary.tokens[untyped[0]])}"
            yield finding(
                vocabulary.file,
                TYPES,
                "byte-token",
                "error",
                f"{shown}, is {kind}, not BYTE{_more(len(untyped) - 1)}",
                _CONVERT,
            )
        typed = [number for number, kind in enumerate(vocabulary.types) if kind == BYTE]
        if odd := [number for number in typed if vocabulary.tokens[number] not in wanted]:
            shown = f"id {odd[0]}, {_token(vocabulary.tokens[odd[0]])}"
            yield finding(
                vocabulary.file,
                TYPES,
                "byte-token",
                "error",
                f"{shown}, is BYTE, but its text is not a byte such as <0x41>{_more(len(odd) - 1)}",
                _CONVERT,
            )
        # Bytes are asked for only where a character has no token of its own.
        whole = set(_characters(vocabulary))
    else:
        return
    missing = [byte for token, byte in wanted.items() if token not in vocabulary.ids]
    if not missing:
        return
    what = lost(missing, whole=whole)
    severity: Severity = "note"
    if what.ranges:
        severity = "error" if what.common else "warning"
    yield _about_tokens(
        vocabulary,
        "missing-byte",
        severity,
        f"no token covers {bytes_in_words(missing)}; {what.words}",
    )


def _letters(vocabulary: _Vocabulary, wanted: Collection[bytes]) -> Iterator[GgufFinding]:
    """Single bytes of byte-level BPE that engines do not write out as text."""
    there = [vocabulary.ids[token] for token in wanted if token in vocabulary.ids]
    severities: dict[Severity, tuple[int, ...]] = {
        "error": (UNKNOWN, UNUSED, BYTE),
        "warning": (CONTROL,),
    }
    for severity, kinds in severities.items():
        odd = [number for number in there if vocabulary.type(number) in kinds]
        if odd:
            shown = f"id {odd[0]}, {_token(vocabulary.tokens[odd[0]])}"
            message = (
                f"{shown}, is {TYPE_NAMES[vocabulary.type(odd[0])]} , not"
                f" NORMAL{_more(len(odd) - 1)}"
            )
            message += "; engines omit it from their output"
            yield finding(vocabulary.file, TYPES, "byte-token", severity, message, _COMPARE)


def _characters(vocabulary: _Vocabulary) -> Iterator[int]:
    """Code points with a token of their own in a SentencePiece vocabulary, where "▁" stands for a
    space.
    """
    for number, token in enumerate(vocabulary.tokens):
        if (
            len(token) > 4
            or vocabulary.type(number) not in (NORMAL, USER_DEFINED)
            or not is_text(token)
        ):
            continue
        character = token.decode()
        if len(character) == 1:
            yield ord(" ") if character == "▁" else ord(character)


def _about_tokens(
    vocabulary: _Vocabulary, code: str, severity: Severity, message: str
) -> GgufFinding:
    remedy = "" if severity == "note" else _CONVERT
    return finding(vocabulary.file, TOKENS, code, severity, message, remedy)


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def _token(content: bytes) -> str:
    return quoted(content.decode(errors="backslashreplace"))
