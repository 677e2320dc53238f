"""What editors, transports and git do to text, undone: so that a refusal can say how the file
became bad.

A repair is only ever used to explain. A file that would be good after a repair is still refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator

from harness.forms.digest import sha256

LARGEST = 2**20  # an explanation is not worth more time than this takes

# Bytes that cp1252 leaves undefined are passed through as Latin-1 by browsers and most tools.
_CP1252 = {ord(c): b for b in range(0x80, 0xA0) for c in bytes([b]).decode("cp1252", "ignore")}


def _without_carriage_returns(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _without_byte_order_mark(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf")


def _from_utf16(data: bytes) -> bytes:
    return data.decode("utf-16").encode() if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data


def _from_cp1252(data: bytes) -> bytes:
    return data.decode().translate(_CP1252).encode("latin-1")


def _from_latin1(data: bytes) -> bytes:
    return data.decode().encode("latin-1")


def _with_final_newline(data: bytes) -> bytes:
    return data.rstrip(b"\n") + b"\n"


def _composed(data: bytes) -> bytes:
    return unicodedata.normalize("NFC", data.decode()).encode()


REPAIRS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("line endings were turned to CRLF", _without_carriage_returns),
    ("a byte-order mark was added", _without_byte_order_mark),
    ("the text was saved as UTF-16", _from_utf16),
    ("UTF-8 was read as if it were Latin-1 (mojibake)", _from_latin1),
    ("UTF-8 was read as if it were cp1252 (mojibake)", _from_cp1252),
    ("newlines at the end were removed or added", _with_final_newline),
    ("accents were taken apart (Unicode NFD)", _composed),
)


def repaired(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What `data` may have been before one or two of these things happened to it, each with what
    that was.
    """
    if len(data) > LARGEST:
        return
    seen = {data}
    once: list[bytes] = []
    for name, repair in REPAIRS:
        once.append(_try(repair, data))
        if once[-1] not in seen:
            seen.add(once[-1])
            yield name, once[-1]
    for (outer, _), middle in zip(REPAIRS, once, strict=True):
        for inner, repair in REPAIRS if middle != data else ():
            result = _try(repair, middle)
            if result not in seen:
                seen.add(result)
                yield f"{outer}, and {inner}", result


def repair_of(content: bytes, digest: str) -> str:
    """What would give a file its digest back, as the end of a sentence.

    Empty where nothing known does.
    """
    for what, candidate in repaired(content):
        if sha256(candidate) == digest:
            return f"; the file is good once this is undone: {what}"
    return ""


def first_difference(stated: bytes, rendered: bytes, *, of: str = "the report") -> str:
    """The first line in which a text differs from what its record renders to, the place in it
    included.
    """
    texts = stated.split(b"\n"), rendered.split(b"\n")
    number = next(
        i for i in range(max(map(len, texts)) + 1) if texts[0][i : i + 1] != texts[1][i : i + 1]
    )
    lines = [
        text[number].decode(errors="backslashreplace") if number < len(text) else None
        for text in texts
    ]
    pairs = zip(*(line or "" for line in lines), strict=False)
    start = max(0, next((i for i, (one, other) in enumerate(pairs) if one != other), 0) - 40)
    said, record = (
        "nothing" if line is None else repr(line[start : start + 120]) for line in lines
    )
    return f"line {number + 1}: {of} says {said}, the record renders to {record}"


def _try(repair: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        return repair(data)
    except UnicodeError:
        return data
