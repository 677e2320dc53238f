"""A ledger as a file: a header, a table of texts, and records of one size, of which the last ones
are kept.

A rank maps the file and writes into it as it calls, so that whatever had begun is there when the
rank is killed. Rank and subject share a process, and nobody vouches for its bytes: `parse` takes
nothing that `encode` would not give.

Little-endian. The header (`HEADER`) gives the places of the other two. A text is its length in two
bytes and ASCII; the first has the number 1, and 0 stands for a text that is not held. A record
(`RECORD`) ends with the number of its call, from 1, which is written last; 0 is a record that was
not written. In the place of a tag a collective has how its elements are shared out (`shares.py`).
Behind the records lie digests (`part.py`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.forms.strict_json import JSON
from harness.ledger.part import DIGESTS, PART, NotAPart, Part, pack, unpack
from harness.ledger.shares import BUNDLES, NONE, NotShares, Shares, packed, unpacked

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

COLLECTIVES = frozenset(
    {
        *(
            "all_reduce",
            "all_reduce_coalesced",
            "broadcast",
            "reduce",
            "barrier",
            "monitored_barrier",
        ),
        *(
            "all_gather",
            "all_gather_coalesced",
            "all_gather_into_tensor",
            "all_gather_into_tensor_coalesced",
        ),
        *(
            "gather",
            "scatter",
            "reduce_scatter",
            "reduce_scatter_tensor",
            "reduce_scatter_tensor_coalesced",
        ),
        *("all_to_all", "all_to_all_single", "all_sum", "all_max", "all_min", "sum_scatter"),
    }
)
SEND = "send"
RECEIVE = "recv"
OPERATIONS = COLLECTIVES | {SEND, RECEIVE}

State = Literal["open", "ended", "failed", "started"]
STATES: tuple[State, ...] = ("open", "ended", "failed", "started")


class NotALedger(ValueError):
    """Bytes that are not a ledger; the message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Group:
    """A group of ranks: the library that made it, its name there, its members in the order of their
    numbers in it.
    """

    library: str
    name: str
    ranks: tuple[int, ...]

    def text(self) -> str:
        """As it stands in a ledger."""
        return f"{self.library}|{self.name}|{','.join(map(str, self.ranks))}"

    @classmethod
    def of(cls, text: str, *, size: int) -> Group:
        """Read back what `text` gave.

        Raises:
            NotALedger: it is not a group of a world of `size`.
        """
        library, _, rest = text.partition("|")
        name, _, members = rest.rpartition("|")
        words = members.split(",")
        if not library or not all(
            word.isascii() and word.isdecimal() and len(word) < 6 for word in words
        ):
            raise NotALedger(f"{text!r} is not a group")
        ranks = tuple(map(int, words))
        if (
            len(set(ranks)) != len(ranks)
            or max(ranks) >= size
            or cls(library, name, ranks).text() != text
        ):
            raise NotALedger(f"{text!r} is not a group of a world of {size}")
        return cls(library, name, ranks)

    def __str__(self) -> str:
        return f"group {self.name} of {self.library}"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a rank.

    Attributes:
        number: of the rank's calls, from 1.
        operation: one of `OPERATIONS`.
        group: the group it was made in.
        index: from 1, of the collectives that the rank made in this group; of a point-to-point
            call, of those with the same peer, direction and tag.
        peer: the root, or the other end of a point-to-point call, as a rank of the world; None
            where there is none, or a receive takes from anybody.
        tag: of a point-to-point call, else 0.
        shape: of the first tensor, such as `2x3`; empty where the ledger could not hold it.
        dtype: as the library calls it; empty for a barrier.
        elements: what all members of a collective have to state alike; of a point-to-point call,
            what is sent.
        reduction: such as `sum`, else empty.
        site: `file:line in function` of the caller; empty where the ledger could not hold it.
        thread: threads of the rank, numbered as they first called.
        begin: CLOCK_MONOTONIC in nanoseconds.
        end: the same; None where the call has not ended or its end was not observed.
        state: open (it had not come back), ended, failed (it raised), started (it came back, and
            its end is not observed).
        shares: how the elements of a collective are shared out, where it states that.
    """

    number: int
    operation: str
    group: Group
    index: int
    peer: int | None
    tag: int
    shape: str
    dtype: str
    elements: int
    reduction: str
    site: str
    thread: int
    begin: int
    end: int | None
    state: State
    shares: Shares = NONE

    @property
    def is_collective(self) -> bool:
        """Return whether every member of the group has to make it."""
        return self.operation in COLLECTIVES

    def values(self) -> dict[str, JSON]:
        """As JSON, without what differs from run to run."""
        return {
            "operation": self.operation,
            "index": self.index,
            "group": self.group.text(),
            "peer": self.peer,
            "tag": self.tag,
            "dtype": self.dtype,
            "shape": self.shape,
            "elements": self.elements,
            "reduction": self.reduction,
            "site": self.site,
            "call": self.number,
            "state": self.state,
            **(
                {"parts": list(self.shares.gives)}
                if self.operation in BUNDLES and self.shares.gives
                else {}
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What one rank called.

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
    parts: Sequence[Part] = ()
    undigested: int = 0
    undigested_why: str = ""
    in_c: bool = False

    @property
    def overwritten(self) -> int:
        """How many calls are not held any more, because there were more than there was room for."""
        return max(0, self.made - self.room)

    @property
    def torn(self) -> int:
        """How many calls were begun and not written, because the rank was killed meanwhile."""
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
        raise NotALedger("it does not begin as one")
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
        raise NotALedger("it states more than a ledger holds")
    if not records_at <= parts_at <= len(data) or parts_room not in (0, DIGESTS) or in_c > 1:
        raise NotALedger("its header contradicts itself")
    records, rest = divmod(parts_at - records_at, step)
    parts, rest_of_parts = divmod(len(data) - parts_at, PART.size)
    if rest or rest_of_parts or not 0 <= records <= room or parts > parts_room:
        raise NotALedger(f"it has {len(data)} bytes, which its header does not allow")
    texts = _texts(data[texts_at : texts_at + used])
    groups: dict[int, Group] = {}
    calls: dict[int, Call] = {}
    for at in range(records_at, parts_at, step):
        if NUMBER.unpack_from(data, at + NUMBER_AT)[0]:
            call = _call(
                RECORD.unpack_from(data, at), texts=texts, groups=groups, rank=rank, size=size
            )
            if calls.setdefault(call.number, call) is not call:
                raise NotALedger(f"two records are of call {call.number}")
    made = max(calls, default=0)
    try:
        mark = world.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise NotALedger("the mark of its world is not one") from None
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


def _parts(data: bytes, begin: int, *, size: int, made: int) -> tuple[Part, ...]:
    """Return the digests, by number; of calls that were not written none."""
    parts: dict[int, Part] = {}
    for at in range(begin, len(data), PART.size):
        try:
            part = unpack(data, at, size=size)
        except NotAPart as error:
            raise NotALedger(str(error)) from None
        if (
            part is not None
            and part.call <= made
            and parts.setdefault(part.number, part) is not part
        ):
            raise NotALedger(f"two digests are number {part.number}")
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
        numbers = (call.begin, call.end or 0, call.elements, call.index, peer, tag)
        words = (
            call.operation,
            call.group.text(),
            call.site,
            call.dtype,
            call.shape,
            call.reduction,
        )
        state = STATES.index(call.state)
        records += RECORD.pack(
            *numbers, *(texts.number(word) for word in words), call.thread, state, call.number
        )
    why = texts.number(ledger.why)
    undigested_why = texts.number(ledger.undigested_why)
    held = bytes(texts.data)
    places = (HEADER.size, len(held), len(held), HEADER.size + len(held))
    who = (MAGIC, RECORD.size, ledger.rank, ledger.size, why, ledger.pid, ledger.room)
    about = (ledger.lost, ledger.children, ledger.world.encode("ascii"))
    room = DIGESTS if ledger.digested else 0
    digests = (
        HEADER.size + len(held) + len(records),
        room,
        undigested_why,
        ledger.in_c,
        ledger.undigested,
    )
    header = HEADER.pack(*who, *places, *about, *digests)
    return header + held + bytes(records) + b"".join(map(pack, ledger.parts))


def visible(text: str) -> bytes:
    """Return a text as it stands in a ledger: printable ASCII, other characters as escapes, cut off
    at its limit.
    """
    return TEXT_HIDDEN.sub(_escaped, text).encode("ascii")[:TEXT_LIMIT]


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode("ascii")


class Texts:
    """The table of texts while it is written; each text once, and 0 for what it cannot hold."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = 0
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
            self.lost += 1
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
            raise NotALedger(f"its text {len(texts)} is not one, or cut off")
        texts.append(piece.decode("ascii"))
    if len(texts) > TEXTS_MOST + 1:
        raise NotALedger(f"it has {len(texts)} texts")
    return texts


def _text(texts: Sequence[str], number: int) -> str:
    if number >= len(texts):
        raise NotALedger(f"it names text {number}, and has {len(texts) - 1}")
    return texts[number]


def _call(
    found: tuple[int, ...], *, texts: Sequence[str], groups: dict[int, Group], rank: int, size: int
) -> Call:
    """One record."""
    begin, end, elements, index, peer, tag, *words, thread, state, number = found
    operation, group_text, site, dtype, shape, reduction = (_text(texts, word) for word in words)
    if operation not in OPERATIONS or state >= len(STATES) or index == 0 or not -1 <= peer < size:
        raise NotALedger(f"its call {number} cannot be")
    if (group := groups.get(words[1])) is None:
        group = groups[words[1]] = Group.of(group_text, size=size)
    if rank not in group.ranks or not (peer == -1 or peer in group.ranks):
        raise NotALedger(f"its call {number} is in a group that the rank or its peer is not in")
    if (peer == -1 and operation == SEND) or (end and end < begin):
        raise NotALedger(f"its call {number} cannot be")
    shares = NONE
    if operation in COLLECTIVES:
        try:
            shares = unpacked(
                tag, lambda at: _text(texts, at), operation=operation, members=len(group.ranks)
            )
        except NotShares as error:
            raise NotALedger(f"its call {number} cannot be: {error}") from None
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
