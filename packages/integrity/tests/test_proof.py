"""Whoever has a socket and this source, and not the group's key: nothing is delivered for them,
nothing is told to them, and nobody is shut out by them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossing import QUICK
from rankproof_integrity import (
    MessageLate,
    Misused,
    ReliableMessageTransport,
    TransferFailed,
    frame,
    key_from_environment,
    key_from_file,
)
from rankproof_integrity.digest import digest
from rankproof_integrity.frame import Greeting, Kind
from rankproof_integrity.meeting import STRANGERS
from rankproof_integrity.proof import INITIATOR, LISTENER, Introduction, Session, Unproved, opened
from rankproof_integrity.reader import FrameReader, Torn

KEY = b"the key of this group, as of now"
OTHER_KEY = b"the key of some other group, not"
SECRET = "node-of-secret-name"  # noqa: S105 - a name that nobody is to be told


def packed(kind: Kind, payload: bytes, **given: Any) -> bytes:
    known = {"epoch": 0, "toward": 0, "length": len(payload), "payload_digest": digest(payload)}
    return frame.packed(kind=kind, **known | given) + payload


class Talk:
    """A connection of an adversary, who reads frames as the library does."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(10)
        self._reader = FrameReader(longest=2**20)
        self.heard = b""

    def say(self, *data: bytes) -> None:
        with contextlib.suppress(OSError):  # it was closed on him
            self.socket.sendall(b"".join(data))

    def next(self) -> tuple[frame.Header, bytes] | None:
        """The next frame; None where the connection is closed."""
        while (came := self._reader.next_frame()) is None:
            room = self._reader.room()
            size = 0
            with contextlib.suppress(OSError):
                size = self.socket.recv_into(room)
            if not size:
                self.socket.close()
                return None
            self.heard += bytes(room[:size])
            self._reader.came(size)
        return came[0], bytes(came[1])

    def rest(self) -> bytes:
        """Whatever else is said until it is closed."""
        while self.next() is not None:
            pass
        return self.heard


@contextlib.contextmanager
def group(key: bytes | None = KEY) -> Iterator[tuple[Any, Any, tuple[str, int]]]:
    """Two nodes that know each other; the first listens."""
    a = ReliableMessageTransport(node=f"a {SECRET}", key=key, epoch=7_000_000_019, limits=QUICK)
    b = ReliableMessageTransport(node=f"b {SECRET}", key=key, epoch=7_000_000_021, limits=QUICK)
    with a, b:
        address = a.listen(("127.0.0.1", 0))
        a.expect(b.node)
        b.connect(a.node, address)
        b.send(b"first", to=a.node)
        assert a.receive(source=b.node).data == b"first"
        yield a, b, address


def undisturbed(a: Any, b: Any) -> None:
    """The two talk on, over the connection that they had."""
    connections = a.health(b.node).counted["connections"]
    b.send(b"next", to=a.node)
    assert a.receive(source=b.node).data == b"next"
    a.send(b"answer", to=b.node)
    assert b.receive(source=a.node).data == b"answer"
    assert a.health(b.node).counted["connections"] == connections


def hello(a: Any, b: Any, *, epoch: int) -> bytes:
    """The greeting with which b's place could be taken, without a key."""
    words = Greeting(b.node, a.node, 2**20).packed()
    return packed(Kind.HELLO, words, epoch=epoch, toward=a.epoch, sequence=2**20)


@pytest.mark.parametrize("epoch", [1, 7_000_000_021, 7_000_000_022, 2**64 - 1])
def test_who_knows_all_but_the_key_takes_nobodys_place(epoch: int) -> None:
    """Names, epochs and numbers of frames are known: nothing he sends is delivered, and the peer
    whose name he used talks on.
    """
    with group() as (a, b, address):
        forged = packed(Kind.DATA, b"forged", epoch=epoch, toward=a.epoch, sequence=1)
        for begin in (b"", packed(Kind.NONCE, os.urandom(32))):
            for proof in (b"", packed(Kind.PROOF, os.urandom(32))):
                stranger = Talk(socket.create_connection(address))
                stranger.say(begin, proof, hello(a, b, epoch=epoch), forged)
                said = stranger.rest()
                assert SECRET.encode() not in said
                assert a.epoch.to_bytes(8, "big") not in said
                assert b.epoch.to_bytes(8, "big") not in said
        undisturbed(a, b)


def test_a_tag_is_of_no_use_anywhere_else() -> None:
    """What the listener proves cannot be given back to it, nor on another connection."""
    with group() as (a, b, address):
        one, other = (Talk(socket.create_connection(address)) for _ in range(2))
        for talk in (one, other):
            talk.say(packed(Kind.NONCE, bytes(32)))
        nonces = [talk.next() for talk in (one, other)]
        assert nonces[0] is not None
        assert nonces[1] is not None
        assert nonces[0][1] != nonces[1][1]
        # The right tag of the first connection, on the second.
        mine = Session(KEY, INITIATOR, LISTENER, (bytes(32), nonces[0][1]))
        other.say(packed(Kind.PROOF, mine.seal()))
        answer = other.next()
        assert answer is not None
        assert answer[0].kind is Kind.FAIL
        # The tag that the listener itself would make, on its own connection.
        theirs = Session(KEY, LISTENER, INITIATOR, (bytes(32), nonces[0][1]))
        one.say(packed(Kind.PROOF, theirs.seal()))
        answer = one.next()
        assert answer is not None
        assert answer[0].kind is Kind.FAIL
        assert one.next() is None
        assert other.next() is None
        undisturbed(a, b)


@pytest.mark.parametrize("change", ["names", "epoch", "window", "seal", "none"])
def test_a_greeting_that_was_changed_is_not_taken(change: str) -> None:
    """After the proof names and epochs are held to their connection by a seal."""
    with group() as (a, b, address):
        talk = Talk(socket.create_connection(address))
        nonce = os.urandom(32)
        talk.say(packed(Kind.NONCE, nonce))
        came = talk.next()
        assert came is not None
        session = Session(KEY, INITIATOR, LISTENER, (nonce, came[1]))
        talk.say(packed(Kind.PROOF, session.seal()))
        came = talk.next()
        assert came is not None
        assert came[0].kind is Kind.PROOF
        assert session.holds(came[1])
        words = Greeting(b.node, a.node, 2**20).packed()
        fields = {"epoch": b.epoch + 5, "toward": 0, "sequence": 2**20}
        blank = frame.packed(kind=Kind.HELLO, length=len(words) + 32, **fields)
        header = frame.parsed(blank)
        assert header is not None
        seal = session.seal(frame.said(header), words)
        if change == "names":
            words = words.replace(b"b ", b"c ", 1)
        elif change == "epoch":
            fields["epoch"] += 1
        elif change == "window":
            fields["sequence"] += 1
        elif change == "seal":
            seal = seal[:-1] + bytes([seal[-1] ^ 1])
        talk.say(packed(Kind.HELLO, words + seal, **fields))
        answer = talk.next()
        if change == "none":
            # A member of the group, which may say so: its peer began again, as far as a knows.
            assert answer is not None
            assert answer[0].kind is Kind.HELLO
            with pytest.raises(TransferFailed, match="restarted"):
                a.receive(source=b.node)
            talk.socket.close()
            with contextlib.suppress(TransferFailed):
                a.close(timeout=0)
            return
        assert answer is None
        undisturbed(a, b)


def test_who_listens_in_a_peers_place_learns_nothing() -> None:
    """A node that connects to an impostor tells him neither name nor epoch, and gives him no
    message; when the peer is back, the message comes.
    """
    secret = b"hidden state, not for strangers"
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        address = impostor.getsockname()
        b = ReliableMessageTransport(node=f"b {SECRET}", key=KEY, epoch=7_000_000_021, limits=QUICK)
        b.connect(f"a {SECRET}", address)
        b.send(secret, to=f"a {SECRET}")
        said = b""
        answers = [
            b"",
            packed(Kind.NONCE, bytes(32)),
            packed(Kind.NONCE, bytes(32)) + packed(Kind.PROOF, os.urandom(32)),
            packed(Kind.FAIL, b"gone", flags=frame.REFUSED | frame.ANOTHER | frame.BEFORE),
            packed(Kind.HELLO, Greeting(f"a {SECRET}", f"b {SECRET}", 1).packed(), epoch=1),
        ]
        for answer in answers:
            connected, _ = impostor.accept()
            talk = Talk(connected)
            first = talk.next()
            assert first is not None
            assert first[0].kind is Kind.NONCE
            talk.say(answer)
            if not answer:
                connected.shutdown(socket.SHUT_WR)
            said += talk.rest()
            connected.close()
    assert SECRET.encode() not in said
    assert secret not in said
    assert b.epoch.to_bytes(8, "big") not in said
    with b, ReliableMessageTransport(node=f"a {SECRET}", key=KEY, limits=QUICK) as a:
        a.listen(address[:2])
        a.expect(b.node)
        assert a.receive(source=b.node).data == secret


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (KEY, OTHER_KEY, "the keys differ; give both nodes the same key"),
        (KEY, None, "a key is required here; give both nodes the key of the group"),
        (None, KEY, "this node has no key; give both nodes the key of the group, or neither"),
    ],
)
def test_nodes_that_do_not_share_a_key_are_told_why(
    ours: bytes | None, theirs: bytes | None, words: str
) -> None:
    """Whoever of them waits is told what to do, and no message comes."""
    a = ReliableMessageTransport(node="a", key=ours, limits=QUICK)
    b = ReliableMessageTransport(node="b", key=theirs, limits=QUICK)
    address = a.listen(("127.0.0.1", 0))
    a.expect("b")
    b.connect("a", address)
    b.send(b"x", to="a")
    told = ""
    for _ in range(50):
        with pytest.raises(MessageLate) as late:
            b.flush(to="a", timeout=0.1)
        told = str(late.value)
        if words in told:
            break
    assert words in told
    with pytest.raises(MessageLate):
        a.receive(source="b", timeout=0)
    a.close(timeout=0)
    with contextlib.suppress(TransferFailed):
        b.close(timeout=0)


CROWD = """
import contextlib, socket, sys
address, said = ("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2])
held = []
while True:
    with contextlib.suppress(OSError):
        one = socket.create_connection(address, timeout=1)
        held.append(one)
        one.sendall(said)
    if len(held) == 750:
        print(len(held), flush=True)
    if len(held) > 750:
        held.pop(0).close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", packed(Kind.NONCE, bytes(32))], ids=["silent", "nonce"])
def test_a_known_peer_comes_through_a_crowd_of_strangers(said: bytes) -> None:
    """1,500 connections that prove nothing, made again as fast as they are closed: a peer whose
    connection breaks is met again, and there are never more strangers than are borne.
    """
    with group() as (a, b, address), contextlib.ExitStack() as crowd:
        for _ in range(2):
            one = subprocess.Popen(
                [sys.executable, "-c", CROWD, str(address[1]), said.hex()], stdout=subprocess.PIPE
            )
            crowd.callback(one.wait)
            crowd.callback(one.kill)
            assert one.stdout is not None
            crowd.callback(one.stdout.close)
            assert one.stdout.readline() == b"750\n"
        for _ in range(3):
            if (wire := b._lines[a.node].wire) is not None:
                wire._socket.shutdown(socket.SHUT_RDWR)
            b.send(b"again", to=a.node)
            assert a.receive(source=b.node).data == b"again"
            assert len(a._attendant._strangers) <= STRANGERS


def test_a_stranger_may_say_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room is made for more than 4 KiB of whoever has proved nothing, and he has 5 s."""
    monkeypatch.setattr("rankproof_integrity.meeting.PATIENCE", 0.2)
    with group() as (a, b, address):
        loud = Talk(socket.create_connection(address))
        loud.say(frame.packed(kind=Kind.NONCE, epoch=0, toward=0, length=4097 - frame.SIZE))
        assert loud.next() is None
        slow = Talk(socket.create_connection(address))
        begin = time.monotonic()
        slow.say(packed(Kind.NONCE, bytes(32)))
        assert slow.next() is not None
        assert slow.next() is None
        assert time.monotonic() - begin < 5
        undisturbed(a, b)


BYTES = st.binary(max_size=40)


@given(first=st.lists(BYTES, max_size=4), second=st.lists(BYTES, max_size=4))
def test_a_seal_is_of_these_parts_and_no_others(first: list[bytes], second: list[bytes]) -> None:
    """However parts are cut, two lists of them have one seal only where they are the same."""
    one = Session(KEY, INITIATOR, LISTENER, (bytes(32), bytes(32)))
    other = Session(KEY, LISTENER, INITIATOR, (bytes(32), bytes(32)))
    assert other.holds(one.seal(*first), *second) == (first == second)
    assert not one.holds(one.seal(*first), *first)


@given(data=st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=70)), max_size=4))
def test_no_order_of_frames_proves_a_key(data: list[tuple[Kind, bytes]]) -> None:
    """Whatever frames come, neither end has a session at the end of it."""
    for initiator in (True, False):
        introduction = Introduction(KEY, initiator=initiator)
        with contextlib.suppress(Unproved):
            for kind, payload in data:
                header = frame.parsed(packed(kind, payload)[: frame.SIZE])
                assert header is not None
                introduction.came(header, payload)
        assert introduction.session is None


def test_two_ends_with_one_key_have_one_session() -> None:
    """Each frame that one says is taken by the other, and a seal of either opens at the other."""
    ends = [Introduction(KEY, initiator=True), Introduction(KEY, initiator=False)]
    for _ in range(3):
        for one, other in (ends, ends[::-1]):
            while (said := one.next_frame()) is not None:
                header = frame.parsed(said[0])
                assert header is not None
                other.came(header, said[1])
    sessions = [end.session for end in ends]
    assert sessions[0] is not None
    assert sessions[1] is not None
    header = frame.parsed(packed(Kind.HELLO, bytes(37), epoch=3, sequence=9)[: frame.SIZE])
    assert header is not None
    for one, other in ((sessions[0], sessions[1]), (sessions[1], sessions[0])):
        seal = one.seal(frame.said(header), b"words")
        assert opened(other, header, b"words" + seal) == b"words"
        assert opened(one, header, b"words" + seal) is None


@pytest.mark.parametrize("cut", [0, 1, 31, 32])
def test_a_greeting_shorter_than_its_seal_is_refused(cut: int) -> None:
    """However short it is, nothing of it is read."""
    session = Session(KEY, INITIATOR, LISTENER, (bytes(32), bytes(32)))
    header = frame.parsed(packed(Kind.HELLO, bytes(cut))[: frame.SIZE])
    assert header is not None
    assert opened(session, header, bytes(cut)) is None


def test_keys_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short, another type, a file that others may read, no file, and no variable."""
    with pytest.raises(Misused, match="a key must have at least 16 bytes, not 15"):
        ReliableMessageTransport(node="a", key=bytes(15))
    with pytest.raises(Misused, match="a key must be bytes, not str"):
        ReliableMessageTransport(node="a", key="a" * 32)  # type: ignore[arg-type]
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\r\n")
    path.chmod(0o640)
    with pytest.raises(Misused, match=r"can be accessed by other users \(mode 640\); run chmod"):
        key_from_file(path)
    path.chmod(0o600)
    assert key_from_file(path) == KEY
    with pytest.raises(Misused, match="cannot be read: No such file"):
        key_from_file(tmp_path / "none")
    with pytest.raises(Misused, match="RANKPROOF_INTEGRITY_KEY is not set; set it"):
        key_from_environment()
    monkeypatch.setenv("RANKPROOF_INTEGRITY_KEY", KEY.decode())
    assert key_from_environment() == KEY


def test_an_error_in_the_midst_of_a_proof_leaves_no_session() -> None:
    """A frame that tears the connection is raised as that."""
    reader = FrameReader(longest=100)
    room = reader.room()
    room[:64] = bytes(64)
    reader.came(64)
    with pytest.raises(Torn, match="a header arrived damaged"):
        reader.next_frame()
