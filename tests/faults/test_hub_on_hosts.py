"""The scenario's hub beside test hosts: each rank reaches it on its own host, and its log knows who asked."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.world.hosts import host as hosts
from harness.world.hosts.host import Hosts
from tests.faults.conftest import Struck

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts"),
]
Live = Callable[..., Struck]
ON = Hosts(count=2, of=(0, 1, 1))


def test_every_rank_reaches_the_hub_on_its_own_host(live: Live, fault: Callable[..., Any]) -> None:
    """One is refused for a while, one is told what is not so, in the end all are answered; no wire carries it."""
    closed = fault(
        kind="hub",
        id="closed",
        ranks=[0],
        role="model_info",
        answer={"kind": "refuse", "for": "200ms"},
        when={"times": 1},
    )
    gone = fault(kind="hub", id="gone", ranks=[1], role="model_info", answer={"kind": "missing"}, when={"times": 1})
    struck = live(closed, gone, entry="struck:ask_until_answered", size=3, backend="none", hosts=ON)
    told: list[Any] = [struck.one("rank", rank, "after").values["told"] for rank in range(3)]
    assert [one[-1] for one in told] == [200, 200, 200]
    assert told[0][0] not in (200, 404)
    assert 404 not in told[0] + told[2]
    assert [(found.fault, found.rank, found.proof.proved) for found in struck.proved] == [
        ("closed", 0, True),
        ("gone", 1, True),
    ]
    requests = [seen.event for seen in struck.history.seen if seen.event.name == "hub.request"]
    assert {(event.rank, event.values["client"]) for event in requests} == {(rank, f"rank-{rank}") for rank in range(3)}
    assert all("by_pid" not in event.values for event in requests)
    assert struck.one("server", None, "wire.carried").values["links"] == []
    # A network lives on as long as somebody has a socket of it.
    assert not sockets_that_ask_the_kernel()


def sockets_that_ask_the_kernel() -> list[int]:
    """Descriptors of netlink sockets that this process has."""
    found = []
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as one:
            found += [int(path.name)] if one.family == socket.AF_NETLINK else []
    return found
