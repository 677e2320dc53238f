"""A message that takes longer to come than a connection may be silent, and what came while a
process stood still.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rankproof_integrity import (
    MessageLost,
    Misused,
    ReliableMessageTransport,
    TransportLimits,
    frame,
)
from rankproof_integrity.conversation import Conversation
from rankproof_integrity.digest import digest
from rankproof_integrity.frame import Kind
from rankproof_integrity.line import STRETCH, Line
from rankproof_integrity.link import NetworkHealthMonitor
from rankproof_integrity.wire import StreamWire

LENGTH = 4 * STRETCH
SOON = TransportLimits(silence=0.003, deadline=300)


class Nobody:
    """Attends to nothing: what a line does by itself is what is seen."""

    until = 0.0

    def watch(self, line: Line, descriptor: int, events: int) -> None:
        pass

    def unwatch(self, descriptor: int) -> None:
        pass

    def wake(self) -> None:
        pass

    def arrived(self) -> None:
        pass


def packed(kind: Kind, data: bytes, **given: Any) -> bytes:
    """A frame of b's."""
    known = {"epoch": 9, "toward": 7, "length": len(data), "payload_digest": digest(data)}
    return frame.packed(kind=kind, **known | given) + data


def met() -> tuple[Line, socket.socket]:
    """A line of a's, and the bare socket of b, whom it has met."""
    here, peer = socket.socketpair()
    monitor = NetworkHealthMonitor()
    conversation = Conversation(node="a", peer="b", epoch=7, limits=SOON, monitor=monitor)
    line = Line(conversation, attendant=Nobody())
    hello = packed(Kind.HELLO, b"b\na", sequence=2**20)
    first = frame.parsed(hello)
    assert first is not None
    line.take_wire(StreamWire(here, longest=2**30), first, memoryview(b"b\na"))
    assert conversation.joined
    peer.recv(2**16)  # its greeting, and what it owed for ours
    return line, peer


def test_who_reads_a_long_message_says_so_before_it_is_whole() -> None:
    """A sender that never pauses keeps a reader busy, and hears of it: else it would take the
    connection for dead.
    """
    line, peer = met()
    count = LENGTH // frame.LARGEST
    frames = [
        packed(
            Kind.DATA,
            bytes(frame.LARGEST),
            sequence=at,
            flags=frame.MORE if at < count - 1 else 0,
        )
        for at in range(count)
    ]
    thread = threading.Thread(target=peer.sendall, args=(b"".join(frames),), daemon=True)
    thread.start()
    found = line.until(lambda now: line.conversation.take(now=now), deadline=time.monotonic() + 60)
    thread.join(60)
    line.close()
    assert found is not None
    assert len(found.data) == LENGTH
    said = peer.recv(2**20)
    headers = []
    while said:
        header = frame.parsed(said)
        assert header is not None
        headers.append(header)
        said = said[frame.SIZE + header.length :]
    peer.close()
    # Each tells how many frames had come by then.
    assert [one for one in headers if one.kind is Kind.ACK and one.acknowledged < count]


def test_what_came_while_a_process_stood_still_came_in_time() -> None:
    """Its clock says that nothing was heard for too long.

    The connection is kept, for something lies there.
    """
    line, peer = met()
    peer.sendall(packed(Kind.DATA, b"in time"))
    while not line.conversation.silent(now=time.monotonic()):
        pass
    line.attend(ready=False)
    assert line.until(lambda now: line.conversation.take(now=now), deadline=0) is not None
    while not line.conversation.silent(now=time.monotonic()):
        pass
    line.attend(ready=False)
    assert line.wire is None
    line.close()
    peer.close()


@pytest.mark.parametrize("seconds", [2e6, 3e6, 1e12, math.inf])
def test_who_waits_for_weeks_waits(seconds: float) -> None:
    """The kernel takes no wait of that length; what comes meanwhile is there at once."""
    line, peer = met()
    peer.sendall(packed(Kind.DATA, b"soon"))
    assert line.conversation.take(now=time.monotonic()) is None
    found = line.until(
        lambda now: line.conversation.take(now=now), deadline=time.monotonic() + seconds
    )
    assert found is not None
    line.close()
    peer.close()


def test_a_line_with_limits_of_weeks_is_attended_to(pair: Callable[..., tuple]) -> None:
    """Whoever has all the time of the world is connected, read and acknowledged as others are."""
    a, b, _ = pair(TransportLimits(deadline=1e9, silence=1e9, longest=1e9))
    b.send(b"x", to="a")
    assert a.receive(source="b", timeout=20).data == b"x"
    b.flush(to="a", timeout=20)


@pytest.mark.parametrize("odd", [math.nan, math.inf, 0.0, -1.0])
def test_limits_that_are_no_times_are_refused(odd: float) -> None:
    """Not a number is neither more nor less than anything, and would be waited for without an
    end.
    """
    for name in ("deadline", "silence", "shortest", "longest"):
        with pytest.raises(Misused, match="limits must be positive and finite"):
            TransportLimits(**{name: odd})


@pytest.mark.slow
def test_a_connection_that_breaks_at_once_again_and_again_does_not_use_up_the_attempts() -> None:
    """Each comes later than the one before, so that the deadline is what ends it.

    A few are enough for any deadline.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    connections = 0

    def break_each() -> None:
        nonlocal connections
        with contextlib.suppress(OSError):  # the test is over
            while True:
                peer, _ = listener.accept()
                connections += 1
                hello = frame.parsed(peer.recv(2**16))
                assert hello is not None
                peer.sendall(packed(Kind.HELLO, b"b\na", toward=hello.epoch, sequence=2**20))
                peer.recv(2**16)
                peer.close()

    thread = threading.Thread(target=break_each, daemon=True)
    thread.start()
    a = ReliableMessageTransport(
        node="a", limits=TransportLimits(deadline=1.5, silence=0.5, shortest=0.02)
    )
    a.connect("b", listener.getsockname()[:2])
    a.send(b"x", to="b")
    with pytest.raises(MessageLost, match=r"message 0 to b is lost: not acknowledged within 1.5 s"):
        a.flush(to="b", timeout=20)
    with contextlib.suppress(MessageLost):
        a.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)
    assert 3 <= connections <= 9
