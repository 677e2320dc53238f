"""The straight path of a message, beside the general one: whatever comes or goes, both leave the
same behind.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rankproof_integrity import TransportLimits, frame
from rankproof_integrity.conversation import Conversation
from rankproof_integrity.digest import digest
from rankproof_integrity.frame import Header, Kind
from rankproof_integrity.line import IN, Line
from rankproof_integrity.link import NetworkHealthMonitor
from rankproof_integrity.problem import Misused, TransferFailed
from rankproof_integrity.reader import Damaged, Torn
from rankproof_integrity.wire import StreamWire

LIMITS = TransportLimits(window=8000, message=600)


def joined() -> Conversation:
    """A node that knows its peer, has sent two messages and taken three."""
    talk = Conversation(node="a", peer="b", epoch=5, limits=LIMITS, monitor=NetworkHealthMonitor())
    talk.begin(now=1.0)
    talk.came(header(Kind.HELLO, 8000, b"b\na"), memoryview(b"b\na"), now=1.0)
    talk.offer(b"first", now=1.0)
    talk.offer(b"second", now=1.0)
    drained(talk)
    for number in range(3):
        talk.came(header(Kind.DATA, number, b"x"), memoryview(b"x"), now=1.1)
        talk.take(now=1.1)
    return talk


def header(kind: Kind, sequence: int, payload: bytes, **other: int) -> Header:
    fields = {"flags": 0, "epoch": 7, "toward": 5, "acknowledged": 0, "taken": 0, **other}
    return Header(
        kind=kind, length=len(payload), sequence=sequence, digest=digest(payload), **fields
    )


def drained(talk: Conversation, now: float = 1.2) -> list[bytes]:
    frames = []
    while (out := talk.next_frame(now=now)) is not None:
        frames.append(out[0] + bytes(out[1]))
    return frames


def left(talk: Conversation) -> Any:
    """All that shows of a conversation."""
    out, come = talk.outgoing, talk.incoming
    counts = (
        out.acknowledged,
        out.taken,
        out.offered,
        out.messages,
        out.untaken,
        out.unacknowledged,
    )
    came = (
        come.arrived,
        come.taken,
        come.messages,
        come.ended,
        talk.wanted,
        len(come.waiting),
    )
    late = 1.2 + LIMITS.unhurried
    return (
        counts,
        came,
        talk.counters,
        str(talk.problem),
        talk.due,
        drained(talk),
        drained(talk, late),
    )


CAME = {
    "the next": (header(Kind.DATA, 3, b"next"), b"next"),
    "the next, which says what came": (
        header(Kind.DATA, 3, b"next", acknowledged=2, taken=1),
        b"next",
    ),
    "one that says more than was sent": (
        header(Kind.DATA, 3, b"next", acknowledged=9, taken=9),
        b"next",
    ),
    "an empty one": (header(Kind.DATA, 3, b""), b""),
    "a copy": (header(Kind.DATA, 2, b"x"), b"x"),
    "one too early": (header(Kind.DATA, 4, b"early"), b"early"),
    "a part of one": (header(Kind.DATA, 3, b"part", flags=frame.MORE), b"part"),
    "one that is too long": (header(Kind.DATA, 3, bytes(601)), bytes(601)),
    "of an earlier epoch": (header(Kind.DATA, 3, b"old", epoch=6), b"old"),
    "of a later epoch": (header(Kind.DATA, 3, b"new", epoch=8), b"new"),
    "for an earlier epoch": (header(Kind.DATA, 3, b"old", toward=4), b"old"),
    "a goodbye": (header(Kind.BYE, 3, b""), b""),
    "a question": (header(Kind.ACK, 9, b"", flags=frame.ASKS), b""),
    "a failure": (header(Kind.FAIL, 0, b"why"), b"why"),
    "a greeting": (header(Kind.HELLO, 8000, b"b\na"), b"b\na"),
}
BEFORE = {
    "nothing": None,
    "a question about it": (header(Kind.ACK, 9, b"", flags=frame.ASKS), b""),
    "one that waits": (header(Kind.DATA, 3, b"waits"), b"waits"),
    "one too early": (header(Kind.DATA, 4, b"fourth"), b"fourth"),
    "a part": (header(Kind.DATA, 3, b"part", flags=frame.MORE), b"part"),
    "a goodbye": (header(Kind.BYE, 3, b""), b""),
    "a failure": (header(Kind.FAIL, 0, b"why"), b"why"),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("came", CAME)
def test_what_comes_by_itself_leaves_what_it_leaves_by_the_general_way(
    before: str, came: str
) -> None:
    """Whatever frame comes after whatever other: the same messages, counts, answers and errors by
    both ways.
    """
    straight, general = joined(), joined()
    for talk in (straight, general):
        if (first := BEFORE[before]) is not None:
            talk.came(first[0], memoryview(first[1]), now=1.15)
    said, payload = CAME[came]
    found, _ = straight.passed(said, memoryview(payload), now=1.2)
    general.came(said, memoryview(payload), now=1.2)
    taken = [[] if found is None else [found], []]
    for talk, messages in zip((straight, general), taken, strict=True):
        while (message := talk.take(now=1.2)) is not None:
            messages.append(message)
    assert taken[0] == taken[1]
    assert left(straight) == left(general)


def waiting(talk: Conversation) -> None:
    talk.offer(b"waits", now=1.15)


def parted(talk: Conversation) -> None:
    talk.end(why="cut")


def anew(talk: Conversation) -> None:
    talk.end(why="cut")
    talk.begin(now=1.15)


STATES = {
    "nothing before it": lambda _: None,
    "one that is not sent": waiting,
    "no connection": parted,
    "a new connection": anew,
    "a question that is due": lambda talk: talk.hurry(),
    "a greeting that waits for its answer": lambda talk: talk.came(
        header(Kind.HELLO, 8000, b"b\na", flags=frame.UNHEARD, toward=5),
        memoryview(b"b\na"),
        now=1.15,
    ),
    "one that is missing": lambda talk: talk.came(
        header(Kind.DATA, 5, b"early"), memoryview(b"early"), now=1.15
    ),
    "a question that was asked": lambda talk: talk.came(
        header(Kind.ACK, 3, b"", flags=frame.ASKS), b"", now=1.15
    ),
    "a goodbye of the peer": lambda talk: talk.came(
        header(Kind.BYE, 3, b""), memoryview(b""), now=1.15
    ),
    "an error": lambda talk: talk.came(header(Kind.FAIL, 0, b"why"), memoryview(b"why"), now=1.15),
    "some that fill the window": lambda talk: (
        [talk.offer(bytes(600), now=1.15) for _ in range(7)] and drained(talk)
    ),
}


@pytest.mark.parametrize("size", [0, 5, 600, 601])
@pytest.mark.parametrize("state", STATES)
def test_what_goes_at_once_leaves_what_it_leaves_by_the_general_way(state: str, size: int) -> None:
    """In whatever state: the same frames in the same order, the same number, or the same refusal by
    both ways.
    """
    found = []
    for way in ("straight", "general"):
        talk = joined()
        STATES[state](talk)
        frames: list[bytes] = []
        number: object = None
        out = talk.at_once(bytes(size), now=1.2) if way == "straight" else None
        if out is not None:
            frames, number = [out[0] + bytes(size)], out[1]
        else:
            try:
                number = talk.offer(bytes(size), now=1.2)
            except (Misused, TransferFailed) as error:
                number = str(error)
        frames += drained(talk)
        found.append((number, frames, left(talk)))
    assert found[0] == found[1]


def whole(payload: bytes) -> bytes:
    said = frame.packed(
        kind=Kind.DATA, epoch=7, toward=5, length=len(payload), payload_digest=digest(payload)
    )
    return said + payload


def test_each_flipped_bit_of_a_frame_that_came_alone_is_seen() -> None:
    """It is the end of the connection, as where frames come together."""
    sent = whole(b"state")
    for bit in range(8 * len(sent)):
        near, far = socket.socketpair()
        wire = StreamWire(near, longest=600)
        changed = bytearray(sent)
        changed[bit // 8] ^= 1 << bit % 8
        far.sendall(changed)
        with pytest.raises(Damaged, match="arrived damaged"):
            wire.single()
        wire.close()
        far.close()


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 68, 69, 70, 132, 137, 138])
def test_what_is_not_one_whole_frame_is_read_as_ever(cut: int) -> None:
    """Two frames, of which so many bytes come first: each is given once and whole, by one way or
    the other.
    """
    near, far = socket.socketpair()
    wire = StreamWire(near, longest=600)
    sent = whole(b"state") + whole(b"other")
    far.sendall(sent[:cut])
    came = [wire.single(), *wire.receive()]
    far.sendall(sent[cut:])
    came += [wire.single(), *wire.receive()]
    assert [bytes(one[1]) for one in came if one is not None] == [b"state", b"other"]
    assert not wire.holds_more
    far.close()
    with pytest.raises(Torn, match="the peer closed the connection"):
        wire.single()
    wire.close()


class Attends:
    """Attends to nothing, and keeps what it is asked to watch."""

    until = 0.0

    def __init__(self) -> None:
        self.watched: list[tuple[int, int]] = []

    def watch(self, line: Line, descriptor: int, events: int) -> None:
        del line
        self.watched.append((descriptor, events))

    def unwatch(self, descriptor: int) -> None:
        self.watched = [one for one in self.watched if one[0] != descriptor]

    def wake(self) -> None:
        pass

    def arrived(self) -> None:
        pass


@contextmanager
def in_turn() -> Iterator[tuple[Line, Attends, socket.socket]]:
    """A line of a's on which calls followed each other of late, so that nobody watches.

    And b's bare socket.
    """
    near, far = socket.socketpair()
    attends = Attends()
    line = Line(joined(), attendant=attends)
    greeting = header(Kind.HELLO, 8000, b"b\na", toward=5, acknowledged=2, taken=2)
    line.take_wire(StreamWire(near, longest=600), greeting, memoryview(b"b\na"))
    line.attend(ready=False)
    for number in range(3, 10):
        assert line.send(b"x") is not None
        far.sendall(frame.packed(kind=Kind.DATA, epoch=7, toward=5, sequence=number))
        assert (
            line.until(lambda now: line.conversation.take(now=now), deadline=time.monotonic() + 60)
            is not None
        )
    try:
        yield line, attends, far
    finally:
        line.close()
        far.close()


def test_an_error_that_is_known_is_waited_for_by_nobody() -> None:
    """After the peer gave up each receive leaves the straight path at once, however soon it follows
    another.
    """
    with in_turn() as (line, _, _):
        assert line.conversation.quiet(time.monotonic())
        line.conversation.came(header(Kind.FAIL, 0, b"why"), b"why", now=time.monotonic())
        assert not line.conversation.quiet(time.monotonic())


def test_who_only_sends_hears_what_its_peer_says() -> None:
    """Once no caller has read for as long as one is expected, the attendant does, and an error
    comes with the next.
    """
    with in_turn() as (line, attends, far):
        assert line.send(b"x") is not None
        assert attends.watched == []
        line._read_at -= 60
        assert line.send(b"x") is not None
        assert attends.watched == [(line.wire.fileno(), IN)]
        far.sendall(frame.packed(kind=Kind.FAIL, epoch=7, toward=5))
        line.attend(ready=True)
        assert line.send(b"x") is None
