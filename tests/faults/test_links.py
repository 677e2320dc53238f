"""Faults of the wire: each has the effect it declares on every backend, and is proved by the wire's own count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.events import Event
from harness.faults import prove
from harness.history import History
from harness.world.hang import Hang
from harness.world.hosts import host as hosts
from harness.world.hosts.host import Hosts
from tests.faults.conftest import Struck

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts"),
]
Live = Callable[..., Struck]
Make = Callable[..., Any]
BACKENDS = ["gloo", "mlx-ring"]
FLIP = {"flow": "10.77.0.2:1>10.77.0.1:2", "offset": 7, "before": 1, "after": 65, "payload": 9000, "byte": 4}
THREE = Hosts(count=3, of=(0, 1, 2))
MASKED = (
    {"kind": "latency", "by": "20ms", "jitter": "5ms"},
    {"kind": "bandwidth", "per_second": "4MiB"},
    {"kind": "loss", "share": "2%"},
    {"kind": "duplicate", "share": "20%"},
    {"kind": "reorder", "share": "20%"},
    {"kind": "partition", "for": "150ms"},
)
STOPPING = ({"kind": "partition"}, {"kind": "half-open", "way": "in"})


def wrong(struck: Struck, rank: int) -> list[Any]:
    """What a rank says of each step that it completed."""
    return [seen.event.values["wrong"] for seen in struck.history.said(rank, "step.end")]


def strike(live: Live, fault: Make, options: dict[str, Any], *, backend: str, **rest: Any) -> Struck:
    """Three ranks on three hosts that exchange data; the links of rank 1's host are struck as it begins."""
    at = {"id": "link", "ranks": [1], "at": "step.begin", **options}
    return live(fault(**at), entry="links:exchange", size=3, backend=backend, hosts=THREE, **rest)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", MASKED, ids=lambda options: options["kind"])
def test_what_tcp_makes_up_for_changes_no_result(
    live: Live, fault: Make, options: dict[str, Any], backend: str
) -> None:
    """Late, narrow, lost, doubled, out of order, or cut for a moment: every step completes, with every byte right."""
    struck = strike(live, fault, options, backend=backend)
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description
    assert struck.passed
    assert [wrong(struck, rank) for rank in range(3)] == [[[]] * 4] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_flipped_byte_is_seen_by_who_looks_at_the_data_only(live: Live, fault: Make, backend: str) -> None:
    """One byte of what rank 1 sent is wrong on both others, nobody raises, and the proof names it before and after."""
    struck = strike(live, fault, {"kind": "flip", "way": "out"}, backend=backend)
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description
    assert struck.passed
    for rank in (0, 2):
        assert [(one["rank"], one["count"]) for one in wrong(struck, rank)[0]] == [(1, 1)]
    assert wrong(struck, 1) == [[]] * 4
    flip, *again = struck.one("server", 1, "wire.counted").values["flips"]  # type: ignore[misc]
    assert flip["before"] ^ flip["after"] == 64
    assert all(one["offset"] == flip["offset"] for one in again)  # where TCP sent it twice
    assert f"was {flip['before']:#04x} and became {flip['after']:#04x}" in found.proof.description


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", STOPPING, ids=lambda options: options["kind"])
def test_a_link_that_is_cut_stops_every_step(live: Live, fault: Make, options: dict[str, Any], backend: str) -> None:
    """No step that needs the link completes; the world is stopped at its deadline, and the wire counts all the same."""
    struck = strike(live, fault, options, backend=backend, deadline=2.0)
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description
    assert [wrong(struck, rank) for rank in range(3)] == [[], [], []]
    assert not struck.passed


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_connection_that_is_reset_ends_with_an_error(live: Live, fault: Make, backend: str) -> None:
    """Both ends of each connection raise, and no data of the step is taken for whole."""
    struck = strike(live, fault, {"kind": "reset"}, backend=backend)
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description
    assert struck.history.error(1) is not None
    assert not any(wrong(struck, rank) for rank in range(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broken_frame_is_proved_whatever_comes_of_it(live: Live, fault: Make, backend: str) -> None:
    """A head that is wrong: libraries raise, hang, or do not notice; the proof says what was flipped in any case."""
    struck = strike(live, fault, {"kind": "flip-frame", "byte": 1}, backend=backend, deadline=3.0)
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description


def test_only_the_links_that_are_named_are_struck(live: Live, fault: Make) -> None:
    """`to` and `way` leave all other links alone, and the proof holds the wire to exactly these."""
    struck = strike(live, fault, {"kind": "latency", "by": "5ms", "to": [2], "way": "in"}, backend="gloo")
    assert struck.one("server", 1, "wire.struck").values["links"] == [[2, 1]]
    assert struck.proved[0].proof.proved
    other = prove([fault(kind="latency", id="link", ranks=[1], at="step.begin", by="5ms")], struck.history)
    assert not other[0].proof.proved
    assert "not [[1, 0], [1, 2], [0, 1], [2, 1]]" in other[0].proof.description


@pytest.mark.whole
@pytest.mark.parametrize(("kind", "hangs"), [("partition", True), ("latency", False)])
def test_who_waits_for_a_packet_that_is_on_its_way_does_not_hang(
    live: Live, fault: Make, kind: str, hangs: bool
) -> None:
    """A link that is cut leaves a world that provably stands still; one that holds packets back does not."""
    options = {"kind": kind, **({"by": "2s"} if kind == "latency" else {})}
    struck = strike(live, fault, options, backend="gloo", hang=Hang(window=0.5, within=4.0))
    assert bool(struck.history.noted("world.still")) is hangs
    assert struck.proved[0].proof.proved


def test_two_faults_may_be_in_force_on_one_link(live: Live, fault: Make) -> None:
    """Loss and latency together, struck in rendezvous: both are proved, and the data is right."""
    faults = [
        fault(kind="latency", id="late", ranks=[1], at="rank.begin", by="5ms"),
        fault(kind="loss", id="lost", ranks=[1], at="rank.begin", share="1%"),
    ]
    struck = live(*faults, entry="links:exchange", size=3, hosts=THREE)
    assert [found.proof.proved for found in struck.proved] == [True, True]
    assert struck.passed


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("wire.struck", None, "the wire did not say that it was in force"),
        ("wire.struck", {"links": [[1, 0]]}, "the wire struck [[1, 0]], not [[1, 0], [1, 2]]"),
        ("wire.counted", None, "nobody counted what it was done to"),
        ("wire.counted", {"struck": 0}, "it was done to 0 of "),
        ("wire.counted", {"struck": 10**6}, "it was done to 1000000 of "),
        ("wire.counted", {"flips": []}, "the wire's log shows no byte that it flipped"),
        ("wire.counted", {"flips": [{**FLIP, "after": 1}]}, "the wire flipped otherwise"),
        ("wire.counted", {"flips": [{**FLIP, "payload": 40}]}, "the wire flipped otherwise"),
        ("wire.counted", {"flips": [FLIP, {**FLIP, "offset": 8}]}, "the wire flipped more than one byte"),
    ],
)
def test_evidence_that_lacks_something_proves_nothing(
    flipped: Struck, name: str, change: dict[str, Any] | None, why: str
) -> None:
    """The events of a trial in which a byte was flipped, changed in one place: the flip is not proved any more."""

    def changed(event: Event) -> list[Event]:
        if event.name != name:
            return [event]
        return [] if change is None else [event._replace(values={**event.values, **change})]

    events = [one for seen in flipped.history.seen for one in changed(seen.event)]
    (found,) = prove(flipped.faults, History(events, size=3))
    assert not found.proof.proved
    assert found.proof.description.startswith(why)


@pytest.fixture(scope="module")
def flipped(pool: Any) -> Struck:
    """A trial in which a byte was flipped."""
    from harness.faults.strikes import Strikes
    from harness.world.world import Launch, World
    from tests.faults.conftest import SUBJECTS, a_fault
    from tests.world.conftest import ENGINES

    faults = [a_fault(kind="flip", id="link", ranks=[1], at="step.begin", way="out")]
    strikes = Strikes(faults, size=3)
    launch = Launch(
        about={},
        size=3,
        backend="gloo",
        warm=True,
        entry="links:exchange",
        folder=SUBJECTS,
        arguments={},
        inputs={},
        seeds=[0, 1, 2],
        deadline=20.0,
        preload=ENGINES,
        hosts=THREE,
    )
    world = World(strikes.prepare(launch), pool, on_begin=strikes.begin, on_gate=strikes.at_gate, on_end=strikes.end)
    struck = Struck(faults, History(world.run().events, size=3))
    assert struck.proved[0].proof.proved
    return struck
