"""How a transport ends: nothing that was sent is lost, and nobody waits for what does not come."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crossing import QUICK
from rankproof_integrity import (
    MessageLate,
    MessageLost,
    Misused,
    ReliableMessageTransport,
    TransportLimits,
)


def test_who_closed_is_said_and_nothing_that_was_sent_is_lost(pair: Callable[..., tuple]) -> None:
    """What was sent before a close is received after it.

    Then the error says that the peer closed after so many.
    """
    a, b, _ = pair()
    b.send(b"last", to="a")
    b.close()
    assert a.receive(source="b").data == b"last"
    with pytest.raises(
        MessageLost, match="message 1 from b will not arrive, because b closed after sending 1"
    ):
        a.receive(source="b")
    with pytest.raises(MessageLost, match="message 0 to b is lost: b has closed"):
        a.send(b"too late", to="b")


def test_what_a_peer_that_closed_had_not_taken_is_named(pair: Callable[..., tuple]) -> None:
    """They came there, so that they are not sent again.

    Who sends the next is told which, and from which to go on.
    """
    a, b, _ = pair()
    a.send(b"taken", to="b")
    b.receive(source="a")
    for _ in range(2):
        a.send(b"not taken", to="b")
    a.flush(to="b")
    b.close()
    with pytest.raises(MessageLost, match="b closed after sending 0"):
        a.receive(source="b")
    with pytest.raises(
        MessageLost, match=r"message 3 to b is lost: b has closed .*messages 1 to 2 had arrived"
    ) as caught:
        a.send(b"too late", to="b")
    assert caught.value.sequence == 1


def test_who_closes_while_a_connection_is_broken_tells_its_peer_first(
    pair: Callable[..., tuple],
) -> None:
    """What was taken is acknowledged over the next connection: its sender does not call it lost."""
    a, b, way = pair()
    b.send(b"taken", to="a")
    assert a.receive(source="b").data == b"taken"
    way.held.clear()
    way.cut()
    while a.connected("b"):
        with contextlib.suppress(MessageLate):
            a.receive(source="b", timeout=0.05)
    closing = threading.Thread(target=a.close, daemon=True)
    closing.start()
    way.held.set()
    b.flush(to="a", timeout=5)
    closing.join(10)
    assert not closing.is_alive()


def test_who_waits_while_another_thread_closes_is_told(pair: Callable[..., tuple]) -> None:
    """A thread that polls and one that waits for it end at once when the transport is closed, each
    with one error.
    """
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
        with pytest.raises(
            Misused, match="the transport of a was closed during this call"
        ) as caught:
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
    """Two that say goodbye at the same moment, with a last message on its way each, both close.

    None waits for long.
    """
    for turn in often(5, soak=2000):
        a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
        a.listen(str(tmp_path / f"{turn}"))
        a.expect("b")
        b.connect("a", str(tmp_path / f"{turn}"))
        a.send(b"hello", to="b")
        b.receive(source="a")
        ready = threading.Barrier(2)

        def close(
            transport: ReliableMessageTransport, to: str, ready: threading.Barrier = ready
        ) -> None:
            transport.send(b"last", to=to)
            ready.wait()
            transport.close()

        other = threading.Thread(target=close, args=(b, "a"))
        begin = time.monotonic()
        other.start()
        close(a, "b")
        other.join()
        assert time.monotonic() - begin < QUICK.deadline / 2, os.getloadavg()


@pytest.mark.slow
def test_a_flush_is_answered_whatever_the_other_end_does(
    tmp_path: Path, often: Callable[..., range]
) -> None:
    """Whether its callers poll, have just been or come no more, a peer answers who waits: long
    before its own time.
    """
    limits = TransportLimits(
        silence=40, deadline=40
    )  # of itself it would acknowledge after 10 seconds
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


def test_what_is_sent_after_the_goodbye_is_refused_at_once(pair: Callable[..., tuple]) -> None:
    """While another thread closes, which may take long: its peer stands still here."""
    a, b, way = pair(TransportLimits(deadline=60, silence=60, shortest=0.02))
    a.send(b"x", to="b")
    b.receive(source="a")
    way.held.clear()
    closing = threading.Thread(target=a.close, daemon=True)
    closing.start()
    found: list[BaseException] = []

    def send() -> None:
        try:
            while True:
                a.send(b"too late", to="b")
        except Misused as error:
            found.append(error)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(30)
    way.held.set()
    closing.join(30)
    assert not closing.is_alive()
    assert "a is closing its connection to b" in str(found[0])


@pytest.mark.slow
def test_several_may_close_at_once(pair: Callable[..., tuple], often: Callable[..., range]) -> None:
    """Threads that close the same transport at once: one does, the others wait for it, and nothing
    is closed twice.
    """
    for _ in often(10, soak=500):
        a, b, _ = pair()
        b.send(b"last", to="a")
        found: list[BaseException | bool] = []

        def close(
            b: ReliableMessageTransport = b, found: list[BaseException | bool] = found
        ) -> None:
            try:
                b.close()
                found.append(b._closed)
            # Told to the test, which is in another thread.
            except BaseException as error:  # noqa: BLE001
                found.append(error)

        threads = [threading.Thread(target=close, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert found == [True] * 3
        assert a.receive(source="b").data == b"last"


@pytest.mark.slow
def test_what_is_sent_while_another_thread_closes_comes_or_is_refused(
    pair: Callable[..., tuple], often: Callable[..., range]
) -> None:
    """A send that returned was before the goodbye, and comes; one that is too late is refused."""
    for _ in often(2, soak=100):
        a, b, _ = pair()
        sent = [0] * 3

        def send(thread: int, b: ReliableMessageTransport = b, sent: list[int] = sent) -> None:
            with contextlib.suppress(Misused):
                while True:
                    b.send(b"%d" % thread, to="a")
                    sent[thread] += 1

        threads = [threading.Thread(target=send, args=(at,), daemon=True) for at in range(3)]
        for thread in threads:
            thread.start()
        came = [bytes(a.receive(source="b").data) for _ in range(30)]
        closing = threading.Thread(target=b.close, daemon=True)
        closing.start()
        with contextlib.suppress(MessageLost):  # it closed
            while True:
                came.append(bytes(a.receive(source="b").data))
        for thread in (closing, *threads):
            thread.join(20)
            assert not thread.is_alive()
        assert [came.count(b"%d" % at) for at in range(3)] == sent


CLOSES_IN_A_HANDLER = """
import os, signal, sys, threading
from rankproof_integrity import TransportLimits, Misused, ReliableMessageTransport

a, b = (ReliableMessageTransport(node=name, limits=TransportLimits(deadline=600)) for name in "ab")
a.expect("b")
b.connect("a", a.listen(("127.0.0.1", 0)))
for _ in range(TURNS):  # the more, the straighter the path on which the next one waits
    b.send(b"x", to="a")
    a.receive(source="b")
a.send(b"last", to="b")

class Struck:
    def __init__(self, poll):
        self.register, self.ask = poll.register, poll.poll

    def poll(self, *given):
        signal.raise_signal(signal.SIGUSR1)
        return self.ask(*given)

def handler(*_):
    line._poll = line._poll if line._poll is not struck else struck.ask.__self__
    a.close()
    LEAVES

line = a._lines["b"]
struck = line._poll = Struck(line._poll)
signal.signal(signal.SIGUSR1, handler)
try:
    a.receive(source="b")
except Misused as error:
    print(error)
finally:
    a.close()
    print(bytes(b.receive(source="a").data))
    b.close()
    print(threading.active_count())
"""


@pytest.mark.parametrize("turns", [1, 6])
@pytest.mark.parametrize(
    ("leaves", "said"),
    [("pass", "the transport of a was closed during this call\n"), ("sys.exit()", "")],
)
def test_a_signals_handler_may_close(turns: int, leaves: str, said: str) -> None:
    """Its thread is in the midst of a receive, which ends after the handler only: neither waits for
    the other.
    """
    program = CLOSES_IN_A_HANDLER.replace("TURNS", str(turns)).replace("LEAVES", leaves)
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert (found.stdout, found.stderr) == (f"{said}b'last'\n1\n", "")
