"""Who greets another than he means, or as another than he is, or asks too much: both ends say what
each of them has.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import pytest

from crossing import QUICK
from rankproof_integrity import (
    MessageLate,
    MessageLost,
    Misused,
    ReliableMessageTransport,
    TransferFailed,
    TransportLimits,
)
from rankproof_integrity.frame import greeting_of

Make = Callable[..., ReliableMessageTransport]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[ReliableMessageTransport] = []

    def one(
        node: str, *, epoch: int | None = None, limits: TransportLimits = QUICK
    ) -> ReliableMessageTransport:
        made.append(ReliableMessageTransport(node=node, epoch=epoch, limits=limits))
        return made[-1]

    yield one
    for transport in made:
        with contextlib.suppress(TransferFailed):
            transport.close(timeout=0.1)


def said(transport: ReliableMessageTransport, source: str, words: str) -> None:
    """Whoever waits for that peer is told so, now or once it was heard."""
    found = ""
    while re.search(words, found) is None:
        with pytest.raises(MessageLate) as caught:
            transport.receive(source=source, timeout=0.02)
        found = str(caught.value)


def test_who_dials_another_node_is_told_at_once_which(make: Make) -> None:
    """Where the address is one and the same the conversation ends by an error with both names, at
    both ends.
    """
    a, b = make("c"), make("b")
    a.expect("b")
    b.connect("a", a.listen(("127.0.0.1", 0)))
    words = (
        "'b' wanted to connect to 'a', but 'c' listens at this address; connect to the address"
        " of 'a'"
    )
    with pytest.raises(MessageLost, match=words):
        b.receive(source="a")
    said(a, "b", f"refused: {words}")


def test_who_finds_another_node_asks_again_where_its_peer_is(make: Make) -> None:
    """Where the address is asked for each time, another may have the port of a peer that is about
    to begin again.
    """
    a, b, other = make("a"), make("b"), make("c")
    where = [other.listen(("127.0.0.1", 0))]
    b.connect("a", lambda: where[0])
    b.send(b"found", to="a")
    said(b, "a", "'c' listens at this address")
    a.expect("b")
    where[0] = a.listen(("127.0.0.1", 0))
    assert a.receive(source="b").data == b"found"


def test_who_is_not_expected_is_told_and_may_be_later(make: Make) -> None:
    """A slip in a name is said at both ends.

    A node that listens before it expects is waited for.
    """
    a, b = make("a"), make("rnak 1")
    a.expect("rank 1")
    b.connect("a", a.listen(("127.0.0.1", 0)))
    b.send(b"late", to="a")
    words = r"'rnak 1' connected to 'a', which does not expect that name; call expect\('rnak 1'\)"
    said(b, "a", words)
    said(a, "rank 1", words)
    a.expect("rnak 1")
    assert a.receive(source="rnak 1").data == b"late"
    b.flush(to="a")
    with pytest.raises(MessageLate, match=r"\(connected, \d+ connections? so far\)$"):
        b.receive(source="a", timeout=0)


def test_two_that_connect_to_each_other_are_told(make: Make) -> None:
    """One of both has to expect the other."""
    a, b = make("a"), make("b")
    b.listen(("127.0.0.1", 0))
    a.connect("b", ("127.0.0.1", 1))
    b.connect("a", a.listen(("127.0.0.1", 0)))
    said(b, "a", "'b' and 'a' both connect to each other; one of them must listen")


def test_who_connects_under_an_old_epoch_is_told_both(make: Make) -> None:
    """At once, since it will not become greater; the later start is not disturbed."""
    a, now = make("a"), make("b", epoch=9)
    a.expect("b")
    address = a.listen(("127.0.0.1", 0))
    now.connect("a", address)
    now.send(b"1", to="a")
    assert a.receive(source="b").data == b"1"
    before = make("b", epoch=5)
    before.connect("a", address)
    with pytest.raises(
        MessageLost,
        match=r"b started with epoch 5, but a already knows it with epoch 9\. Each start needs a greater",
    ):
        before.receive(source="a")
    now.send(b"2", to="a")
    assert a.receive(source="b").data == b"2"


def test_who_listens_under_an_old_epoch_is_told_both(make: Make) -> None:
    """Where its peer connects, which knows the later one; that goes on to look for it."""
    a, b = make("a", epoch=9), make("b")
    where = [a.listen(("127.0.0.1", 0))]
    a.expect("b")
    b.connect("a", lambda: where[0])
    b.send(b"1", to="a")
    assert a.receive(source="b").data == b"1"
    before = make("a", epoch=5)
    where[0] = before.listen(("127.0.0.1", 0))
    before.expect("b")
    a._lines["b"].attend(ready=True)
    a._lines["b"]._drop("its process ended")
    words = (
        "a started with epoch 5, but b already knows it with epoch 9. Each start needs a greater"
    )
    with pytest.raises(MessageLost, match=words):
        before.receive(source="b")
    said(b, "a", words)


SMALL = TransportLimits(message=1000, silence=0.5, shortest=0.02)


@pytest.mark.parametrize("whose", ["a", "b"])
def test_a_message_that_one_of_both_does_not_take_is_refused_at_once(
    make: Make, whose: str
) -> None:
    """Whichever has the lower limit, with the size, the limit and what to set.

    The next message goes.
    """
    a, b = (make(name, limits=SMALL if name == whose else QUICK) for name in "ab")
    a.expect("b")
    b.connect("a", a.listen(("127.0.0.1", 0)))
    b.send(b"first", to="a")
    a.receive(source="b")
    b.flush(to="a")
    limit = r"a accepts \(b: 268435456\)" if whose == "a" else "b may send"
    words = (
        rf"message 1 of 1001 bytes for a is longer than 1000, the maximum that {limit}; send it"
        r" in parts, or pass "
    )
    for given in (bytes(1001), bytearray(1001)):
        with pytest.raises(Misused, match=words + r"TransportLimits\(message=1001\) or more"):
            b.send(given, to="a")
    assert b.send(bytes(1000), to="a") == 1
    assert len(a.receive(source="b").data) == 1000
    assert b.health("a").counted["connections"] == 1


def test_a_message_that_is_found_too_long_when_the_peer_is_met_is_one_error_at_both_ends(
    make: Make,
) -> None:
    """It was offered before anybody could know, is not sent once, and the error names it.

    Then both begin anew.
    """
    a, b = make("a", limits=SMALL), make("b")
    address = a.listen(("127.0.0.1", 0))
    b.connect("a", address)
    b.send(b"first", to="a")
    b.send(bytes(1001), to="a")
    a.expect("b")
    words = "message 1 of 1001 bytes for a is longer than 1000, the maximum that a accepts"
    with pytest.raises(MessageLost, match=words):
        b.flush(to="a")
    with pytest.raises(MessageLost, match="b gave up: .*" + words):
        a.receive(source="b")
    counted = b.health("a").counted
    assert (counted["sent"], counted["sent_bytes"]) == (0, 0)
    b.renew("a")
    a.renew("b")
    b.send(b"again", to="a")
    assert a.receive(source="b").data == b"again"


@pytest.mark.parametrize(
    "payload",
    [b"", b"\n\n\n\n", b"b\na\n" + b"9" * 60_000, b"b\na\n-1", b"b\na\n\xb2", b"\xff\n\xff\n\xff"],
)
def test_whatever_a_greeting_says_is_read(payload: bytes) -> None:
    """Somebody else may have made it: it has two names at most, and a number where it has one."""
    node, peer, message = greeting_of(payload)
    assert "\n" not in node + peer
    assert message is None
