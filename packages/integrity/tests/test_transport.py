"""The transport between real processes: killed, started again, reset, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crossing import QUICK
from rankproof_integrity import (
    MessageLate,
    MessageLost,
    Misused,
    PeerRestarted,
    ReliableMessageTransport,
    TransferResult,
    TransportLimits,
    ValidatedMessage,
)

ECHO = """
import sys
from rankproof_integrity import TransportLimits, ReliableMessageTransport, TransferFailed
host, port = sys.argv[1], int(sys.argv[2])
limits = TransportLimits(deadline=20, silence=0.5, shortest=0.02)
with ReliableMessageTransport(node="b", limits=limits) as transport:
    transport.connect("a", (host, port))
    while True:
        try:
            message = transport.receive(source="a")
        except TransferFailed:
            break
        transport.send(b"%d " % message.sequence + bytes(message.data), to="a")
        transport.flush(to="a")
"""


@pytest.fixture
def echo() -> Iterator[Callable[[tuple[str, int]], subprocess.Popen[bytes]]]:
    started = []

    def start(address: tuple[str, int]) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", ECHO, address[0], str(address[1])]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_messages_pass_flips_and_resets_unchanged_and_in_order(pair: Callable[..., tuple]) -> None:
    """With bits flipped in headers and payloads and the connection reset, what was sent comes, once
    and in order.
    """
    a, b, way = pair()
    chance = random.Random(5)
    sizes = [chance.choice([0, 1, 100, 5000, 70_000]) for _ in range(200)]
    sent = [chance.randbytes(size) for size in sizes]
    total = sum(sizes)
    # Some behind the last cut: of what lies in a buffer when a connection is reset, nobody sees
    # that it was changed.
    way.flip_at += sorted(chance.randrange(total // 4) for _ in range(20))
    way.cut_after += [total // 10, total // 20]
    thread = threading.Thread(target=lambda: [b.send(data, to="a") for data in sent])
    thread.start()
    came = [a.receive(source="b") for _ in sent]
    thread.join()
    assert [bytes(message.data) for message in came] == sent
    assert [message.sequence for message in came] == list(range(200))
    assert way.connections >= 2
    assert way.flipped
    found = [one.monitor.mended() for one in (a, b)]
    assert found[0]["damaged"] + found[1]["damaged"] >= 1
    assert found[1]["made_anew"] == b.health("a").counted["connections"] - 1 >= 1


def test_by_the_names_of_the_design_who_sends_waits_until_it_is_there(
    pair: Callable[..., tuple],
) -> None:
    """`send_with_validation` says when the peer has a message whose digest it checked.

    A clean link mended nothing.
    """
    a, b, _ = pair()

    async def both() -> tuple[TransferResult, ValidatedMessage]:
        return await asyncio.gather(
            b.send_with_validation(b"token", "a"), a.receive_with_validation("b")
        )

    told, came = asyncio.run(both())
    assert (told.peer, told.sequence, told.sent_again, bytes(came.data)) == ("a", 0, 0, b"token")
    assert set(a.monitor.mended().values()) == {0}


@pytest.mark.slow
def test_a_stalled_connection_is_made_anew(pair: Callable[..., tuple]) -> None:
    """Where nothing is heard for a while, the connection is given up, and what was on it is sent on
    the next.
    """
    a, b, way = pair()
    b.send(b"before", to="a")
    assert a.receive(source="b").data == b"before"
    way.held.clear()
    b.send(b"during", to="a")
    with pytest.raises(
        MessageLate, match=r"message 1 from b did not arrive within 1\.5 s .*nothing was received"
    ):
        a.receive(source="b", timeout=1.5)
    way.held.set()
    assert a.receive(source="b").data == b"during"


def process_is_there(a: ReliableMessageTransport) -> bool:
    """Wait until it runs, then have one message echoed."""
    while not a.connected("b"):
        with contextlib.suppress(MessageLate):
            a.receive(source="b", timeout=0.1)
    a.send(b"x", to="b")
    return bool(a.receive(source="b", timeout=20).data == b"0 x")


@pytest.mark.slow
def test_a_peer_that_is_gone_is_one_error_that_names_the_message(
    echo: Callable[..., subprocess.Popen],
) -> None:
    """A killed peer that never comes back: the first message that it did not take is named, with
    what was tried.
    """
    limits = TransportLimits(deadline=1, silence=0.3, shortest=0.02)
    a = ReliableMessageTransport(node="a", limits=limits)
    process = echo(a.listen(("127.0.0.1", 0)))
    a.expect("b")
    with pytest.raises(MessageLate, match=r"from b did not arrive within 0 s \(not connected"):
        a.receive(source="b", timeout=0)
    assert process_is_there(a)
    process.kill()
    process.wait()
    a.send(b"y", to="b")
    with pytest.raises(
        MessageLost, match=r"message 1 to b is lost: not acknowledged within 1 s \(sent"
    ) as caught:
        a.flush(to="b", timeout=10)
    with pytest.raises(MessageLost, match=r"message 1 to b is lost"):
        a.close()
    assert (caught.value.peer, caught.value.sequence) == ("b", 1)


@pytest.mark.slow
def test_a_peer_that_begins_again_is_said_and_can_be_renewed(
    echo: Callable[..., subprocess.Popen],
) -> None:
    """After a kill and a new start the error says what the old one may not have had.

    Renewed, numbers begin at 0.
    """
    with ReliableMessageTransport(node="a", limits=QUICK) as a:
        address = a.listen(("127.0.0.1", 0))
        a.expect("b")
        process = echo(address)
        for number in range(3):
            a.send(b"x", to="b")
            assert a.receive(source="b").data == b"%d x" % number
        process.send_signal(signal.SIGSTOP)
        a.send(b"lost", to="b")
        process.kill()
        process.wait()
        echo(address)
        with pytest.raises(
            PeerRestarted, match=r"messages 3 to 3 had been sent .*renew\('b'\)"
        ) as caught:
            a.receive(source="b")
        assert caught.value.sequence == 3
        a.renew("b")
        a.send(b"again", to="b")
        assert a.receive(source="b").data == b"0 again"


@pytest.mark.slow
def test_a_stopped_peer_is_waited_for(echo: Callable[..., subprocess.Popen]) -> None:
    """A peer that stands still for longer than a connection lives goes on where it was: nothing is
    lost or doubled.
    """
    with ReliableMessageTransport(node="a", limits=QUICK) as a:
        address = a.listen(("127.0.0.1", 0))
        a.expect("b")
        process = echo(address)
        a.send(b"x", to="b")
        assert a.receive(source="b").data == b"0 x"
        process.send_signal(signal.SIGSTOP)
        a.send(b"y", to="b")
        with pytest.raises(MessageLate):
            a.receive(source="b", timeout=0.8)
        process.send_signal(signal.SIGCONT)
        assert a.receive(source="b").data == b"1 y"


def test_who_takes_nothing_holds_its_sender_back(pair: Callable[..., tuple]) -> None:
    """Buffers are bounded: with nobody receiving, send waits and then says who has not taken
    what.
    """
    a, b, _ = pair(TransportLimits(window=100_000, deadline=20))
    sent = 9
    for _ in range(sent):
        b.send(bytes(10_000), to="a")
    with pytest.raises(
        MessageLate, match="message 9 to a was not sent: a has not accepted messages 0 to 8"
    ):
        b.send(bytes(10_000), to="a", timeout=0.3)
    assert [a.receive(source="b").sequence for _ in range(sent)] == list(range(sent))
    assert b.send(b"", to="a") == sent


def test_a_slip_of_the_caller_is_said_and_sends_nothing(tmp_path: Path) -> None:
    """A peer that does not exist, one that is there twice, a message too long or no buffer, a
    closed transport.
    """
    a = ReliableMessageTransport(node="a", limits=TransportLimits(message=10))
    a.listen(str(tmp_path / "a"))
    a.expect("b")
    with pytest.raises(Misused, match="has no connection to 'c'; it has connections to: b"):
        a.send(b"", to="c")
    with pytest.raises(Misused, match="already has a connection to 'b'"):
        a.expect("b")
    with pytest.raises(Misused, match="11 bytes for b is longer than 10"):
        a.send(bytes(11), to="b")
    with pytest.raises(Misused, match=r"a message must be a buffer, but builtins\.str is not"):
        a.send("text", to="b")
    a.close()
    with pytest.raises(Misused, match="is closed"):
        a.send(b"", to="b")


def test_what_is_changed_after_it_was_sent_is_sent_as_it_was(tmp_path: Path) -> None:
    """A buffer that its owner may change is copied.

    Nobody is connected yet when it is changed here.
    """
    with ReliableMessageTransport(node="a") as a, ReliableMessageTransport(node="b") as b:
        a.listen(str(tmp_path / "a"))
        b.connect("a", str(tmp_path / "a"))
        data = bytearray(b"before")
        b.send(data, to="a")
        data[:] = b"after!"
        a.expect("b")
        assert a.receive(source="b").data == b"before"


def test_several_threads_share_a_line(pair: Callable[..., tuple]) -> None:
    """Threads that send and receive at once on both ends of one line neither wait for each other
    nor mix messages.
    """
    a, b, _ = pair()
    found: dict[str, list[bytes]] = {"a": [], "b": []}

    def receive(transport: ReliableMessageTransport, source: str) -> None:
        found[source] += [bytes(transport.receive(source=source).data) for _ in range(300)]

    def send(transport: ReliableMessageTransport, to: str) -> None:
        for number in range(300):
            transport.send(b"%d" % number, to=to)

    threads = [
        threading.Thread(target=work, args=(transport, other))
        for transport, other in ((a, "b"), (b, "a"))
        for work in (receive, send)
    ]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: [b"%d" % number for number in range(300)] for name in "ab"}
    assert time.monotonic() - begin < 15, os.getloadavg()


def test_messages_that_come_by_turns_take_the_straight_path(pair: Callable[..., tuple]) -> None:
    """Where two ask and answer in turn, no message but the first few needs the general way, and
    each is counted.
    """
    a, b, _ = pair()
    general: list[str] = []
    for name, transport, other in (("a", a, "b"), ("b", b, "a")):
        line = transport._lines[other]
        until = line.until

        def counted(*given: Any, until: Any = until, name: str = name, **named: Any) -> Any:
            general.append(name)
            return until(*given, **named)

        line.until = counted

    def answer() -> None:
        for _ in range(200):
            b.send(bytes(b.receive(source="a").data) + b"!", to="a")

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(200):
        a.send(b"%d" % number, to="b")
        came = a.receive(source="b")
        assert (bytes(came.data), came.sequence) == (b"%d!" % number, number)
    thread.join()
    # A busy machine makes pauses, after which the attendant reads.
    assert len(general) < 100, Counter(general)
    for transport, other in ((a, "b"), (b, "a")):
        transport.flush(to=other)
        counted_there = transport.health(other).counted
        assert (
            counted_there["damaged"],
            counted_there["duplicates"],
            counted_there["sent_again"],
        ) == (0, 0, 0)
        assert counted_there["received"] >= 200


def test_a_frame_that_is_not_whole_when_it_is_read_is_waited_for(
    pair: Callable[..., tuple],
) -> None:
    """Whatever a read gives (a part, one frame, two and a part), messages come whole.

    None is kept back.
    """
    a, b, _ = pair()
    sizes = [1, 40_000, 10, 10, 300_000, 5, 32_768 - 64, 32_768, 7]
    for round_ in range(6):
        thread = threading.Thread(
            target=lambda: [b.send(bytes([size % 251]) * size, to="a") for size in sizes]
        )
        thread.start()
        assert [len(a.receive(source="b", timeout=20).data) for _ in sizes] == sizes, round_
        thread.join()
        b.send(b"alone", to="a")
        assert a.receive(source="b", timeout=20).data == b"alone"
