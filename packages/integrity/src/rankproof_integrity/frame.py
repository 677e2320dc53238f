"""Frame: what lies on a wire. A header of 64 bytes in network order, then the payload.

    0  magic RI, kind, flags        length of the payload
    8  sequence                     number of this frame among those that are in order; of the
                                    others see Kind
   16  epoch                        how often the sender had begun
   24  toward                       the epoch of the receiver, as the sender knows it; 0 while it
                                    does not
   32  acknowledged                 how many of the receiver's frames arrived in order
   40  taken                        how many of them the application was given
   48  digest of the payload        xxh3 of 64 bits
   56  check                        the same of the 56 bytes before

The header has a digest of its own because a length that changed would have the receiver wait for
bytes that nobody sends; and since that digest covers the payload's, header and payload hold each
other.

The payloads of a HELLO and of a FAIL are here too: what a node says of itself at the begin of a
connection, and why the other end refuses to talk to it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

from .digest import digest, digest_of
from .records import NodeId

_FIELDS = struct.Struct("!2sBBIQQQQQQ")
_CHECK = struct.Struct("!Q")
_ALL = struct.Struct("!2sBBIQQQQQQQ")
SIZE = _FIELDS.size + _CHECK.size
COST = 512
"""Bytes that a frame counts against the window beside its payload: what holds it takes about as
many.
"""
MAGIC = b"RI"
# A flag means something in frames of one kind alone.
MORE = 1
"""Of DATA: the message goes on in the next frame."""
HEAD = 2
"""Of DATA: the first frame of a message, which says what the message is: see `envelope`."""
LARGEST = 2**20
"""Payload bytes of one frame: a receiver makes room for no more before they came, and after a
broken connection a message goes on at the frame that is missing.
"""
UNHEARD = 1
"""Of a HELLO: its sender waits for one."""
ASKS = 1
"""Of an ACK: its sender waits for one, up to the frame `sequence`."""
ANSWERS = 2
"""Of an ACK: it is the one that was waited for."""
REFUSED = 1
"""Of a FAIL: it answers a greeting."""
ANOTHER = 2
"""Of a FAIL: the greeting was to another node."""
BEFORE = 4
"""Of a FAIL: the greeting was of an epoch before one that is known."""


class Kind(IntEnum):
    """Kind of a frame. DATA and BYE have a place in the order and are sent until they are
    acknowledged.

    * HELLO: the first on every connection; `sequence` is how many bytes the sender of it has room
      for. With the flag UNHEARD it is answered by another: the answer that was given before did not
      come, or not unchanged.
    * ACK: nothing but its header; a sign of life too.
    * FAIL: the sender of it gave up, or refuses a greeting; the payload says why.
    * NONCE, PROOF: before the first HELLO, where the nodes share a key: see `proof`.
    """

    HELLO = 1
    DATA = 2
    ACK = 3
    BYE = 4
    FAIL = 5
    NONCE = 6
    PROOF = 7


_KINDS = {int(kind): kind for kind in Kind}


class Header(NamedTuple):
    """Header whose digest held."""

    kind: Kind
    flags: int
    length: int
    sequence: int
    epoch: int
    toward: int
    acknowledged: int
    taken: int
    digest: int


# Nine arguments: the fields of a header.
def packed(
    *,
    kind: Kind,
    epoch: int,
    toward: int,
    sequence: int = 0,
    acknowledged: int = 0,
    taken: int = 0,
    flags: int = 0,
    length: int = 0,
    payload_digest: int | None = None,
) -> bytes:
    """Return a header; without a digest it is that of no bytes."""
    if payload_digest is None:
        payload_digest = _EMPTY
    fields = _FIELDS.pack(
        MAGIC, kind, flags, length, sequence, epoch, toward, acknowledged, taken, payload_digest
    )
    return fields + _CHECK.pack(digest_of(fields))


def parsed(data: Any) -> Header | None:
    """Return the header in the first 64 bytes of a buffer; None where it is not one, or has
    changed.
    """
    magic, kind, flags, length, sequence, epoch, toward, acknowledged, taken, payload, check = (
        _ALL.unpack_from(data)
    )
    if digest_of(memoryview(data)[: _FIELDS.size]) != check or magic != MAGIC or kind not in _KINDS:
        return None
    # Not Header(…), which is one function of Python more: after a decode step each is read from
    # memory anew.
    fields = _KINDS[kind], flags, length, sequence, epoch, toward, acknowledged, taken, payload
    return tuple.__new__(Header, fields)


def said(header: Header) -> bytes:
    """Return the fields of a header that a greeting's seal covers: all but its digests."""
    return _FIELDS.pack(MAGIC, *header[:8], 0)


def holds(header: Header, payload: Any) -> bool:
    """Return whether the payload is the one that the header was made for."""
    return header.length == len(payload) and digest_of(payload) == header.digest


_EMPTY = digest_of(b"")
DIGITS = 20
"""Digits of the longest number that a greeting is believed: more would be a long time to read."""
SHOWN = 80
"""Characters that are shown of a name that somebody else said."""


class Greeting(NamedTuple):
    """Payload of a HELLO: a line each.

    Attributes:
        node, peer: who says it, and to whom.
        message: bytes of the longest message that it takes; None where it did not say.
    """

    node: NodeId
    peer: NodeId
    message: int | None

    def packed(self) -> bytes:
        return f"{self.node}\n{self.peer}\n{self.message}".encode()


def greeting_of(payload: Any) -> Greeting:
    """Return what a HELLO says, whatever it does."""
    node, peer, message, *_ = [*bytes(payload).decode(errors="replace").split("\n"), "", "", ""]
    whole = message.isascii() and message.isdecimal() and len(message) < DIGITS
    return Greeting(node, peer, int(message) if whole else None)


class GreetingRefusal(NamedTuple):
    """Why nobody here talks to whoever greeted.

    Attributes:
        words: said to him, and to who waits here for somebody.
        flags: of the frame.
    """

    words: str
    flags: int = REFUSED

    def packed(self, *, toward: int) -> tuple[bytes, bytes]:
        """Header and payload of the frame that says so to a start of somebody."""
        payload = self.words.encode()
        header = packed(
            kind=Kind.FAIL,
            flags=self.flags,
            length=len(payload),
            epoch=0,
            toward=toward,
            payload_digest=digest(payload),
        )
        return header, payload


def begun_before(node: NodeId, epoch: int, peer: NodeId, met: int) -> str:
    """Return that a node begins under an epoch before one that its peer knows, in words."""
    return (
        f"{node} started with epoch {epoch}, but {peer} already knows it with epoch {met}. Each"
        " start needs a greater epoch than all earlier starts, such as next_epoch(store,"
        f" {node!r}), and only one process at a time may use a name"
    )


def too_long(node: NodeId, peer: NodeId, *, ours: int, both: int, size: int, message: int) -> str:
    """Return that a message is longer than one of both takes, in words."""
    whose = f"{node} may send" if both == ours else f"{peer} accepts ({node}: {ours})"
    return (
        f"message {message} of {size} bytes for {peer} is longer than {both}, the maximum that"
        f" {whose}; send it in parts, or pass TransportLimits(message={size}) or more on both"
        " sides"
    )
