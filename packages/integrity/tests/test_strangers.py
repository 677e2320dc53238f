"""Whoever else reaches a transport's port: garbage, other protocols, silence, and headers that
announce too much.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossing import QUICK
from rankproof_integrity import ReliableMessageTransport, TransportLimits, frame
from rankproof_integrity.attendant import Attendant
from rankproof_integrity.frame import Kind
from rankproof_integrity.meeting import STRANGERS

HELLO = frame.packed(kind=Kind.HELLO, epoch=1, toward=0, length=2)
ENDLESS = HELLO + b"xy"


def talk(address: tuple[str, int], said: bytes) -> bytes:
    """What a stranger hears who says this; nothing, where the connection was closed on him."""
    with socket.create_connection(address, timeout=10) as stranger:
        try:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            return stranger.recv(1)
        except OSError:  # closed before he had said it all
            return b""


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"Cookie: 1\r\n" * 10_000,
        b"\x16\x03\x01\x02\x00\x01" + bytes(range(256)) * 100,
        ENDLESS * 50_000,
        frame.packed(kind=Kind.HELLO, epoch=1, toward=0, length=2**31),
        frame.packed(kind=Kind.DATA, epoch=1, toward=0, length=2**20) + bytes(2**20),
    ],
    ids=["silence", "HTTP", "TLS", "endless headers", "2 GiB announced", "no greeting"],
)
def test_a_stranger_is_told_nothing_and_disturbs_nobody(
    pair: Callable[..., tuple], said: bytes
) -> None:
    """Whatever he says, the connection is closed on him; the peers' own is the one it was."""
    # So that a busy machine is not taken for a silent peer.
    a, b, way = pair(TransportLimits(deadline=20, silence=20))
    b.send(b"before", to="a")
    assert a.receive(source="b").data == b"before"
    address = next(iter(a._attendant._listeners.values()))[0].getsockname()
    assert talk(address, said) == b""
    b.send(b"after", to="a")
    assert a.receive(source="b").data == b"after"
    assert way.connections == 1


def test_no_memory_is_given_to_a_stranger_before_he_says_who_he_is() -> None:
    """A header that announces 200 MiB, which a peer might send, has nothing made ready for it, and
    ends at once.
    """
    with ReliableMessageTransport(node="a") as a:
        address = a.listen(("127.0.0.1", 0))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with socket.create_connection(address, timeout=2) as stranger:
            stranger.sendall(frame.packed(kind=Kind.HELLO, epoch=1, toward=0, length=200 * 2**20))
            assert stranger.recv(1) == b""
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


def test_those_who_say_nothing_keep_no_peer_out() -> None:
    """With more silent connections than are borne, a peer that connects is met within its first
    tries.
    """
    a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
    address = a.listen(("127.0.0.1", 0))
    a.expect("b")
    with a, b, contextlib.ExitStack() as silent:
        for _ in range(STRANGERS + 20):
            silent.enter_context(socket.create_connection(address))
        b.connect("a", address)
        b.send(b"here", to="a")
        assert a.receive(source="b", timeout=2).data == b"here"


def test_a_full_table_of_descriptors_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While none is free nobody can be accepted, and the attendant does not spin.

    Once one is, the peer is met.
    """
    tries = 0
    accept = Attendant._accept

    def counted(self: Attendant, *listener: Any) -> None:
        nonlocal tries
        tries += 1
        accept(self, *listener)

    monkeypatch.setattr(Attendant, "_accept", counted)
    a, b = (ReliableMessageTransport(node=name, limits=QUICK) for name in "ab")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with a, b, contextlib.ExitStack() as held:
        address = a.listen(("127.0.0.1", 0))
        a.expect("b")
        b.connect("a", address)
        b.send(b"before", to="a")
        assert a.receive(source="b").data == b"before"
        stranger = held.enter_context(socket.socket())
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 8, hard)
        )
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            tries = 0
            stranger.connect(address)
            for number in range(20):
                b.send(b"%d" % number, to="a")
                assert a.receive(source="b").data == b"%d" % number
                with contextlib.suppress(TimeoutError):
                    stranger.settimeout(0.02)
                    stranger.recv(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert 1 <= tries < 20
        held.close()
