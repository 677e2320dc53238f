"""Protobuf's wire format, read within bounds: every length is checked before it is used, and nothing is guessed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from harness.tokenizer.problem import Unreadable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


class Message:
    """A message inside a file.

    Attributes:
        content: of the whole file.
        start, stop: bytes of it that are this message.
    """

    def __init__(self, content: bytes, *, path: str, start: int = 0, stop: int | None = None) -> None:
        self.content, self.path = content, path
        self.start, self.stop = start, len(content) if stop is None else stop

    def fields(self) -> Iterator[tuple[int, int, int, int]]:
        """Number, wire type and place of each field, in the file's order.

        The place is its first byte and the one behind its last; of a varint it is the number itself, twice.

        Raises:
            Unreadable: with the byte of the file at which it is wrong.
        """
        at, content, stop = self.start, self.content, self.stop
        while at < stop:
            begins = at
            tag, at = self._varint(at)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise self._wrong(begins, f"a field has the number {number}")
            if wire == VARINT:
                value, at = self._varint(at)
                yield number, wire, value, value
                continue
            if wire == BYTES:
                length, at = self._varint(at)
            elif wire in _FIXED:
                length = _FIXED[wire]
            else:
                raise self._wrong(begins, f"field {number} has the wire type {wire}, which no such file has")
            if length > stop - at:
                raise self._wrong(begins, f"field {number} needs {length} bytes, and {stop - at} are left")
            yield number, wire, at, at + length
            at += length
        del content

    def inside(self, start: int, stop: int) -> Message:
        """A message that is a field of this one."""
        return Message(self.content, path=self.path, start=start, stop=stop)

    def float(self, start: int) -> float:
        """A float of four bytes."""
        return float(struct.unpack_from("<f", self.content, start)[0])

    def _varint(self, at: int) -> tuple[int, int]:
        begins, value, shift, content, stop = at, 0, 0, self.content, self.stop
        while at < stop and shift < 70:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value, at
            shift += 7
        raise self._wrong(begins, "a number has no end")

    def _wrong(self, at: int, what: str) -> Unreadable:
        return Unreadable(f"{self.path}: is not a SentencePiece model, or a damaged one: {what} (at byte {at})")


def signed(value: int) -> int:
    """A varint as the 32-bit number that it was: negative ones are written as 64 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
