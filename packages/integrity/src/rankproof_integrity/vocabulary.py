"""The bytes of each id of any tokenizer, as its own decoder spells them.

The decoder is asked, by texts that have one answer: an id alone, and twice between two letters. An
id that spells the same each time is known. Where that is U+FFFD, the id is a part of a character:
its token says which bytes it could be (`<0xE6>`, or byte-level BPE's letters), and they are believed
only if the decoder makes the characters of them that UTF-8 does.

What spells differently by its neighbours (a word piece, a `▁` that is stripped from the begin of a
text) has no bytes alone, and that is the answer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

from .problem import Misused
from .spelling import REPLACEMENT

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BEGINNINGS = ("", "\xc3", "\xe3", "\xf1")
"""First bytes of a character, by how many bytes follow: with each, any such bytes are one."""
_ENDS = (
    "",
    "\x80",
    "\x90",
    "\xa0",
    "\x80\x80",
    "\x90\x80",
    "\xa0\x80",
    "\x80\x80\x80",
    "\x90\x80\x80",
)


class Spells(TypedDict, total=False):
    """What `StreamValidator` and `EncodingValidator` take, one of both.

    Attributes:
        token_bytes: the bytes of an id, where a text is its ids' bytes one after the other.
        decode: the text of ids.
    """

    token_bytes: Callable[[int], bytes]
    decode: Callable[[list[int]], str]


class _Asked(NamedTuple):
    """What a tokenizer answers: how many ids it may have, the token of one, the texts of many."""

    size: int
    token: Callable[[int], str | None]
    texts: Callable[[list[list[int]]], Sequence[str]]


def token_bytes(tokenizer: Any, *, skip_special_tokens: bool = True) -> list[bytes | None]:
    """Return the bytes of each id; None for one whose bytes depend on its neighbours, and for a
    hole in the vocabulary.

    Where no id of a valid text is None, their bytes one after the other are the text that the
    tokenizer decodes. It takes some seconds for 100,000 ids: do it once for a tokenizer.

    Args:
        tokenizer: of `tokenizers`, transformers, sentencepiece or tiktoken, or whatever has the
            methods of one.
        skip_special_tokens: as for the tokenizer's `decode`: whether special tokens spell nothing.

    Raises:
        Misused: it has none of these methods.
    """
    if hasattr(tokenizer, "decode_single_token_bytes"):
        return _of_tiktoken(tokenizer, skip_special_tokens)
    asked = _asked(tokenizer, skip_special_tokens)
    ids = [number for number in range(asked.size) if asked.token(number) is not None]
    known: list[bytes | None] = [None] * asked.size
    anchor, letter = _anchor(asked, ids)
    if anchor is None:
        return known
    alone = asked.texts([[number] for number in ids])
    # Twice, for decoders that leave a repetition out.
    between = asked.texts([[anchor, number, number, anchor] for number in ids])
    parts = []
    for number, text, whole in zip(ids, alone, between, strict=True):
        if REPLACEMENT in text:
            parts.append(number)
        elif whole == letter + text + text + letter:
            known[number] = text.encode()
    _parts_of_characters(asked, parts, known, (anchor, letter))
    return known


def spells(tokenizer: Any, *, skip_special_tokens: bool = True) -> Spells:
    """Return how the ids of this tokenizer are compared with a text: by their bytes where those say
    all, and else by `decode`.

        StreamValidator(tokens=TokenValidator.of(tokenizer), **spells(tokenizer))

    Raises:
        Misused: as `token_bytes`.
    """
    known = token_bytes(tokenizer, skip_special_tokens=skip_special_tokens)
    if hasattr(tokenizer, "decode_single_token_bytes"):
        return {"token_bytes": _spell(known)}
    asked = _asked(tokenizer, skip_special_tokens)
    holes = any(known[at] is None and asked.token(at) is not None for at in range(asked.size))
    # A decoder with byte fallback makes U+FFFD of a whole run of bytes where one of them is wrong.
    ids = {spelled: at for at, spelled in enumerate(known)}
    run = [ids[byte] for byte in (b"\xc3", b"\xa9", b"\xe3") if byte in ids]
    if not holes and len(run) == 3 and asked.texts([run])[0] == f"\u00e9{REPLACEMENT}":
        return {"token_bytes": _spell(known)}
    return {"decode": lambda ids: asked.texts([ids])[0]}


def _spell(known: Sequence[bytes | None]) -> Callable[[int], bytes]:
    def spell(token_id: int) -> bytes:
        spelled = known[token_id] if token_id >= 0 else None
        if spelled is None:
            raise LookupError(f"the vocabulary has no bytes for id {token_id}")
        return spelled

    return spell


def _asked(tokenizer: Any, skip: bool) -> _Asked:
    # A fast tokenizer of transformers has one of `tokenizers`, which changes no space afterwards.
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(inner, "id_to_token"):
        size = 1 + max(inner.get_vocab(with_added_tokens=True).values(), default=-1)
        texts = functools.partial(inner.decode_batch, skip_special_tokens=skip)
        return _Asked(size, inner.id_to_token, texts)
    if hasattr(tokenizer, "id_to_piece"):
        size = tokenizer.get_piece_size()
        return _Asked(size, tokenizer.id_to_piece, lambda many: [*map(tokenizer.decode, many)])
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        tokens = {number: token for token, number in tokenizer.get_vocab().items()}
        decode = functools.partial(
            tokenizer.decode, skip_special_tokens=skip, clean_up_tokenization_spaces=False
        )
        size = 1 + max(tokens, default=-1)
        return _Asked(size, tokens.get, lambda many: [decode(ids) for ids in many])
    kind = f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
    raise Misused(
        f"{kind} cannot be asked for the bytes of its ids; pass a tokenizer of tokenizers,"
        " transformers, sentencepiece or tiktoken"
    )


def _of_tiktoken(tokenizer: Any, skip: bool) -> list[bytes | None]:
    special = {tokenizer.encode_single_token(token) for token in tokenizer.special_tokens_set}
    known: list[bytes | None] = []
    for number in range(tokenizer.n_vocab):
        try:
            spelled = tokenizer.decode_single_token_bytes(number)
        except KeyError:
            spelled = None
        known.append(b"" if skip and number in special else spelled)
    return known


def _anchor(asked: _Asked, ids: list[int]) -> tuple[int | None, str]:
    """Return an id that is a letter wherever it stands, and that letter; None where no id is."""
    short = [at for at in ids if len(asked.token(at) or "") == 1]
    for number, one, three in zip(
        short,
        asked.texts([[at] for at in short]),
        asked.texts([[at] * 3 for at in short]),
        strict=True,
    ):
        if one.isascii() and one.isalnum() and three == one * 3:
            return number, one
    return None, ""


def _parts_of_characters(
    asked: _Asked, parts: list[int], known: list[bytes | None], anchor: tuple[int, str]
) -> None:
    """Fill in the bytes of ids that are U+FFFD alone, where the decoder confirms them."""
    letters = _byte_letters()
    possible: dict[int, bytes] = {}
    for number in parts:
        token = asked.token(number) or ""
        byte = _BYTE.fullmatch(token)
        if byte is not None:
            possible[number] = bytes.fromhex(byte[1])
        elif REPLACEMENT in token:
            possible[number] = token.encode()  # the character itself
        elif all(letter in letters for letter in token):
            possible[number] = bytes(letters[letter] for letter in token)
    singles = {spelled: number for number, spelled in possible.items() if len(spelled) == 1}
    numbers = []
    questions = []
    answers = []
    at, letter = anchor
    for number, spelled in possible.items():
        question, whole = _completed(number, spelled, singles)
        numbers.append(number)
        questions.append([at, *question, at])
        answers.append(letter + whole.decode(errors="replace") + letter)
    for number, text, answer in zip(numbers, asked.texts(questions), answers, strict=True):
        if text == answer:
            known[number] = possible[number]


def _completed(number: int, spelled: bytes, singles: dict[bytes, int]) -> tuple[list[int], bytes]:
    """Return ids with this one among them that are whole characters, and their bytes; or the id
    alone where no bytes around it make it one, as 0xFF.
    """
    follow = len(spelled) - len(spelled.lstrip(bytes(range(0x80, 0xC0))))
    if follow < len(_BEGINNINGS):
        begin = _BEGINNINGS[follow].encode("latin-1")
        for tail in _ENDS:
            end = tail.encode("latin-1")
            around = [*_each(begin), *_each(end)]
            whole = begin + spelled + end
            if _is_utf8(whole) and all(byte in singles for byte in around):
                before = [singles[byte] for byte in _each(begin)]
                return [*before, number, *(singles[byte] for byte in _each(end))], whole
    return [number], spelled


def _each(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@functools.cache
def _byte_letters() -> dict[str, int]:
    """Return the byte that each letter of byte-level BPE stands for, as `tokenizers` writes them."""
    try:
        from tokenizers import pre_tokenizers
    except ModuleNotFoundError:
        return {}
    # Every byte that a text in UTF-8 can have.
    points = [*range(0x80), *range(0x80, 0xC0), *range(0xC0, 0xD800, 0x40)]
    points += range(0xE000, 0x110000, 0x1000)
    text = "".join(map(chr, points))
    written = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
        text
    )
    letters = dict(zip("".join(piece for piece, _ in written), text.encode(), strict=True))
    # No text has the other thirteen. GPT-2 writes a printable byte as the Latin-1 letter it is.
    rest = set(pre_tokenizers.ByteLevel.alphabet()) - letters.keys()
    return letters | {letter: ord(letter) for letter in rest if ord(letter) < 0x100}
