"""Reader of frames: bytes in, frames out. No clock, no socket.

A payload is received into a buffer of its own; only what came along with a header, at most 32 KiB,
is copied once, and after a long payload a header is read alone.
"""

from __future__ import annotations

from typing import Any

from . import frame
from .digest import Chunks, digest_of
from .frame import Header

SCRATCH = 32 * 1024
CHUNK = 256 * 1024
"""Bytes that are read, and digested while they lie in the processor's cache, before the next are
read.
"""
Received = tuple[Header, Any]
"""Header and payload of a frame whose digests hold."""


class Torn(Exception):
    """Raised where a connection is of no more use."""


class Damaged(Torn):
    """Raised where a frame came damaged: a connection that changed one byte may change others."""


class FrameReader:
    """Takes the frames of one connection from its bytes, in order.

    Put bytes into `room()`, tell `came` how many, and ask for `next_frame` until it gives none.

    Args:
        longest: payload bytes of a frame, at most: room is made for as many before any of them
            came.
    """

    def __init__(self, *, longest: int) -> None:
        self._longest = longest
        self._scratch = memoryview(bytearray(min(SCRATCH, longest + frame.SIZE)))
        self._begin = self._end = 0
        self._header: Header | None = None
        self._payload = memoryview(b"")
        self._filled = 0
        self._chunks: Chunks | None = None
        self._ahead = SCRATCH

    def allow(self, longest: int) -> None:
        """Take longer frames from now on, between two of them."""
        kept = self._scratch[self._begin : self._end]
        self._longest = longest
        self._scratch = memoryview(bytearray(min(SCRATCH, longest + frame.SIZE)))
        self._scratch[: len(kept)] = kept
        self._begin = 0
        self._end = len(kept)

    def room(self) -> memoryview:
        """Return where the next bytes go, at least one."""
        if self._header is not None:
            until = min(self._header.length, self._filled + CHUNK)
            return self._payload[self._filled : until]
        if self._begin:
            kept = self._end - self._begin
            self._scratch[:kept] = self._scratch[self._begin : self._end]
            self._begin = 0
            self._end = kept
        return self._scratch[self._end : max(self._ahead, self._end + 1)]

    def came(self, size: int) -> None:
        """Note that so many bytes were put into the room."""
        if self._header is None:
            self._end += size
            return
        if self._chunks is not None:
            self._chunks.add(self._payload[self._filled : self._filled + size])
        self._filled += size

    def next_frame(self) -> Received | None:
        """Return the next frame that came whole; None where there is none yet.

        Raises:
            Torn: what came is no frame, or a longer one than is allowed, or a damaged one.
        """
        header = self._header
        if header is None:
            if self._end - self._begin < frame.SIZE:
                return None
            header = self._next_header()
        if self._filled < header.length:
            self._header = header
            return None
        chunks = self._chunks
        payload = self._payload
        self._header = self._chunks = None
        self._ahead = SCRATCH if chunks is None else frame.SIZE
        if (digest_of(payload) if chunks is None else chunks.digest()) != header.digest:
            raise Damaged(f"frame {header.sequence} arrived damaged")
        return header, payload

    def _next_header(self) -> Header:
        header = frame.parsed(self._scratch[self._begin : self._begin + frame.SIZE])
        if header is None:
            raise Damaged("a header arrived damaged, so the start of the next frame is unknown")
        if header.length > self._longest:
            raise Torn(
                f"a frame of {header.length} bytes was announced, but at most {self._longest} bytes"
                " are allowed"
            )
        begin = self._begin + frame.SIZE
        self._filled = min(header.length, self._end - begin)
        self._begin = begin + self._filled
        here = self._scratch[begin : self._begin]
        if self._filled == header.length:
            self._payload = memoryview(bytearray(here))
            return header
        try:
            self._payload = memoryview(bytearray(header.length))
        # It is sent again on the next connection, when there may be some.
        except MemoryError as error:
            raise Torn(
                f"there is not enough memory for a frame of {header.length} bytes"
            ) from error
        self._payload[: self._filled] = here
        if header.length > CHUNK:
            self._chunks = Chunks(here)
        return header

    @property
    def holds_more(self) -> bool:
        """Return whether bytes came that `next_frame` has not given yet, or not wholly."""
        return self._begin < self._end
