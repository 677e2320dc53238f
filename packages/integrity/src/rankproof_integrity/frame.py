"""A frame: what lies on a wire. A header of 64 bytes in network order, then the payload.

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
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

from .digest import digest_of

_FIELDS = struct.Struct("!2sBBIQQQQQQ")
_CHECK = struct.Struct("!Q")
_ALL = struct.Struct("!2sBBIQQQQQQQ")
SIZE = _FIELDS.size + _CHECK.size
MAGIC = b"RI"
MORE = 1
"""Flag: the message goes on in the next frame."""
UNHEARD = 1
"""Flag of a HELLO: its sender waits for one."""
ASKS = 1
ANSWERS = 2
"""Flags of an ACK: its sender waits for one, up to the frame `sequence`.

It is the one that was waited for.
"""
REFUSED = 1
ANOTHER = 2
BEFORE = 4
"""Flags of a FAIL: it answers a greeting; that was to another node.

Of an epoch before one that is known.
"""


class Kind(IntEnum):
    """What a frame is. DATA and BYE have a place in the order and are sent until they are
    acknowledged.

    * HELLO: the first on every connection; `sequence` is how many bytes the sender of it has room
      for. With the flag UNHEARD it is answered by another: the answer that was given before did not
      come, or not unchanged.
    * ACK: nothing but its header; a sign of life too.
    * AGAIN: the frame `sequence` did not come, or not unchanged.
    * FAIL: the sender of it gave up, or refuses a greeting; the payload says why.
    """

    HELLO = 1
    DATA = 2
    ACK = 3
    AGAIN = 4
    BYE = 5
    FAIL = 6


_KINDS = {int(kind): kind for kind in Kind}


class Header(NamedTuple):
    """A header whose digest held."""

    kind: Kind
    flags: int
    length: int
    sequence: int
    epoch: int
    toward: int
    acknowledged: int
    taken: int
    digest: int


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
    found = _EMPTY if payload_digest is None else payload_digest
    fields = _FIELDS.pack(
        MAGIC, kind, flags, length, sequence, epoch, toward, acknowledged, taken, found
    )
    return fields + _CHECK.pack(digest_of(fields))


def parsed(data: Any) -> Header | None:
    """Return the header in the first 64 bytes of a buffer; None where it is not one, or has
    changed.
    """
    magic, kind, flags, length, sequence, epoch, toward, acknowledged, taken, found, check = (
        _ALL.unpack_from(data)
    )
    if digest_of(memoryview(data)[: _FIELDS.size]) != check or magic != MAGIC or kind not in _KINDS:
        return None
    # Not Header(…), which is one function of Python more: after a decode step each is read from
    # memory anew.
    fields = _KINDS[kind], flags, length, sequence, epoch, toward, acknowledged, taken, found
    return tuple.__new__(Header, fields)


def holds(header: Header, payload: Any) -> bool:
    """Return whether the payload is the one that the header was made for."""
    return header.length == len(payload) and digest_of(payload) == header.digest


_EMPTY = digest_of(b"")
