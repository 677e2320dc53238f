"""A peer that has the key and does not keep the protocol, and what ordinary users do in the midst
of calls: bounds hold, and nothing is lost without an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossing import QUICK, Crossing
from rankproof_integrity import (
    AsyncTransport,
    MessageLate,
    MessageLost,
    Misused,
    PeerRestarted,
    ReliableMessageTransport,
    TransferFailed,
    TransportLimits,
    frame,
)
from rankproof_integrity.envelope import Envelope, array_of
from rankproof_integrity.frame import Header, Kind
from rankproof_integrity.incoming import IncomingFrames
from two_nodes import TwoNodes

KEY = bytes(32)


def data(sequence: int, payload: bytes, flags: int = 0) -> Header:
    return Header(Kind.DATA, flags, len(payload), sequence, 1, 1, 0, 0, 0)


@pytest.mark.parametrize("part", [b"", b"x", bytes(frame.LARGEST - 1)])
def test_parts_that_no_sender_makes_end_the_conversation(part: bytes) -> None:
    """A message in empty or tiny parts would hold far more memory than bytes."""
    incoming = IncomingFrames(source="b", epoch=1, limits=TransportLimits())
    with pytest.raises(ValueError, match="came in parts that no sender makes"):
        incoming.accept(data(0, part, frame.MORE), part)


def test_empty_messages_count_against_the_window() -> None:
    """As what holds each of them does."""
    incoming = IncomingFrames(source="b", epoch=1, limits=TransportLimits(window=2**16))
    fitting = 2**16 // frame.COST
    for number in range(fitting):
        assert incoming.accept(data(number, b""), b"")
    with pytest.raises(ValueError, match="more than the window"):
        incoming.accept(data(fitting, b""), b"")


def test_a_peer_that_was_silent_is_met_again() -> None:
    """With a key and without one: a connection on which nothing came is made anew, and stays."""
    for key in (KEY, None):
        a = ReliableMessageTransport(node="a", key=key, limits=QUICK)
        b = ReliableMessageTransport(node="b", key=key, limits=QUICK)
        way = Crossing(a.listen())
        a.expect("b")
        b.connect("a", way.address)
        b.send(b"before", to="a")
        assert a.receive(source="b").data == b"before"
        way.held.clear()
        while way.connections < 2:
            with contextlib.suppress(MessageLate):
                b.receive(source="a", timeout=0.05)
        way.held.set()
        b.send(b"after", to="a")
        assert a.receive(source="b").data == b"after"
        for one in (a, b):
            with contextlib.suppress(TransferFailed):
                one.close(timeout=0.2)
        way.close()


def test_nobody_who_passes_a_proof_on_ends_a_conversation() -> None:
    """A node that is led to another member waits on for its peer, and meets it."""
    with ReliableMessageTransport(node="a", key=KEY, limits=QUICK) as a:
        own = a.listen()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            address = taken.getsockname()
        relay = Crossing(own)
        a.connect("b", lambda: relay.address if relay.connections < 3 else address)
        a.send(b"for b", to="b")
        while relay.connections < 3:
            with contextlib.suppress(MessageLate):
                a.flush(to="b", timeout=0.05)
        with ReliableMessageTransport(node="b", key=KEY, limits=QUICK) as b:
            b.listen(address)
            b.expect("a")
            assert b.receive(source="a").data == b"for b"
        relay.close()


def test_who_flushes_is_told_though_another_has_renewed() -> None:
    """What was sent before is not taken for delivered, because the new conversation knows
    nothing of it.
    """
    nodes = TwoNodes()
    nodes.send("a", 10)
    talk = nodes.sides["a"].talk
    outgoing = talk.outgoing
    assert talk.flushed(outgoing) is None
    nodes.restart("b", 0)
    nodes.join()
    nodes.settle()
    with pytest.raises(PeerRestarted):
        talk.flushed(outgoing)
    nodes.renew("a")
    with pytest.raises(PeerRestarted):
        talk.flushed(outgoing)
    assert talk.flushed(talk.outgoing)
    renewed = talk.outgoing
    talk.renew(epoch=talk.epoch + 1, now=nodes.now)
    with pytest.raises(MessageLost, match="the conversation was renewed"):
        talk.flushed(renewed)


def test_a_handler_that_sends_in_the_midst_of_a_send_is_told(pair: Callable[..., tuple]) -> None:
    """Else two messages would have one number, and nothing would pass any more."""
    a, b, _ = pair()
    told: list[str] = []

    def handler(*_: object) -> None:
        try:
            b.send(b"from the handler", to="a")
        except Misused as error:
            told.append(str(error))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        numbers = [b.send(b"%d" % at, to="a") for at in range(3000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    b.flush(to="a")
    assert len(set(numbers)) == 3000
    came = [a.receive(source="b").data for _ in range(max(numbers) + 1)]
    assert [bytes(one) for one in came if one != b"from the handler"] == [
        b"%d" % at for at in range(3000)
    ]
    assert all("a signal handler interrupted a call" in words for words in told)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("O", (1,)),
        ("V0", (1,)),
        ("f4,i4", (1,)),
        ("(2,2)f4", (1,)),
        ("f4,)", (1,)),
        ("", (1,)),
        ("os", (1,)),
        ("f4", (3,)),
        ("f4", (2**63, 0)),
        ("f4", (2**40, 2**40)),
        ("u1", (1,) * 100),
    ],
)
def test_an_envelope_that_lies_is_refused(dtype: str, shape: tuple[int, ...]) -> None:
    """In one way, whatever it says."""
    with contextlib.suppress(Misused):
        found = array_of(Envelope("s", None, dtype, shape), b"12345678")
        raise AssertionError(found)


def test_an_array_of_several_frames_may_be_written_to(pair: Callable[..., tuple]) -> None:
    """As one of a single frame may be."""
    a, b, _ = pair()
    for size in (10, 2**20):
        b.send_tensor(np.zeros(size, "f4"), to="a")
        found = a.receive(source="b").array()
        found[0] = 1
        assert found[0] == 1


def test_of_any_peers_one_that_closed_is_told_once(pair: Callable[..., tuple]) -> None:
    """And then the time is waited for."""
    a, b, _ = pair()
    b.send(b"last", to="a")
    assert a.receive().data == b"last"
    b.close()
    with pytest.raises(MessageLost, match="will not arrive, because b closed after sending 1"):
        a.receive(timeout=20)
    with pytest.raises(MessageLate):
        a.receive(timeout=0)


def test_a_node_listens_again_at_its_path(tmp_path: Path) -> None:
    """Also where the file of the one before is there; not where somebody listens."""
    path = str(tmp_path / "socket")
    with ReliableMessageTransport(node="a", limits=QUICK) as a:
        a.listen(path)
        with (
            ReliableMessageTransport(node="b", limits=QUICK) as b,
            pytest.raises(OSError, match="in use"),
        ):
            b.listen(path)
    with ReliableMessageTransport(node="a", limits=QUICK) as a:
        a.listen(path)


def test_two_that_close_a_loops_transport_say_one_goodbye() -> None:
    """And a send waits no longer than it was told, whoever sends before it."""

    async def work() -> None:
        limits = TransportLimits(window=2000, deadline=20)
        a, b = (AsyncTransport(node=name, key=KEY, limits=limits) for name in "ab")
        address = await a.listen()
        a.expect("b")
        b.connect("a", address)
        await b.send(bytes(1400), to="a")
        first = asyncio.create_task(b.send(bytes(1400), to="a"))
        await asyncio.sleep(0)
        begin = time.monotonic()
        with pytest.raises(MessageLate, match="was not sent"):
            await b.send(b"x", to="a", timeout=0.05)
        assert time.monotonic() - begin < 10
        assert [len((await a.receive()).data) for _ in range(2)] == [1400, 1400]
        await first
        results: list[Any] = await asyncio.gather(b.close(), b.close(), a.close())
        assert results == [None, None, None]
        with pytest.raises(Misused):
            await a.receive(source="b")

    asyncio.run(work())
