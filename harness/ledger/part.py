"""Digests of what a call sent or received, as they lie in a ledger behind its calls.

The last ones are kept.

A transfer is compared by xxh3 of its bytes. A sum cannot be: what a rank adds is not what it gets.
So each rank's part and each result have a sketch beside, a sum of the elements with a weight that
follows from their index: that of a result has to be the sum of those of the parts, exactly for
whole numbers, and within what rounding allows for others. The weights of floats are 1, 1/2, 1/3 and
so on in a fixed disorder, eight times each, and of up to 64 elements once, so that two that change
places are seen; of those of 16 bits 1, 1/4, 1/9. Were they all alike, what rounding allows for many
elements would be more than what a whole part makes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Literal

# digest, sketch (a float, or a whole number as its bits), sum of magnitudes, call, whom, how many
# parts the call has on this side, side, what the sketch is, number
PART = struct.Struct("<Q8sdQHHBB2xQ")
# The same with the sketch as what it is; of NOTHING it is 0.0.
PART_FLOAT = struct.Struct("<QddQHHBB2xQ")
PART_WHOLE = struct.Struct("<QQdQHHBB2xQ")
NUMBER = struct.Struct("<Q")
DIGESTS = 1 << 15
"""Digests that a rank's file holds: 1.5 MiB. Of more, the last ones."""
EVERYONE = 0xFFFF
"""In the place of a rank: all members of the group."""
Side = Literal["sent", "received"]
SIDES: tuple[Side, ...] = ("sent", "received")
NOTHING, FLOAT, WHOLE = range(3)
_FLOAT = struct.Struct("<d")
_WHOLE = struct.Struct("<Q")


class NotAPart(ValueError):
    """Bytes that are not a digest of a call; the message says why, as a clause."""


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """What stands for the elements of a sum.

    Attributes:
        total: the weighted sum: a float, or of whole numbers an integer modulo 2**64.
        size: the same of the magnitudes of elements and weights, for what rounding allows; 0 for
            whole numbers, and for a result.
    """

    total: float | int
    size: float


@dataclass(frozen=True, kw_only=True)
class Part:
    """The digest of one array of a call.

    Attributes:
        number: of the rank's digests, from 1.
        call: the number of the call.
        side: whether the rank sent it or received it.
        whom: the rank of the world to which, or from which; None for all members of the group.
        many: how many arrays the call has on this side.
        digest: xxh3 of 64 bits, of the bytes of its elements in the order of their indices.
        sketch: what stands for it in a sum; None where there is none, as for values that are not
            finite.
    """

    number: int
    call: int
    side: Side
    whom: int | None
    many: int
    digest: int
    sketch: Sketch | None = None


def pack(part: Part) -> bytes:
    """As it lies in a ledger."""
    kind = NOTHING
    bits = bytes(8)
    size = 0.0
    if part.sketch is not None:
        size = part.sketch.size
        kind, bits = _bits_of(part.sketch.total)
    whom = EVERYONE if part.whom is None else part.whom
    side = SIDES.index(part.side)
    return PART.pack(part.digest, bits, size, part.call, whom, part.many, side, kind, part.number)


def _bits_of(total: float) -> tuple[int, bytes]:
    return (WHOLE, _WHOLE.pack(total)) if isinstance(total, int) else (FLOAT, _FLOAT.pack(total))


def unpack(data: bytes, at: int, *, size: int) -> Part | None:
    """Read one; None where none was written.

    Args:
        data: of the ledger.
        at: its place there.
        size: world size.

    Raises:
        NotAPart: it cannot be one.
    """
    digest, bits, magnitude, call, whom, many, side, kind, number = PART.unpack_from(data, at)
    if not number:
        return None
    if (
        not call
        or not many
        or side >= len(SIDES)
        or not (whom < size or whom == EVERYONE)
        or kind > WHOLE
    ):
        raise NotAPart(f"its digest {number} cannot be")
    sketch = None
    if kind:
        (total,) = (_WHOLE if kind == WHOLE else _FLOAT).unpack(bits)
        if not (math.isfinite(total) and math.isfinite(magnitude) and magnitude >= 0):
            raise NotAPart(f"the sketch of its digest {number} cannot be")
        sketch = Sketch(total=total, size=magnitude)
    elif magnitude or any(bits):
        raise NotAPart(f"its digest {number} cannot be")
    return Part(
        number=number,
        call=call,
        side=SIDES[side],
        whom=None if whom == EVERYONE else whom,
        many=many,
        digest=digest,
        sketch=sketch,
    )
