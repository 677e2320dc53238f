"""Two transports with a way between them that breaks when told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from harness.integrity import Limits, ReliableMessageTransport, TransferFailed
from tests.integrity.crossing import QUICK, Crossing


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
