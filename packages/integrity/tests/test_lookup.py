"""Where a peer listens: a store that is slow or gone, or raises what it likes, holds up neither
callers nor lines.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from crossing import QUICK
from rankproof_integrity import (
    DeviceCommunicationManager,
    MemoryStore,
    MessageLate,
    MessageLost,
    Misused,
    PeerRestarted,
    ReliableMessageTransport,
    TransportLimits,
)

SHORT = TransportLimits(deadline=1, silence=0.3, shortest=0.02)


def test_who_waits_for_a_peer_does_not_wait_for_its_address() -> None:
    """While nobody answers where one peer is, a caller's timeout holds, and another peer is talked
    to.
    """
    answered = threading.Event()
    a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
    listens = a.listen(("127.0.0.1", 0))
    a.expect("b")

    def slow() -> tuple[str, int]:
        answered.wait()
        return "127.0.0.1", 1

    b.connect("nobody", slow)
    b.connect("a", listens)
    try:
        begin = time.monotonic()
        with pytest.raises(MessageLate, match="was requested, but has not arrived yet"):
            b.receive(source="nobody", timeout=0.5)
        b.send(b"meanwhile", to="a")
        assert a.receive(source="b", timeout=10).data == b"meanwhile"
        assert time.monotonic() - begin < 5
        assert not answered.is_set()
    finally:
        answered.set()
        b.close()
        a.close()


def test_a_store_that_raises_is_said_and_asked_again() -> None:
    """Whatever the error: the thread of all lines lives on, and once the store answers the message
    comes.
    """
    a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
    listens = a.listen(("127.0.0.1", 0))
    a.expect("b")
    asked = 0

    def raising() -> tuple[str, int]:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise RuntimeError("the store is being restarted")
        assert not isinstance(listens, str)
        return listens

    with a, b:
        b.connect("a", raising)
        b.send(b"x", to="a")
        assert a.receive(source="b").data == b"x"
    assert asked == 4


@pytest.mark.slow
def test_a_store_that_is_gone_is_named_in_the_error() -> None:
    """A message to somebody whom no store knows is lost at its deadline, and the error says why."""
    b = ReliableMessageTransport(node="b", limits=SHORT)

    def gone() -> tuple[str, int]:
        raise RuntimeError("no store")

    b.connect("a", gone)
    b.send(b"x", to="a")
    with pytest.raises(
        MessageLost, match="the peer's address is not known: RuntimeError: no store"
    ):
        b.flush(to="a", timeout=10)
    with contextlib.suppress(MessageLost):
        b.close()


@pytest.mark.slow
def test_a_rank_that_renewed_a_line_is_known_again_after_its_restart() -> None:
    """The epoch of a renewal comes from the store like that of a start: a later start is greater
    than it.
    """
    store = MemoryStore()

    def rank(number: int) -> DeviceCommunicationManager:
        return DeviceCommunicationManager(store=store, rank=number, world_size=2, limits=SHORT)

    first, second = rank(0), rank(1)
    listens = store.get("address/world/0")
    assert listens is not None
    second.send(b"1", to=0)
    assert first.receive(source=1).data == b"1"
    # Nobody listens where it looks: what it sends then is given up on.
    store.set("address/world/0", b'["127.0.0.1", 1]')
    line = second.transport._lines["rank 0"]
    with line._lock:
        line._drop("cut by this test")
    second.send(b"2", to=0)
    with pytest.raises(MessageLost):
        second.transport.flush(to="rank 0", timeout=20)
    store.set("address/world/0", listens)
    second.renew(0)
    with pytest.raises(PeerRestarted):
        first.receive(source=1, timeout=20)
    first.renew(1)
    second.send(b"3", to=0)
    assert first.receive(source=1).data == b"3"
    second.transport._attendant.stop()
    second.transport.let_go()  # as the kernel does when a process is killed
    again = rank(1)
    again.send(b"4", to=0)
    with pytest.raises(PeerRestarted):
        first.receive(source=1, timeout=20)
    first.renew(1)
    assert first.receive(source=1).data == b"4"
    again.close()
    first.close()


def test_an_address_that_others_cannot_use_is_refused() -> None:
    """All addresses of a host, told to another host, would be its own."""
    with pytest.raises(Misused, match=r"other ranks cannot connect to '0\.0\.0\.0'"):
        DeviceCommunicationManager(
            store=MemoryStore(),
            rank=0,
            world_size=1,
            address=("0.0.0.0", 0),  # noqa: S104
        )


def test_a_rank_that_cannot_begin_keeps_nothing_open() -> None:
    """Who tries again until a store or an address is there does not run out of descriptors or
    threads.
    """

    class Gone(MemoryStore):
        def set(self, key: str, value: bytes) -> None:
            if key.startswith("address/"):
                raise OSError("the store is not there")
            super().set(key, value)

    def open_now() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    before = open_now()
    for _ in range(3):
        with pytest.raises(OSError, match="the store is not there"):
            DeviceCommunicationManager(store=Gone(), rank=1, world_size=3)
        with pytest.raises(OSError, match="assign"):
            DeviceCommunicationManager(
                store=MemoryStore(), rank=0, world_size=3, address=("203.0.113.7", 1)
            )
        with pytest.raises(Misused, match="greater than 0 and less"):
            ReliableMessageTransport(node="a", epoch=0)
    assert open_now() == before


def test_a_host_with_several_addresses_is_tried_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost` is two on most machines, of which the peer listens at one: the first may be
    the other.
    """
    known = socket.getaddrinfo

    def both(host: str, port: int, **given: Any) -> list[Any]:
        if host != "both":
            return known(host, port, **given)
        return [*known("127.0.0.2", port, **given), *known("127.0.0.1", port, **given)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
    with a, b:
        a.expect("b")
        b.connect("a", ("both", a.listen(("127.0.0.1", 0))[1]))  # type: ignore[arg-type]
        b.send(b"x", to="a")
        assert a.receive(source="b").data == b"x"


@pytest.mark.parametrize(
    "odd",
    [
        "127.0.0.1:4000",
        "host:0",
        "",
        ("127.0.0.1", "4000"),
        ("127.0.0.1",),
        ("a", 2**16),
        b"path",
        None,
    ],
)
def test_what_is_no_address_is_refused(
    odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host and a port in one text would be a file of that name, at which nobody listens."""
    monkeypatch.chdir(tmp_path)
    with ReliableMessageTransport(node="a", limits=QUICK) as a:
        with pytest.raises(Misused, match="an address must be a host and a port"):
            a.listen(odd)
        with pytest.raises(Misused, match="an address must be a host and a port"):
            a.connect("b", odd)
        assert list(tmp_path.iterdir()) == []


def test_a_list_is_an_address_too() -> None:
    """As JSON gives one, which ranks tell each other."""
    with ReliableMessageTransport(node="a") as a, ReliableMessageTransport(node="b") as b:
        a.expect("b")
        b.connect("a", list(a.listen(["127.0.0.1", 0])))  # type: ignore[arg-type]
        b.send(b"x", to="a")
        assert a.receive(source="b").data == b"x"
