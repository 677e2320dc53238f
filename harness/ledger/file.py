"""Format of a ledger's file: a header, a table of texts, records of one size, and digests of what
the calls sent and received. Of records and digests the last ones are kept.

A rank maps the file and writes into it as it calls, so that whatever had begun is there when the
rank is killed. Rank and subject share a process, and nobody vouches for its bytes: `parse` takes
nothing that `encode` would not give.

Little-endian. The header (`HEADER`) gives the places of the other three. A text is its length in
two bytes and ASCII; the first has the number 1, and 0 stands for a text that is not held. A record
(`RECORD`) ends with the number of its call, from 1, which is written last; 0 is a record that was
not written. In the place of a tag a collective has how its elements are shared out (`call.py`).

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
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.forms.text import plural
from harness.ledger.call import (
    COLLECTIVES,
    NONE,
    OPERATIONS,
    SEND,
    STATES,
    Call,
    CallGroup,
    NotALedger,
    NotShares,
    packed,
    unpacked,
)

ARTEFACT = "collectives.ledger"
"""Name of the artefact that is a rank's ledger; no rank keeps another one under it."""
MAGIC = b"RPLEDG\x00\x01"
# magic, bytes of a record, rank, world size, why not observed, pid, records there is room for,
# place and bytes of the texts, bytes of them that are used, place of the records, texts that were
# not held, calls of children, world, place of the digests, digests there is room for (none: not
# asked for), why not digested, whether C wrote, calls not digested
HEADER = struct.Struct("<8sHHHHIIIIIIIQ32sIIHHI")
# begin, end, elements, index, peer, tag, operation, group, site, dtype, shape, reduction, thread,
# state, number
RECORD = struct.Struct("<QQQIiiHHHHHHHBxQ")
NUMBER = struct.Struct("<Q")
NUMBER_AT = RECORD.size - NUMBER.size
# digest, sketch (a float, or a whole number as its bits), sum of magnitudes, call, whom, how many
# parts the call has on this side, side, what the sketch is, number
PART = struct.Struct("<Q8sdQHHBB2xQ")
# The same with the sketch as what it is; of NOTHING it is 0.0.
PART_FLOAT = struct.Struct("<QddQHHBB2xQ")
PART_WHOLE = struct.Struct("<QQdQHHBB2xQ")
DIGESTS = 1 << 15
"""Digests that a rank's file holds: 1.5 MiB. Of more, the last ones."""
EVERYONE = 0xFFFF
"""In the place of a rank: all members of the group."""
Side = Literal["sent", "received"]
SIDES: tuple[Side, ...] = ("sent", "received")
NOTHING, FLOAT, WHOLE = range(3)
FORM_OF_SKETCH = {FLOAT: struct.Struct("<d"), WHOLE: struct.Struct("<Q")}
SLOTS = 1 << 15
"""Calls that a rank's file holds: 2 MiB. Of more, the last ones."""
TEXTS_LIMIT = 128 * 1024
TEXTS_MOST = 4000
TEXT_LIMIT = 300
"""Bytes and number of the texts of a ledger, and bytes of each."""
TEXT = re.compile(rb"[ -~]+")
TEXT_HIDDEN = re.compile(r"[^ -~]")
LARGEST_BARE = HEADER.size + TEXTS_LIMIT + SLOTS * RECORD.size
LARGEST = LARGEST_BARE + DIGESTS * PART.size
"""Bytes of the largest ledger, without and with digests."""


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """Weighted sum that stands for the elements of an array.

    Attributes:
        total: the weighted sum: a float, or of whole numbers an integer modulo 2**64.
        size: the same of the magnitudes of elements and weights, for what rounding allows; 0 for
            whole numbers, and for a result.
    """

    total: float | int
    size: float


@dataclass(frozen=True, kw_only=True)
class CallPart:
    """Digest of one array of a call.

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


def pack(part: CallPart) -> bytes:
    """Return a digest as it lies in a ledger."""
    kind = NOTHING
    bits = bytes(8)
    size = 0.0
    if part.sketch is not None:
        size = part.sketch.size
        total = part.sketch.total
        kind = WHOLE if isinstance(total, int) else FLOAT
        bits = FORM_OF_SKETCH[kind].pack(total)
    whom = EVERYONE if part.whom is None else part.whom
    side = SIDES.index(part.side)
    return PART.pack(part.digest, bits, size, part.call, whom, part.many, side, kind, part.number)


def unpack(data: bytes, at: int, *, size: int) -> CallPart | None:
    """Read one; None where none was written.

    Args:
        data: of the ledger.
        at: its place there.
        size: world size.

    Raises:
        NotALedger: it cannot be one.
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
        raise NotALedger(f"digest record {number} contains invalid values")
    sketch = None
    if kind:
        (total,) = FORM_OF_SKETCH[kind].unpack(bits)
        if not (math.isfinite(total) and math.isfinite(magnitude) and magnitude >= 0):
            raise NotALedger(f"the sketch of digest record {number} contains invalid values")
        sketch = Sketch(total=total, size=magnitude)
    elif magnitude or any(bits):
        raise NotALedger(f"digest record {number} contains invalid values")
    return CallPart(
        number=number,
        call=call,
        side=SIDES[side],
        whom=None if whom == EVERYONE else whom,
        many=many,
        digest=digest,
        sketch=sketch,
    )


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Calls of one rank.

    Attributes:
        rank: whose it is.
        size: world size.
        pid: of the process that wrote it.
        world: the mark of its world.
        calls: those that are held, by number.
        made: how many were made.
        room: how many the file had room for.
        why: why calls were made that are not in it; empty where none is known of.
        children: calls that processes made which the rank forked; none of them is in it.
        lost: texts that it could not hold.
        digested: whether digests of payloads were asked for.
        parts: the digests that are held, by number.
        undigested: calls whose payload was not digested.
        undigested_why: why the first of them was not; empty where there is none.
        in_c: whether a recorder in C wrote calls that were met before; else Python wrote all of
            them.
    """

    rank: int
    size: int
    pid: int
    world: str
    calls: Sequence[Call]
    made: int
    room: int = SLOTS
    why: str = ""
    children: int = 0
    lost: int = 0
    digested: bool = False
    parts: Sequence[CallPart] = ()
    undigested: int = 0
    undigested_why: str = ""
    in_c: bool = False

    @property
    def overwritten(self) -> int:
        """Return how many calls are not held any more, for want of room."""
        return max(0, self.made - self.room)

    @property
    def torn(self) -> int:
        """Return how many calls were begun and not written: the rank was killed meanwhile."""
        return self.made - self.overwritten - len(self.calls)

    def standing(self) -> Call | None:
        """Return the last call that has not ended: where the rank stands, or what it had started
        when it ended.
        """
        later: set[int] = set()
        for call in reversed(self.calls):
            if call.thread not in later and call.state in ("open", "started"):
                return call
            later.add(call.thread)
        return None


def parse(data: bytes) -> Ledger:
    """Read a ledger, as a rank left it or as `encode` gave it.

    Raises:
        NotALedger: it is not one.
    """
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise NotALedger("it does not begin with the header of a ledger")
    (
        _,
        step,
        rank,
        size,
        why,
        pid,
        room,
        texts_at,
        texts_size,
        used,
        records_at,
        lost,
        children,
        world,
        *digests,
    ) = HEADER.unpack_from(data)
    parts_at, parts_room, undigested_why, in_c, undigested = digests
    if (
        step != RECORD.size
        or not rank < size
        or texts_at != HEADER.size
        or records_at != texts_at + texts_size
    ):
        raise NotALedger("its header contradicts itself")
    if not 0 < room <= SLOTS or texts_size > TEXTS_LIMIT or used > texts_size:
        raise NotALedger("its header declares sizes that a ledger cannot have")
    if not records_at <= parts_at <= len(data) or parts_room not in (0, DIGESTS) or in_c > 1:
        raise NotALedger("its header contradicts itself")
    records, rest = divmod(parts_at - records_at, step)
    parts, rest_of_parts = divmod(len(data) - parts_at, PART.size)
    if rest or rest_of_parts or not 0 <= records <= room or parts > parts_room:
        raise NotALedger(f"its size of {len(data)} bytes contradicts its header")
    texts = _texts(data[texts_at : texts_at + used])
    groups: dict[int, CallGroup] = {}
    calls: dict[int, Call] = {}
    for at in range(records_at, parts_at, step):
        if NUMBER.unpack_from(data, at + NUMBER_AT)[0]:
            call = _call(
                RECORD.unpack_from(data, at), texts=texts, groups=groups, rank=rank, size=size
            )
            if calls.setdefault(call.number, call) is not call:
                raise NotALedger(f"it contains two records of call {call.number}")
    made = max(calls, default=0)
    try:
        mark = world.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise NotALedger("its world ID is not ASCII text") from None
    return Ledger(
        rank=rank,
        size=size,
        pid=pid,
        world=mark,
        # What is older was about to be overwritten.
        calls=tuple(calls[number] for number in sorted(calls) if number > made - room),
        made=made,
        room=room,
        why=_text(texts, why),
        children=children,
        lost=lost,
        digested=parts_room > 0,
        parts=_parts(data, parts_at, size=size, made=made),
        undigested=undigested,
        undigested_why=_text(texts, undigested_why),
        in_c=in_c == 1,
    )


def _parts(data: bytes, begin: int, *, size: int, made: int) -> tuple[CallPart, ...]:
    """Return the digests, by number; of calls that were not written none."""
    parts: dict[int, CallPart] = {}
    for at in range(begin, len(data), PART.size):
        part = unpack(data, at, size=size)
        if (
            part is not None
            and part.call <= made
            and parts.setdefault(part.number, part) is not part
        ):
            raise NotALedger(f"it contains two digests numbered {part.number}")
    last = max(parts, default=0)
    return tuple(parts[number] for number in sorted(parts) if number > last - DIGESTS)


def encode(ledger: Ledger) -> bytes:
    """Return a ledger with nothing in it that was not written: what is kept of it as evidence.

    `parse` reads it back.
    """
    texts = Texts()
    records = bytearray()
    for call in ledger.calls:
        peer = -1 if call.peer is None else call.peer
        tag = packed(call.shares, texts.number) if call.is_collective else call.tag
        records += RECORD.pack(
            call.begin,
            call.end or 0,
            call.elements,
            call.index,
            peer,
            tag,
            texts.number(call.operation),
            texts.number(call.group.text()),
            texts.number(call.site),
            texts.number(call.dtype),
            texts.number(call.shape),
            texts.number(call.reduction),
            call.thread,
            STATES.index(call.state),
            call.number,
        )
    why = texts.number(ledger.why)
    undigested_why = texts.number(ledger.undigested_why)
    # From here on the table of texts is complete, and the places behind it are known.
    held = bytes(texts.data)
    records_at = HEADER.size + len(held)
    header = HEADER.pack(
        MAGIC,
        RECORD.size,
        ledger.rank,
        ledger.size,
        why,
        ledger.pid,
        ledger.room,
        HEADER.size,
        len(held),
        len(held),
        records_at,
        ledger.lost,
        ledger.children,
        ledger.world.encode("ascii"),
        records_at + len(records),
        DIGESTS if ledger.digested else 0,
        undigested_why,
        ledger.in_c,
        ledger.undigested,
    )
    return header + held + bytes(records) + b"".join(map(pack, ledger.parts))


def visible(text: str) -> bytes:
    """Return a text as it stands in a ledger: printable ASCII, other characters as escapes, cut off
    at its limit.
    """
    return TEXT_HIDDEN.sub(_escaped, text).encode("ascii")[:TEXT_LIMIT]


def _escaped(hidden: re.Match[str]) -> str:
    return hidden[0].encode("unicode_escape", "backslashreplace").decode("ascii")


class Texts:
    """Table of texts while it is written; each text once, and 0 for what it cannot hold."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Return the number of a text, which is put into the table where it is not there and
        fits.
        """
        known = self._numbers.get(text)
        if known is not None:
            return known
        written = visible(text)
        if len(self._numbers) > TEXTS_MOST or len(self.data) + 2 + len(written) > TEXTS_LIMIT:
            return 0
        self.data += len(written).to_bytes(2, "little") + written
        self._numbers[text] = number = len(self._numbers)
        return number


def _texts(data: bytes) -> list[str]:
    """Return the texts of a table, the first of them at 1."""
    texts = [""]
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "little")
        piece = data[at + 2 : at + 2 + length]
        at += 2 + length
        if at > len(data) or not 0 < length <= TEXT_LIMIT or not TEXT.fullmatch(piece):
            raise NotALedger(f"its text {len(texts)} is malformed or cut off")
        texts.append(piece.decode("ascii"))
    if len(texts) > TEXTS_MOST + 1:
        raise NotALedger(f"it has {len(texts) - 1} texts, but at most {TEXTS_MOST} are allowed")
    return texts


def _text(texts: Sequence[str], number: int) -> str:
    if number >= len(texts):
        raise NotALedger(
            f"it refers to text {number}, but contains {plural(len(texts) - 1, 'text')}"
        )
    return texts[number]


def _call(
    record: tuple[int, ...],
    *,
    texts: Sequence[str],
    groups: dict[int, CallGroup],
    rank: int,
    size: int,
) -> Call:
    """Read the call of one record; `groups` has those that were read, by their text's number."""
    begin, end, elements, index, peer, tag, *words, thread, state, number = record
    operation, group_text, site, dtype, shape, reduction = (_text(texts, word) for word in words)
    if operation not in OPERATIONS or state >= len(STATES) or index == 0 or not -1 <= peer < size:
        raise NotALedger(f"call {number} contains invalid values")
    if (group := groups.get(words[1])) is None:
        group = groups[words[1]] = CallGroup.of(group_text, size=size)
    if rank not in group.ranks or not (peer == -1 or peer in group.ranks):
        raise NotALedger(
            f"call {number} uses a group that does not contain both the rank and its peer"
        )
    if (peer == -1 and operation == SEND) or (end and end < begin):
        raise NotALedger(f"call {number} contains invalid values")
    shares = NONE
    if operation in COLLECTIVES:
        try:
            shares = unpacked(
                tag, lambda at: _text(texts, at), operation=operation, members=len(group.ranks)
            )
        except NotShares as error:
            raise NotALedger(f"call {number} contains invalid values: {error}") from None
        tag = 0
    return Call(
        number=number,
        operation=operation,
        group=group,
        index=index,
        peer=None if peer == -1 else peer,
        tag=tag,
        shape=shape,
        dtype=dtype,
        elements=elements,
        reduction=reduction,
        site=site,
        thread=thread,
        begin=begin,
        end=end or None,
        state="ended" if end and STATES[state] == "open" else STATES[state],
        shares=shares,
    )
