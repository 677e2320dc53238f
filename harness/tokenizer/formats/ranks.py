"""Vocabularies whose merges follow from ranks: `.tiktoken` and `tekken.json`.

They are read as far as they say.

A `.tiktoken` file holds bytes and ranks alone: neither how text is split nor a special token.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.text import quoted
from harness.tokenizer.formats.form import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Form,
    spelled,
    strings_part,
    types_part,
)
from harness.tokenizer.gguf.known import split_of_pattern
from harness.tokenizer.gguf.vocabulary import MOST_TOKENS
from harness.tokenizer.problem import Unreadable

# Bytes of a file; the largest in use has 20 million.
LARGEST = 64 << 20
# Bytes of a token.
LONGEST = 1 << 16
BY_RANKS = "by ranks"


def tiktoken_form(path: Path, content: bytes) -> Form:
    """The form of a `.tiktoken` file: a line for each token, base64 and rank.

    Raises:
        Unreadable: with the line.
    """
    ranks: dict[int, bytes] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        fields = line.split()
        if len(fields) != 2 or not fields[1].isdigit() or len(fields[1]) > 8:
            raise Unreadable(f"{path}: line {number} is not base64 and a rank")
        _keep(
            ranks,
            int(fields[1]),
            _bytes(fields[0], f"{path}: line {number}"),
            f"{path}: line {number}",
        )
    _whole(path, ranks)
    return _form("tiktoken", [ranks[rank] for rank in range(len(ranks))], special={}, split=None)


def tekken_form(path: Path, content: bytes) -> Form:
    """The form of a `tekken.json`.

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
        raise Unreadable(f"{path}: has no config and vocab: it is not a tekken.json")
    size = _number(config.get("default_vocab_size"))
    count = _number(config.get("default_num_special_tokens"))
    pattern = config.get("pattern")
    if not 0 < count < size or not isinstance(pattern, str):
        raise Unreadable(
            f"{path}: its config must give pattern, default_vocab_size and"
            " default_num_special_tokens"
        )
    ranks: dict[int, bytes] = {}
    for number, entry in enumerate(vocabulary):
        where = f"{path}: entry {number} of vocab"
        given, rank = (
            entry.get(name) if isinstance(entry, dict) else None for name in ("token_bytes", "rank")
        )
        if not isinstance(given, str) or _number(rank) < 0:
            raise Unreadable(f"{where} has no rank and token_bytes")
        _keep(ranks, _number(rank), _bytes(given.encode(errors="replace"), where), where)
    _whole(path, ranks)
    if len(ranks) < size - count:
        raise Unreadable(
            f"{path}: holds {len(ranks)} tokens, and default_vocab_size asks for {size - count}"
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
    """A number of tokens, or -1."""
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
        raise Unreadable(f"{where}: a token of {len(token)} bytes; it must have 1 to {LONGEST}")
    return token


def _keep(ranks: dict[int, bytes], rank: int, token: bytes, where: str) -> None:
    if rank in ranks:
        raise Unreadable(f"{where}: the rank {rank} is given twice")
    if rank >= MOST_TOKENS:
        raise Unreadable(f"{where}: the rank {rank} is past every model's embedding")
    ranks[rank] = token


def _whole(path: Path, ranks: dict[int, bytes]) -> None:
    if not ranks:
        raise Unreadable(f"{path}: holds no token")
    gap = next((rank for rank in range(len(ranks)) if rank not in ranks), None)
    if gap is not None:
        raise Unreadable(f"{path}: no token has the rank {gap}, and others have higher ones")
    by_token: dict[bytes, int] = {}
    for rank, token in ranks.items():
        if token in by_token:
            raise Unreadable(
                f"{path}: ranks {by_token[token]} and {rank} are the same bytes: text gets one of"
                " them only"
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
            raise Unreadable(f"{path}: a special token has no token_str and rank below {count}")
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
