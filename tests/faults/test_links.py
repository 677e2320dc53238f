"""Faults of the wire: each has the effect it declares on every backend, and is proved by the wire's
own count.

With --soak each kind strikes a hundred times on each backend, and 500 clean trials raise no alarm.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.backends.backend import WIRE
from harness.events import Event
from harness.faults import prove
from harness.history import History
from harness.stats.shown_trial import without_payload
from harness.world.below.leftovers import processes
from harness.world.control.hang import Hang
from harness.world.hosts import host as hosts
from harness.world.hosts.host import Hosts
from tests.faults.test_noticed import judge
from tests.kit.faulted_worlds import LINKS, Struck

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts"),
]
Live = Callable[..., Struck]
Make = Callable[..., Any]
Often = Callable[..., range]
BACKENDS = ["gloo", "mlx-ring"]
FLIP = {
    "flow": "10.77.0.2:1>10.77.0.1:2",
    "offset": 7,
    "before": 1,
    "after": 65,
    "payload": 9000,
    "byte": 4,
}
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


def strike(
    live: Live, fault: Make, options: dict[str, Any], *, backend: str, **rest: Any
) -> Struck:
    """Three ranks on three hosts that exchange data.

    The links of rank 1's host are struck as it begins.
    """
    at = {"id": "link", "ranks": [1], "at": "step.begin", **options}
    return live(fault(**at), entry="links:exchange", size=3, backend=backend, hosts=THREE, **rest)


@pytest.mark.whole
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", MASKED, ids=lambda options: options["kind"])
def test_what_tcp_makes_up_for_changes_no_result(
    live: Live, fault: Make, often: Often, options: dict[str, Any], backend: str
) -> None:
    """Late, narrow, lost, doubled, out of order, or cut for a moment: every step completes, with
    every byte right.
    """
    for turn in often(1, soak=100):
        struck = strike(live, fault, options, backend=backend, seed=turn)
        (found,) = struck.proved
        assert found.proof.proved, found.proof.description
        assert struck.passed
        assert [wrong(struck, rank) for rank in range(3)] == [[[]] * 4] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_flipped_byte_is_seen_by_who_looks_at_the_data_only(
    live: Live, fault: Make, often: Often, backend: str
) -> None:
    """One byte of what rank 1 sent is wrong on both others, nobody raises, and the proof names it
    before and after.
    """
    for _ in often(1, soak=100):
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
        assert (
            f"was {flip['before']:#04x} and became {flip['after']:#04x}" in found.proof.description
        )


@pytest.mark.whole
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", STOPPING, ids=lambda options: options["kind"])
def test_a_link_that_is_cut_stops_every_step(
    live: Live, fault: Make, often: Often, options: dict[str, Any], backend: str
) -> None:
    """No step that needs the link completes, `progress` names each rank that waits, and the wire
    counts still.
    """
    for _ in often(1, soak=100):
        struck = strike(live, fault, options, backend=backend, deadline=2.0)
        (found,) = struck.proved
        assert found.proof.proved, found.proof.description
        assert [wrong(struck, rank) for rank in range(3)] == [[], [], []]
        assert not struck.passed
        waits = judge(struck, kind="progress", event="step.end", limit="500ms")
        assert waits.failed_ranks == (0, 1, 2)
        assert all(
            "since subject.begin" in part.reason and "in exchange (links.py:" in part.reason
            for part in waits.ranks
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_connection_that_is_reset_ends_with_an_error(
    live: Live, fault: Make, often: Often, backend: str
) -> None:
    """Every rank raises within two seconds, by the clocks of three hosts, and takes no data of the
    step for whole.
    """
    for _ in often(1, soak=100):
        struck = strike(live, fault, {"kind": "reset"}, backend=backend)
        (found,) = struck.proved
        assert found.proof.proved, found.proof.description
        assert not any(wrong(struck, rank) for rank in range(3))
        noticed = judge(struck, kind="detected-within", fault="link", limit="2s")
        assert noticed.passed, noticed


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broken_frame_is_proved_whatever_comes_of_it(
    live: Live, fault: Make, often: Often, backend: str
) -> None:
    """A head that is wrong: libraries raise, hang, or do not notice.

    The proof says what was flipped in any case.
    """
    for _ in often(1, soak=100):
        struck = strike(
            live, fault, {"kind": "flip-frame", "byte": 1}, backend=backend, deadline=3.0
        )
        (found,) = struck.proved
        assert found.proof.proved, found.proof.description


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {"kind": "reset"},
        {"kind": "partition"},
        {"kind": "latency", "by": "5ms"},
        {"kind": "loss", "share": "50%"},
    ],
    ids=lambda options: options["kind"],
)
def test_packets_that_close_connections_prove_nothing(
    live: Live, fault: Make, options: dict[str, Any], backend: str
) -> None:
    """Struck after the last collective: what the kernels say in closing is struck, and the fault is
    not proved.
    """
    late = fault(**{"id": "link", "ranks": [1], "at": "exchange.over", **options})
    struck = live(late, entry="links:exchange_and_say", size=3, backend=backend, hosts=THREE)
    (found,) = struck.proved
    assert not found.proof.proved, found.proof.description
    counted = struck.one("server", 1, "wire.counted").values
    assert counted["payload"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_nobody_cries_wolf(live: Live, often: Often, backend: str) -> None:
    """Without a fault every byte is right, nobody pauses or raises, and no packet is lost."""
    for _ in often(1, soak=500):
        struck = live(entry="links:exchange", size=3, backend=backend, hosts=THREE)
        assert struck.passed
        assert [wrong(struck, rank) for rank in range(3)] == [[[]] * 4] * 3
        assert judge(struck, kind="progress", event="step.end", limit="10s", at_least=4).passed
        links: Any = struck.one("server", None, "wire.carried").values["links"]
        assert [link["lost"] for link in links] == [0] * len(links)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_link_that_is_bad_before_ranks_have_met(
    live: Live, fault: Make, often: Often, backend: str
) -> None:
    """Struck at rank.begin, in the midst of rendezvous: made up for all the same, or nobody meets,
    and it is proved.
    """
    turns = often(1, soak=30)
    # What is cut for a moment may meet nothing at all there.
    for options in ({"kind": "reorder", "share": "10%"}, *(MASKED[:-1] if len(turns) > 1 else ())):
        for turn in turns:
            struck = strike(
                live, fault, {**options, "at": "rank.begin"}, backend=backend, seed=turn
            )
            assert struck.proved[0].proof.proved, struck.proved[0].proof.description
            assert struck.passed
    for options in ({"kind": "reset"}, *(STOPPING if len(turns) > 1 else ())):
        for _ in turns:
            struck = strike(
                live, fault, {**options, "at": "rank.begin"}, backend=backend, deadline=1.5
            )
            assert struck.proved[0].proof.proved, struck.proved[0].proof.description
            assert not any(struck.history.began(rank) for rank in range(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_of_several_kinds_in_one_trial(live: Live, fault: Make, backend: str) -> None:
    """Bad links of two hosts, one of them twice, and a rank that is stopped: each is proved, and
    the data is right.
    """
    faults = [
        fault(kind="latency", id="late", ranks=[1], at="step.begin", by="5ms", jitter="5ms"),
        fault(kind="reorder", id="mixed", ranks=[1], at="step.begin", share="10%"),
        fault(kind="loss", id="lossy", ranks=[2], at="step.begin", share="1%"),
        fault(kind="pause", id="still", ranks=[0], at="step.begin", **{"for": "100ms"}),
    ]
    struck = live(*faults, entry="links:exchange", size=3, backend=backend, hosts=THREE)
    assert [found.proof.proved for found in struck.proved] == [True] * 4
    assert struck.passed
    dies = [faults[0], fault(kind="kill", id="dies", ranks=[2], at="step.end")]
    struck = live(*dies, entry="links:exchange", size=3, backend=backend, hosts=THREE)
    assert [found.proof.proved for found in struck.proved] == [True, True]
    assert judge(struck, kind="detected-within", fault="dies", limit="2s").passed


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"kind": "latency", "by": "50ms"}, True),
        ({"kind": "flip", "way": "in"}, False),
        ({"kind": "reset"}, None),
    ],
    ids=["latency", "flip", "reset"],
)
def test_a_server_and_its_client_need_no_group(
    live: Live, fault: Make, options: dict[str, Any], right: bool | None
) -> None:
    """Two programs with sockets of their own, on two hosts: what is late, wrong or cut off is so
    for them too.
    """
    struck = live(
        fault(**{"id": "link", "ranks": [1], "at": "request", **options}),
        entry="",
        program=(sys.executable, "served.py"),
        backend="none",
        warm=False,
        hosts=Hosts(count=2, of=(0, 1)),
    )
    assert struck.proved[0].proof.proved, struck.proved[0].proof.description
    told = [seen.event.values for seen in struck.history.said(1, "answer")]
    assert [one["right"] for one in told] == ([] if right is None else [right])
    if right is None:
        assert judge(struck, kind="detected-within", fault="link", limit="2s").passed
    else:
        assert told[0]["wrong"] == (0 if right else 1)


def any_fault(random: Random, fault: Make) -> tuple[Any, Hosts]:
    """One of any kind, with any options, and the hosts of a world for it."""
    size = random.choice([2, 3, 4])
    hosts_of = Hosts(count=size, of=tuple(range(size)))
    kind = random.choice(sorted(LINKS))
    mask, share = random.randint(1, 255), f"{random.choice([1, 10, 50, 99])}%"
    options: dict[str, Any] = {
        "latency": {"by": f"{random.randint(1, 40)}ms", "jitter": f"{random.randint(0, 40)}ms"},
        "bandwidth": {"per_second": f"{random.choice([64, 512, 8192])}KiB"},
        "flip": {
            "message": random.randint(1, 4),
            "byte": random.choice([None, 0, 4095]),
            "mask": random.randint(1, 255),
        },
        "flip-frame": {
            "message": random.randint(1, 9),
            "byte": random.randint(0, 63),
            "mask": mask,
        },
        "partition": {},
        "half-open": {"way": random.choice(["out", "in"])},
        "reset": {},
    }.get(kind, {"share": share})
    if kind not in ("partition", "half-open"):
        options["way"] = random.choice(["both", "out", "in"])
    if random.random() < 0.5:
        options["for"] = f"{random.randint(1, 400)}ms"
    at = random.choice(["rank.begin", "backend.ready", "subject.begin", "step.begin", "step.end"])
    return fault(kind=kind, id="link", ranks=[random.randrange(size)], at=at, **options), hosts_of


@pytest.mark.whole
def test_after_any_faults_nothing_is_left_and_the_next_world_is_sound(
    live: Live, fault: Make, often: Often, pool: Any
) -> None:
    """Whatever strikes: no wrong byte without a flip, no error of ours, and then a clean world, and
    nothing is left.
    """
    live(entry="links:exchange", size=2, hosts=Hosts(count=2, of=(0, 1)))
    mounts = Path("/proc/self/mounts").read_text()
    for turn in often(4, soak=200):
        random = Random(turn)
        one, hosts_of = any_fault(random, fault)
        backend, size = random.choice(BACKENDS), hosts_of.count
        struck = live(
            one,
            entry="links:exchange",
            size=size,
            backend=backend,
            hosts=hosts_of,
            seed=turn,
            deadline=2.0,
        )
        assert not struck.history.noted("harness.error"), (turn, one)
        if not one.kind.startswith("flip"):
            assert not any(any(wrong(struck, rank)) for rank in range(size)), (turn, one)
    for backend in BACKENDS:
        struck = live(entry="links:exchange", size=3, backend=backend, hosts=THREE)
        assert struck.passed
        assert [wrong(struck, rank) for rank in range(3)] == [[[]] * 4] * 3
    servers = {server.pid for server in pool._living}
    assert left_below(servers, within=5.0) == set()
    assert Path("/proc/self/mounts").read_text() == mounts
    assert not [name for _, name in socket.if_nameindex() if name == WIRE]


def left_below(servers: set[int], *, within: float) -> set[int]:
    """Processes that servers have below them after some seconds: keepers, wires, ranks, stopped
    ones too.
    """
    end = time.monotonic() + within
    while True:
        parents: defaultdict[int, set[int]] = defaultdict(set)
        for process in processes():
            parents[process.parent].add(process.pid)
        left = set().union(*(parents[server] for server in servers))
        if not left or time.monotonic() > end:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
                os.close(descriptor)


def test_only_the_links_that_are_named_are_struck(live: Live, fault: Make) -> None:
    """`to` and `way` leave all other links alone, and the proof holds the wire to exactly these."""
    struck = strike(
        live, fault, {"kind": "latency", "by": "5ms", "to": [2], "way": "in"}, backend="gloo"
    )
    assert struck.one("server", 1, "wire.struck").values["links"] == [[2, 1]]
    assert struck.proved[0].proof.proved
    other = prove(
        [fault(kind="latency", id="link", ranks=[1], at="step.begin", by="5ms")], struck.history
    )
    assert not other[0].proof.proved
    assert "not [[1, 0], [1, 2], [0, 1], [2, 1]]" in other[0].proof.description


@pytest.mark.whole
@pytest.mark.parametrize(("kind", "hangs"), [("partition", True), ("latency", False)])
def test_who_waits_for_a_packet_that_is_on_its_way_does_not_hang(
    live: Live, fault: Make, kind: str, hangs: bool
) -> None:
    """A link that is cut leaves a world that provably stands still.

    One that holds packets back does not.
    """
    options = {"kind": kind, **({"by": "2s"} if kind == "latency" else {})}
    struck = strike(live, fault, options, backend="gloo", hang=Hang(window=0.5, within=4.0))
    assert bool(struck.history.noted("world.still")) is hangs
    assert struck.proved[0].proof.proved


@pytest.mark.whole
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
        ("wire.struck", None, "the wire did not report that it was active"),
        ("wire.struck", {"links": [[1, 0]]}, "the wire struck [[1, 0]], not [[1, 0], [1, 2]]"),
        ("wire.counted", None, "the affected packets were not counted"),
        ("wire.counted", {"struck": 0}, "it affected 0 of "),
        ("wire.counted", {"struck": 10**6}, "it affected 1000000 of "),
        ("wire.counted", {"payload": 0}, "it affected 1 packet, but none carried new payload"),
        (
            "wire.counted",
            {"payload": None},
            "it affected 1 packet, but none carried new payload",
        ),
        (
            "wire.counted",
            {"payload": True},
            "it affected 1 packet, but none carried new payload",
        ),
        ("wire.counted", {"payload": 2}, "it affected 1 packet, but none carried new payload"),
        ("wire.counted", {"flips": []}, "the wire's log shows no byte that it flipped"),
        ("wire.counted", {"flips": [{**FLIP, "after": 1}]}, "the wire flipped something else"),
        (
            "wire.counted",
            {"flips": [{**FLIP, "after": 65, "mask": 0, "before": 65}]},
            "the wire flipped something else",
        ),
        (
            "wire.counted",
            {"flips": [{**FLIP, "flow": "10.77.0.1:2>10.77.0.2:1"}]},
            "the wire's log has 10.77.0.1:2>",
        ),
        ("wire.counted", {"flips": [{**FLIP, "payload": 40}]}, "the wire flipped something else"),
        (
            "wire.counted",
            {"flips": [FLIP, {**FLIP, "offset": 8}]},
            "the wire flipped more than one byte",
        ),
    ],
)
def test_evidence_that_lacks_something_proves_nothing(
    flipped: Struck, name: str, change: dict[str, Any] | None, why: str
) -> None:
    """The events of a trial in which a byte was flipped, changed in one place: the flip is not
    proved any more.
    """

    def changed(event: Event) -> list[Event]:
        if event.name != name:
            return [event]
        return [] if change is None else [event._replace(values={**event.values, **change})]

    events = [one for seen in flipped.history.seen for one in changed(seen.event)]
    (found,) = prove(flipped.faults, History(events, size=3))
    assert not found.proof.proved
    assert found.proof.description.startswith(why)


@pytest.mark.parametrize("lacks", [False, True])
def test_a_wire_that_does_not_count_payload_is_named(flipped: Struck, lacks: bool) -> None:
    """Whoever leaves it out of a trial is refused by its line."""
    left = [
        event._replace(
            values={
                key: value for key, value in event.values.items() if not lacks or key != "payload"
            }
        )
        for event in (seen.event for seen in flipped.history.seen)
    ]
    found = without_payload(History(left, size=3))
    assert (found is not None and found.event.name == "wire.counted") == lacks


@pytest.fixture(scope="module")
def flipped(pool: Any) -> Struck:
    """A trial in which a byte was flipped."""
    from harness.faults.strikes import Strikes
    from harness.world.control.world import World
    from tests.kit.faulted_worlds import SUBJECTS, a_fault
    from tests.kit.launches import launch_of
    from tests.kit.worlds import ENGINES

    faults = [a_fault(kind="flip", id="link", ranks=[1], at="step.begin", way="out")]
    strikes = Strikes(faults, size=3)
    launch = launch_of(
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
    world = World(
        strikes.prepare(launch),
        pool,
        on_begin=strikes.begin,
        on_gate=strikes.at_gate,
        on_end=strikes.end,
    )
    struck = Struck(faults, History(world.run().events, size=3))
    assert struck.proved[0].proof.proved
    return struck
