"""Faults of other things than wires, in worlds on test hosts: the scenario's hub, and folders that
a host has alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.faults import prove
from harness.history import History
from harness.world.hosts import host as hosts
from harness.world.hosts.host import Hosts
from tests.kit.faulted_worlds import Struck

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts"),
]
Live = Callable[..., Struck]
ON = Hosts(count=2, of=(0, 1, 1))


def test_every_rank_reaches_the_hub_on_its_own_host(live: Live, fault: Callable[..., Any]) -> None:
    """One is refused for a while, one is told what is not so, in the end all are answered.

    No wire carries it.
    """
    closed = fault(
        kind="hub",
        id="closed",
        ranks=[0],
        role="model_info",
        answer={"kind": "refuse", "for": "200ms"},
        when={"times": 1},
    )
    gone = fault(
        kind="hub",
        id="gone",
        ranks=[1],
        role="model_info",
        answer={"kind": "missing"},
        when={"times": 1},
    )
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
    assert {(event.rank, event.values["client"]) for event in requests} == {
        (rank, f"rank-{rank}") for rank in range(3)
    }
    assert all("by_pid" not in event.values for event in requests)
    assert struck.one("server", None, "wire.carried").values["links"] == []
    # A network lives on as long as somebody has a socket of it.
    assert not sockets_that_ask_the_kernel()


FOLDERS: dict[str, dict[str, Any]] = {
    "read-only": {"folder": "temporary/own-1", "for": "100ms"},
    "no-space": {"folder": "temporary/own-1", "left": "8KiB"},
    "permission-denied": {"folder": "temporary/own-1", "for": "100ms"},
    "truncated": {"file": "temporary/own-1/kept-1", "left": "10B"},
}
SEEN = {"read-only": "EROFS", "no-space": "ENOSPC", "permission-denied": "EACCES"}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_a_host_has_alone_is_struck_where_it_is(
    live: Live, fault: Callable[..., Any], kind: str
) -> None:
    """What lies in a temporary folder is struck for the rank on that host.

    Its peer on another host has its own.
    """
    if kind == "permission-denied" and os.geteuid() == 0:
        pytest.skip("nothing is denied to root")
    one = fault(kind=kind, id="folder", ranks=[1], at="door", **FOLDERS[kind])
    struck = live(
        one, entry="struck:store", arguments={"own": "temporary"}, hosts=Hosts(count=2, of=(0, 1))
    )
    assert struck.proved[0].proof.proved, struck.proved[0].proof.description
    fine = {"own": "done", "shared": "done", "own-kept": [1000, 1000], "shared-kept": [1000, 1000]}
    kept = {"truncated": [10, 10]}
    told = struck.one("rank", 1, "after").values["told"]
    assert isinstance(told, dict)
    assert told["own"] == SEEN.get(kind, "done")
    assert told.get("own-kept") == (
        None if kind == "permission-denied" else kept.get(kind, [1000, 1000])
    )
    assert struck.one("rank", 0, "after").values["told"] == fine
    if one.duration is not None:
        assert struck.one("rank", 1, "later").values["told"] == fine
    assert struck.passed


def test_a_clock_is_ahead_of_that_of_its_host(live: Live, fault: Callable[..., Any]) -> None:
    """The rank's own share is proved, what it stamps stands where it happened, and a forged reading
    proves nothing.
    """
    one = fault(kind="monotonic-skew", id="booted-earlier", ranks=[1], by="90s")
    struck = live(one, entry="struck:clocks", size=3, hosts=ON)
    assert struck.proved[0].proof.proved, struck.proved[0].proof.description
    assert struck.proved[0].proof.description.startswith("its clock was 90 s ahead")
    told: list[Any] = [struck.one("rank", rank, "after").values["monotonic"] for rank in range(3)]
    assert told[1] - told[2] == pytest.approx(90, abs=20)
    assert struck.passed
    for forged in (None, 0, "90", told[1]):
        events = [
            (
                seen.event._replace(values={"ahead": forged})
                if seen.event.name == "rank.clock"
                else seen.event
            )
            for seen in struck.history.seen
        ]
        assert not prove([one], History(events, size=3))[0].proof.proved


def sockets_that_ask_the_kernel() -> list[int]:
    """Descriptors of netlink sockets that this process has."""
    found = []
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as one:
            found += [int(path.name)] if one.family == socket.AF_NETLINK else []
    return found
