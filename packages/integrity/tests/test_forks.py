"""A process that is forked from one with a transport: it says nothing in its parent's name, and
keeps nothing open.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rankproof_integrity import MessageLost, Misused, ReliableMessageTransport


def in_child(said: Callable[[], str]) -> str:
    """What a forked process says."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, said().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        answer = told.read()
    os.waitpid(child, 0)
    return answer


def test_a_child_says_nothing_in_its_parents_name(pair: Callable[..., tuple]) -> None:
    """To send there is the caller's slip, to close nothing.

    The parent's conversation goes on as if it had not been.
    """
    a, b, way = pair()
    b.send(b"before", to="a")
    assert a.receive(source="b").data == b"before"

    def said() -> str:
        b.close(timeout=1)
        found = []
        for call in (
            lambda: b.send(b"from the child", to="a"),
            lambda: b.listen(("127.0.0.1", 0)),
            lambda: asyncio.run(b.send_with_validation(b"from the child", "a")),
        ):
            with pytest.raises(Misused, match="from which this process was forked") as caught:
                call()
            found.append(str(caught.value))
        return "\n".join(found)

    assert (
        in_child(said).count(
            f"belongs to process {os.getpid()}, from which this process was forked"
        )
        == 3
    )
    b.send(b"after", to="a")
    b.flush(to="a")
    assert a.receive(source="b").data == b"after"
    assert way.connections == 1


def test_a_child_keeps_nothing_of_its_parents_open(pair: Callable[..., tuple]) -> None:
    """Neither sockets nor pipes: a connection would seem to live when its owner is dead."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    a, b, _ = pair()
    b.send(b"x", to="a")
    assert a.receive(source="b").data == b"x"
    meanwhile = len(list(Path("/proc/self/fd").iterdir()))
    way = 5  # the test's own: a listener and two connections, each with two ends, but for the first
    left = int(in_child(lambda: str(len(list(Path("/proc/self/fd").iterdir())))))
    assert meanwhile > before + way
    assert left <= before + way + 2  # a pipe of this test's


def test_a_child_makes_its_own(pair: Callable[..., tuple]) -> None:
    """A transport that is made in a child works there, however the parent's locks were at the
    fork.
    """
    a, b, _ = pair()
    b.send(b"x", to="a")
    assert a.receive(source="b").data == b"x"

    def said() -> str:
        c, d = (ReliableMessageTransport(node=name) for name in "cd")
        d.expect("c")
        c.connect("d", d.listen(("127.0.0.1", 0)))
        c.send(b"own", to="d")
        came = bytes(d.receive(source="c").data).decode()
        c.close()
        with pytest.raises(MessageLost):
            d.receive(source="c")
        d.close()
        return came

    assert in_child(said) == "own"
