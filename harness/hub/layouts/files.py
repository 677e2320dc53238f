"""Files of a tokenizer repository, and vocabularies made by rule for them.

Tokens and merges are the same on every machine, of any size, in well under a second.

A made-up vocabulary shows what a real one shows: which tokenizer was loaded, from which files, with
what ids. It is not trained, and no bytes of any published tokenizer are in it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.forms.strict_json import JSON

LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
WORDS = (
    "the", "and", "of", "to", "in", "is", "that", "for", "with", "as", "not", "are", "this",
    "be", "on", "by", "from", "at", "or", "an", "have", "was", "you", "it", "rank", "token",
    "model", "hello", "world", "hub", "cache", "commit", "user", "assistant", "system",
    "return", "import", "def", "class", "None", "True", "false", "self", "print", "lambda",
)  # fmt: skip
SIGNS = ("==", "//", "->", "::", "'s", "'t", "'ll", "'re", "n't", "...", "    ")
OTHERS = "éüß你好世界。日本語مرحبا🙂👩\u200d—…"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Byte-level BPE in GPT-2's alphabet: token to id, and merges by rank."""

    ids: dict[str, int]
    merges: list[tuple[str, str]]


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte."""
    plain = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    out = {byte: chr(byte) for byte in plain}
    for number, byte in enumerate(byte for byte in range(256) if byte not in out):
        out[byte] = chr(256 + number)
    return dict(sorted(out.items()))


def byte_level(size: int) -> Vocabulary:
    """Return a byte-level vocabulary of ``size`` tokens (at least 1500): bytes, then one token for
    each merge.
    """
    alphabet = byte_alphabet()
    ids = {char: number for number, char in enumerate(alphabet.values())}
    merges: list[tuple[str, str]] = []
    for left, right in _merges(lambda text: "".join(alphabet[byte] for byte in text.encode())):
        if len(ids) >= size:
            break
        if left + right not in ids:
            ids[left + right] = len(ids)
            merges.append((left, right))
    assert len(ids) == size, f"{size} tokens were requested, but the rule produces only {len(ids)}"
    return Vocabulary(ids, merges)


def piece_merges(size: int) -> list[tuple[str, str]]:
    """``size`` merges of SentencePiece's kind: over characters, with ``▁`` for the space."""
    out: dict[str, tuple[str, str]] = {}
    for left, right in _merges(lambda text: text.replace(" ", "▁"), whole=True):
        if len(out) >= size:
            break
        out.setdefault(left + right, (left, right))
    return list(out.values())


def _merges(write: Callable[[str], str], *, whole: bool = False) -> Iterator[tuple[str, str]]:
    """All merges of the rule, most important first.

    ``whole``: characters are single symbols, not bytes.
    """
    pairs = _shuffled([a + b for a in LETTERS for b in LETTERS], "pairs")
    for text in () if whole else OTHERS:
        yield from _chain(write(text))
    yield from ((pair[0], pair[1]) for pair in pairs[:200])
    for word in WORDS:
        yield from _chain(write(" ") + word)
        yield from _chain(word)
    yield from _where_patterns_differ(write, pairs, whole=whole)
    yield from ((pair[0], pair[1]) for pair in pairs)
    yield from ((write(" "), letter) for letter in LETTERS)
    yield from ((write(" ") + pair[0], pair[1]) for pair in pairs)
    rows = _shuffled(pairs, "rows")
    columns = _shuffled(pairs, "columns")
    for distance in range(len(rows)):
        for index, row in enumerate(rows):
            yield row, columns[(index + distance) % len(columns)]


def _where_patterns_differ(
    write: Callable[[str], str], pairs: list[str], *, whole: bool
) -> Iterator[tuple[str, str]]:
    """Yield what one pattern cuts apart and another leaves together: numbers, runs of signs,
    capitals inside a word.
    """
    for number in range(100):
        yield from _chain(f"{number:02d}")
    for text in SIGNS if whole else (*SIGNS, "\n\n"):
        yield from _chain(write(text))
    yield from ((lower, upper.upper()) for lower in LETTERS[:8] for upper in LETTERS)
    yield from ((pair[0].upper(), pair[1]) for pair in pairs[:200])


def _chain(text: str) -> Iterator[tuple[str, str]]:
    """Yield the merges that build a text from its left end."""
    for end in range(1, len(text)):
        yield text[:end], text[end]


def _shuffled(items: list[str], name: str) -> list[str]:
    """Items in an order that looks like none and is always the same."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{name}\0{item}".encode()).digest())


NORMAL = 1
UNKNOWN = 2
CONTROL = 3
BYTE = 6
BPE = 2


def llama_model(size: int) -> bytes:
    """Return a BPE model of ``size`` pieces laid out like Llama 2's: three specials, 256 bytes,
    merges, single characters.
    """
    pieces: list[tuple[str, float, int]] = [
        ("<unk>", 0.0, UNKNOWN),
        ("<s>", 0.0, CONTROL),
        ("</s>", 0.0, CONTROL),
    ]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    characters = ["▁", *sorted({chr(code) for code in range(0x21, 0x7F)} | set(OTHERS))]
    merged = [left + right for left, right in piece_merges(size - len(pieces) - len(characters))]
    pieces += [(text, -float(rank), NORMAL) for rank, text in enumerate([*merged, *characters])]
    assert len(pieces) == size
    trainer = b"".join(
        (
            _number(3, BPE),
            _number(4, size),
            _number(35, 1),  # byte_fallback
            _number(40, 0),  # unk_id
            _number(41, 1),  # bos_id
            _number(42, 2),  # eos_id
            _number(43, -1),  # pad_id
        )
    )
    normalizer = b"".join(
        (
            _bytes(1, b"identity"),
            _number(3, 1),  # add_dummy_prefix
            _number(4, 0),  # remove_extra_whitespaces
            _number(5, 1),  # escape_whitespaces
        )
    )
    return (
        b"".join(_bytes(1, _piece(*piece)) for piece in pieces)
        + _bytes(2, trainer)
        + _bytes(3, normalizer)
    )


def _piece(text: str, score: float, kind: int) -> bytes:
    return _bytes(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # protobuf writes negative numbers as 64-bit two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] +"
    " '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%"
    " endif %}"
)
GPT4_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN_PATTERN = GPT4_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def as_json(value: Any, *, indent: int | None = 2) -> bytes:
    """JSON as the ecosystem writes it: UTF-8, keys in the given order, a newline at the end."""
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode()


def added(text: str, number: int, *, special: bool = True) -> dict[str, JSON]:
    """Return an added token of tokenizer.json."""
    return {
        "id": number,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def numbered(texts: Sequence[str], *, first: int) -> dict[str, int]:
    """Ids for added tokens, from ``first``."""
    return {text: first + number for number, text in enumerate(texts)}


def byte_level_step(*, prefix: bool = False, regex: bool = False) -> dict[str, JSON]:
    """Return the ByteLevel step of a pre-tokenizer, post-processor or decoder."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": regex,
    }


def split_then_bytes(pattern: str) -> dict[str, JSON]:
    """Return a pre-tokenizer that splits by a pattern, then maps bytes."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, byte_level_step()]}


def begin_with(text: str, number: int) -> dict[str, JSON]:
    """Return a post-processor that puts one token before every text."""
    first = {"SpecialToken": {"id": text, "type_id": 0}}
    text_a = {"Sequence": {"id": "A", "type_id": 0}}
    text_b = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text_a],
        "pair": [first, text_a, {"SpecialToken": {"id": text, "type_id": 1}}, text_b],
        "special_tokens": {text: {"id": text, "ids": [number], "tokens": [text]}},
    }


# Each of them is a part of the file that a layout may have otherwise.
def tokenizer_json(
    vocabulary: Vocabulary,
    *,
    special: Mapping[str, int],
    plain: Mapping[str, int] | None = None,
    pre_tokenizer: Mapping[str, JSON] | None = None,
    post_processor: Mapping[str, JSON] | None = None,
    normalizer: Mapping[str, JSON] | None = None,
    ignore_merges: bool = False,
) -> bytes:
    """Return a tokenizer.json of the BPE kind.

    Args:
        vocabulary: tokens and merges.
        special: special added tokens and their ids.
        plain: other added tokens and their ids.
        pre_tokenizer: its JSON; default: GPT-4's pattern, then bytes.
        post_processor: its JSON; default: ByteLevel.
        normalizer: its JSON, or None.
        ignore_merges: as Llama 3 sets it.
    """
    tokens = [added(text, number) for text, number in special.items()]
    tokens += [added(text, number, special=False) for text, number in (plain or {}).items()]
    head = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(tokens, key=lambda token: int(token["id"])),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer or split_then_bytes(GPT4_PATTERN),
        "post_processor": post_processor or byte_level_step(),
        "decoder": byte_level_step(prefix=True, regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": vocabulary.ids,
            "merges": vocabulary.merges,
        },
    }
    return as_json(head, indent=None)


def merges_txt(vocabulary: Vocabulary) -> bytes:
    """GPT-2's merges.txt."""
    return (
        "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in vocabulary.merges)
    ).encode()


def decoder_entries(special: Mapping[str, int]) -> dict[str, JSON]:
    """``added_tokens_decoder`` of tokenizer_config.json."""
    entries = (added(text, number) for text, number in special.items())
    return {str(entry.pop("id")): entry for entry in entries}
