"""The transport between real processes: killed, started again, reset, stopped, and over datagrams that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.integrity import (
    Limits,
    MessageLate,
    MessageLost,
    Misused,
    PeerRestarted,
    ReliableMessageTransport,
    TransferFailed,
    TransferResult,
    ValidatedMessage,
    frame,
)

QUICK = Limits(deadline=20, silence=0.5, shortest=0.02)

ECHO = """
import sys
from harness.integrity import Limits, ReliableMessageTransport, TransferFailed
host, port = sys.argv[1], int(sys.argv[2])
with ReliableMessageTransport(node="b", limits=Limits(deadline=20, silence=0.5, shortest=0.02)) as transport:
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


class Crossing:
    """A way for streams that a test can break: it hands bytes on, and changes, cuts or holds them when told."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to, self._listener = to, socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.flip_at: list[int] = []
        self.cut_after: list[int] = []
        self.held = threading.Event()
        self.held.set()
        self.connections = self.flipped = 0
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
                other = socket.create_connection(self._to)
            except OSError:
                return
            self.connections += 1
            self._ends += [one, other]
            for ends in ((one, other), (other, one)):
                self._threads.append(threading.Thread(target=self._carry, args=ends, daemon=True))
                self._threads[-1].start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        passed = 0
        try:
            while data := one.recv(65536):
                self.held.wait()
                for at in [at for at in self.flip_at if passed <= at < passed + len(data)]:
                    self.flip_at.remove(at)
                    changed = bytearray(data)
                    changed[at - passed] ^= 1 << at % 8
                    data = bytes(changed)
                    self.flipped += 1
                passed += len(data)
                other.sendall(data)
                if self.cut_after and passed >= self.cut_after[0]:
                    self.cut_after.pop(0)
                    break
        except OSError:
            pass
        for end in (one, other):
            with contextlib.suppress(OSError):  # the other thread was first
                # As a reset: whatever lies in either's buffers is lost.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            let_go(end)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.held.set()
        for end in self._ends:
            let_go(end)
        for thread in self._threads:
            thread.join()


def let_go(end: socket.socket) -> None:
    """Close a socket that another thread may read: until that is woken, the kernel keeps the connection."""
    with contextlib.suppress(OSError):  # it is closed
        end.shutdown(socket.SHUT_RD)
    end.close()


@pytest.fixture
def pair() -> Iterator[Callable[..., tuple[ReliableMessageTransport, ReliableMessageTransport, Crossing]]]:
    made: list[ReliableMessageTransport] = []
    ways: list[Crossing] = []

    def make(limits: Limits = QUICK) -> tuple[ReliableMessageTransport, ReliableMessageTransport, Crossing]:
        a, b = (ReliableMessageTransport(node=name, limits=limits) for name in "ab")
        made.extend((a, b))
        address = a.listen(("127.0.0.1", 0))
        assert not isinstance(address, str)
        a.expect("b")
        ways.append(Crossing(address))
        b.connect("a", ways[-1].address)
        return a, b, ways[-1]

    yield make
    for way in ways:
        way.close()
    for transport in made:
        with contextlib.suppress(TransferFailed):
            transport.close(timeout=0.1)


def test_messages_pass_flips_and_resets_unchanged_and_in_order(pair: Callable[..., tuple]) -> None:
    """With bits flipped in headers and payloads and the connection reset, what was sent comes, once and in order."""
    a, b, way = pair()
    chance = random.Random(5)
    sizes = [chance.choice([0, 1, 100, 5000, 70_000]) for _ in range(200)]
    sent = [chance.randbytes(size) for size in sizes]
    total = sum(sizes)
    way.flip_at += sorted(chance.randrange(total // 8) for _ in range(20))
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


def test_by_the_names_of_the_design_who_sends_waits_until_it_is_there(pair: Callable[..., tuple]) -> None:
    """`send_with_validation` says when the peer has a message whose digest it checked; a clean link mended nothing."""
    a, b, _ = pair()

    async def both() -> tuple[TransferResult, ValidatedMessage]:
        return await asyncio.gather(b.send_with_validation(b"token", "a"), a.receive_with_validation("b"))

    told, came = asyncio.run(both())
    assert (told.peer, told.sequence, told.sent_again, bytes(came.data)) == ("a", 0, 0, b"token")
    assert set(a.monitor.mended().values()) == {0}


@pytest.mark.slow
def test_a_stalled_connection_is_made_anew(pair: Callable[..., tuple]) -> None:
    """Where nothing is heard for a while, the connection is given up, and what was on it is sent on the next."""
    a, b, way = pair()
    b.send(b"before", to="a")
    assert a.receive(source="b").data == b"before"
    way.held.clear()
    b.send(b"during", to="a")
    with pytest.raises(MessageLate, match=r"message 1 from b did not come within 1\.5 s .*nothing was heard"):
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
def test_a_peer_that_is_gone_is_one_error_that_names_the_message(echo: Callable[..., subprocess.Popen]) -> None:
    """A killed peer that never comes back: the first message that it did not take is named, with what was tried."""
    limits = Limits(deadline=1, silence=0.3, shortest=0.02)
    a = ReliableMessageTransport(node="a", limits=limits)
    process = echo(a.listen(("127.0.0.1", 0)))
    a.expect("b")
    with pytest.raises(MessageLate, match=r"from b did not come within 0 s \(not connected"):
        a.receive(source="b", timeout=0)
    assert process_is_there(a)
    process.kill()
    process.wait()
    a.send(b"y", to="b")
    with pytest.raises(MessageLost, match=r"message 1 to b is lost: not acknowledged within 1 s \(sent") as caught:
        a.flush(to="b", timeout=10)
    with pytest.raises(MessageLost, match=r"message 1 to b is lost"):
        a.close()
    assert (caught.value.peer, caught.value.sequence) == ("b", 1)


@pytest.mark.slow
def test_a_peer_that_begins_again_is_said_and_can_be_renewed(echo: Callable[..., subprocess.Popen]) -> None:
    """After a kill and a new start the error says what the old one may not have had; renewed, numbers begin at 0."""
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
        with pytest.raises(PeerRestarted, match=r"messages 3 to 3 had been sent .*renew\('b'\)") as caught:
            a.receive(source="b")
        assert caught.value.sequence == 3
        a.renew("b")
        a.send(b"again", to="b")
        assert a.receive(source="b").data == b"0 again"


@pytest.mark.slow
def test_a_stopped_peer_is_waited_for(echo: Callable[..., subprocess.Popen]) -> None:
    """A peer that stands still for longer than a connection lives goes on where it was: nothing is lost or doubled."""
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
    """Buffers are bounded: with nobody receiving, send waits and then says who has not taken what."""
    a, b, _ = pair(Limits(window=100_000, deadline=20))
    sent = 9
    for _ in range(sent):
        b.send(bytes(10_000), to="a")
    with pytest.raises(MessageLate, match="message 9 to a was not sent: a has not taken messages 0 to 8"):
        b.send(bytes(10_000), to="a", timeout=0.3)
    assert [a.receive(source="b").sequence for _ in range(sent)] == list(range(sent))
    assert b.send(b"", to="a") == sent


@pytest.mark.slow
def test_datagrams_that_are_lost_doubled_and_reordered_become_messages(often: Callable[..., range]) -> None:
    """Over a way that loses, doubles and reorders datagrams, messages of many datagrams come once and in order."""
    for seed in often(1, soak=20):
        over_a_bad_way(seed)


def over_a_bad_way(seed: int) -> None:
    chance = random.Random(seed)
    ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(4)]
    for end in ends:
        end.bind(("127.0.0.1", 0))
    ours, theirs, near, far = ends
    names = [end.getsockname() for end in ends]
    stop = threading.Event()
    struck = [0]

    def carry(come: socket.socket, go: socket.socket, to: tuple[str, int]) -> None:
        held: list[bytes] = []
        come.settimeout(0.05)
        while not stop.is_set():
            try:
                data = come.recv(70_000)
            except TimeoutError:
                continue
            fate = chance.random()
            struck[0] += fate < 0.2
            if fate < 0.1:
                continue
            if fate < 0.15:
                held.append(data)
                continue
            for one in [data, *([data] if fate < 0.2 else []), *held]:
                go.sendto(one, to)
            held.clear()

    carriers = [
        threading.Thread(target=carry, args=(near, far, names[1])),
        threading.Thread(target=carry, args=(far, near, names[0])),
    ]
    for carrier in carriers:
        carrier.start()
    with (
        ReliableMessageTransport(node="a", limits=QUICK) as a,
        ReliableMessageTransport(node="b", limits=QUICK) as b,
    ):
        a.datagrams("b", ours, names[2])
        b.datagrams("a", theirs, names[3])
        sent = [chance.randbytes(chance.randrange(6000)) for _ in range(60)]
        for data in sent:
            a.send(data, to="b")
        assert [bytes(b.receive(source="a").data) for _ in sent] == sent
        a.flush(to="b")
        assert a.health("b").counted["sent_again"]
        assert struck[0]
    stop.set()
    for carrier in carriers:
        carrier.join()
    near.close()
    far.close()


def test_who_closed_is_said_and_nothing_that_was_sent_is_lost(pair: Callable[..., tuple]) -> None:
    """What was sent before a close is received after it; then the error says that the peer closed after so many."""
    a, b, _ = pair()
    b.send(b"last", to="a")
    b.close()
    assert a.receive(source="b").data == b"last"
    with pytest.raises(MessageLost, match="no message 1 from b: it closed after sending 1"):
        a.receive(source="b")
    with pytest.raises(MessageLost, match="b has closed"):
        a.send(b"too late", to="b")


def test_who_says_goodbye_over_datagrams_answers_still(tmp_path: Path) -> None:
    """A peer whose message was taken, and whose acknowledgements were lost, is answered after the goodbye."""
    ends = {name: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for name in ("a", "b", "near", "far")}
    for name, end in ends.items():
        end.bind(str(tmp_path / name))
    stop, lost = threading.Event(), []

    def carry(come: str, go: str, to: str) -> None:
        ends[come].settimeout(0.05)
        while not stop.is_set():
            with contextlib.suppress(OSError):
                data = ends[come].recv(70_000)
                header = frame.parsed(data[: frame.SIZE])
                if to == "b" and header is not None and header.acknowledged >= 2 and len(lost) < 3:
                    lost.append(header.kind)
                    continue
                ends[go].sendto(data, str(tmp_path / to))

    ways = [("near", "far", "b"), ("far", "near", "a")]
    carriers = [threading.Thread(target=carry, args=way, daemon=True) for way in ways]
    for carrier in carriers:
        carrier.start()
    a, b = (ReliableMessageTransport(node=node, limits=QUICK) for node in ("a", "b"))
    a.datagrams("b", ends["a"], str(tmp_path / "near"))
    b.datagrams("a", ends["b"], str(tmp_path / "far"))
    b.send(b"first", to="a")
    b.flush(to="a")
    b.send(b"last", to="a")
    assert [bytes(a.receive(source="b").data) for _ in range(2)] == [b"first", b"last"]
    leaving = threading.Thread(target=a.close, daemon=True)
    leaving.start()
    b.close(timeout=3)
    leaving.join(timeout=5)
    stop.set()
    for carrier in carriers:
        carrier.join()
    for name in ("near", "far"):
        ends[name].close()
    assert len(lost) == 3


def test_a_slip_of_the_caller_is_said_and_sends_nothing(tmp_path: Path) -> None:
    """A peer that does not exist, one that is there twice, a message that is too long, a transport that is closed."""
    a = ReliableMessageTransport(node="a", limits=Limits(message=10))
    a.listen(str(tmp_path / "a"))
    a.expect("b")
    with pytest.raises(Misused, match="has no line to 'c'; it has lines to: b"):
        a.send(b"", to="c")
    with pytest.raises(Misused, match="has a line to 'b' already"):
        a.expect("b")
    with pytest.raises(Misused, match="11 bytes for b is longer than 10"):
        a.send(bytes(11), to="b")
    a.close()
    with pytest.raises(Misused, match="is closed"):
        a.send(b"", to="b")


def test_what_is_changed_after_it_was_sent_is_sent_as_it_was(tmp_path: Path) -> None:
    """A buffer that its owner may change is copied; nobody is connected yet when it is changed here."""
    with ReliableMessageTransport(node="a") as a, ReliableMessageTransport(node="b") as b:
        a.listen(str(tmp_path / "a"))
        b.connect("a", str(tmp_path / "a"))
        data = bytearray(b"before")
        b.send(data, to="a")
        data[:] = b"after!"
        a.expect("b")
        assert a.receive(source="b").data == b"before"


def test_who_waits_while_another_thread_closes_is_told(pair: Callable[..., tuple]) -> None:
    """A thread that polls and one that waits for it end at once when the transport is closed, each with one error."""
    a, b, _ = pair()
    b.send(b"x", to="a")
    a.receive(source="b")
    waiting, told = threading.Semaphore(0), []
    line = a._lines["b"]
    wait = line._wait

    def counted(seconds: float) -> bool:
        waiting.release()
        return bool(wait(seconds))

    line._wait = counted

    def receive() -> None:
        with pytest.raises(Misused, match="the transport of a was closed meanwhile") as caught:
            a.receive(source="b", timeout=60)
        told.append(caught.value)

    threads = [threading.Thread(target=receive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert waiting.acquire(timeout=20)
    begin = time.monotonic()
    a.close()
    for thread in threads:
        thread.join()
    assert len(told) == 2
    assert time.monotonic() - begin < 15, os.getloadavg()


def test_both_may_close_at_once(tmp_path: Path, often: Callable[..., range]) -> None:
    """Two that say goodbye at the same moment, with a last message on its way each, both close; none waits for long."""
    for turn in often(5, soak=2000):
        a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
        a.listen(str(tmp_path / f"{turn}"))
        a.expect("b")
        b.connect("a", str(tmp_path / f"{turn}"))
        a.send(b"hello", to="b")
        b.receive(source="a")
        ready = threading.Barrier(2)

        def close(transport: ReliableMessageTransport, to: str, ready: threading.Barrier = ready) -> None:
            transport.send(b"last", to=to)
            ready.wait()
            transport.close()

        other = threading.Thread(target=close, args=(b, "a"))
        begin = time.monotonic()
        other.start()
        close(a, "b")
        other.join()
        assert time.monotonic() - begin < QUICK.deadline / 2, os.getloadavg()


def test_a_flush_is_answered_whatever_the_other_end_does(tmp_path: Path, often: Callable[..., range]) -> None:
    """Whether its callers poll, have just been or come no more, a peer answers who waits: long before its own time."""
    limits = Limits(silence=40, deadline=40)  # of itself it would acknowledge after 10 seconds
    with (
        ReliableMessageTransport(node="a", limits=limits) as a,
        ReliableMessageTransport(node="b", limits=limits) as b,
    ):
        a.listen(str(tmp_path / "a"))
        a.expect("b")
        b.connect("a", str(tmp_path / "a"))
        for turn in often(20, soak=5000):
            for _ in range(turn % 4):  # calls that follow each other at once are expected to go on
                with contextlib.suppress(MessageLate):
                    b.receive(source="a", timeout=0)
            a.send(b"x", to="b")
            if turn % 3 == 1:
                b.receive(source="a")
            a.flush(to="b", timeout=8)
            while b._lines["a"].conversation.incoming.waiting:
                b.receive(source="a")


def test_several_threads_share_a_line(pair: Callable[..., tuple]) -> None:
    """Threads that send and receive at once on both ends of one line neither wait for each other nor mix messages."""
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
