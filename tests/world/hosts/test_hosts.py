"""Test hosts: ranks on networks, names, folders and clocks of their own.

Whatever happens, nothing of them stays.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.backends.backend import WIRE
from harness.rank.process import keep_private
from harness.world.below import isolation
from harness.world.control.hang import Hang
from harness.world.control.world import World
from harness.world.hosts import host as hosts
from harness.world.hosts.host import TUN, Hosts
from harness.world.hosts.wire import WireProcess
from tests.kit.worlds import Lived, wire_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts"),
]
Live = Callable[..., Lived]
ROOT = Path(__file__).parents[3]


def placed(*of: int) -> Hosts:
    """Hosts for ranks that are placed so."""
    return Hosts(count=max(of) + 1, of=of)


@pytest.mark.parametrize("backend", ["gloo", "mlx-ring"])
@pytest.mark.parametrize("of", [(0, 1), (0, 1, 2), (0, 0, 1, 2)], ids=str)
def test_ranks_meet_across_hosts(live: Live, backend: str, of: tuple[int, ...]) -> None:
    """A group over test hosts is whole, each rank is on its own, and what passed between them was
    counted.
    """
    lived = live("calm:gather", backend=backend, size=len(of), hosts=placed(*of))
    assert lived.passed
    assert lived.findings["ranks-are-on-their-hosts"].passed
    names = [f"host-{host}" for host in of]
    assert [
        lived.history.served(rank, "rank.started")[0].event.values["host"]
        for rank in range(len(of))
    ] == names
    (carried,) = lived.history.served(None, "wire.carried")
    links: Any = carried.event.values["links"]
    assert {(link["source"], link["target"]) for link in links} >= {(0, of[-1]), (of[-1], 0)}
    assert all(link["packets"] > 0 and link["lost"] == 0 for link in links)
    assert lived.survivors == 0


def test_backends_know_the_interface_by_its_name() -> None:
    """What a backend tells its library to use is what a host has."""
    assert hosts.INTERFACE == WIRE


def test_a_host_is_a_place_of_its_own(live: Live) -> None:
    """Ranks see their own host's files in /tmp and TMPDIR, have its name, address and clock, and no
    more rights.
    """
    lived = live(
        "hosted:around", size=3, hosts=placed(0, 1, 1), arguments={"mark": "rankproof-test"}
    )
    assert lived.passed
    found = [lived.said(rank, "around")[0].values for rank in range(3)]
    assert [one["host"] for one in found] == ["host-0", "host-1", "host-1"]
    assert [one["address"] for one in found] == ["10.77.0.1", "10.77.0.2", "10.77.0.2"]
    assert all(one["interfaces"] == ["lo", "wire"] for one in found)
    mine = [["rankproof-test-0"], *([["rankproof-test-1", "rankproof-test-2"]] * 2)]
    assert [one["tmp"] for one in found] == [one["TMPDIR"] for one in found] == mine
    assert all(one["shared"] == [f"rankproof-test-{rank}" for rank in range(3)] for one in found)
    # A host's own is at this path.
    assert not list(Path("/tmp").glob("rankproof-test-*"))  # noqa: S108
    # A rank may do what it may do elsewhere, although who made its host may do everything there.
    own = next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if "CapEff" in line
    )
    assert all((one["effective"], one["user"]) == ([own], os.getuid()) for one in found)
    launcher = [("0", "1"), ("0", "2"), ("1", "2")]
    assert [
        (one["launcher"]["LOCAL_RANK"], one["launcher"]["LOCAL_WORLD_SIZE"]) for one in found
    ] == launcher
    assert {one["launcher"]["MASTER_ADDR"] for one in found} == {"10.77.0.1"}
    if isolation.has_clocks():
        apart = found[1]["seconds"] - found[0]["seconds"]
        assert abs(apart - hosts.CLOCK_STEP) < 60
        # And yet its events stand where they happened.
        begun, ended = (
            lived.history.noted(name)[0].event.ns for name in ("world.begin", "world.end")
        )
        assert all(
            begun < event.ns < ended for rank in range(3) for event in lived.said(rank, "around")
        )


def test_ranks_meet_where_a_launcher_says(live: Live) -> None:
    """MASTER_ADDR and MASTER_PORT lead from every host to rank 0."""
    lived = live("hosted:serve", size=3, hosts=placed(0, 1, 2))
    assert lived.passed
    assert [lived.said(rank, "heard")[0].values["text"] for rank in (1, 2)] == ["HELLO", "HELLO"]


def test_fresh_ranks_and_their_errors_are_on_hosts_too(live: Live) -> None:
    """A new interpreter is on its host, and the time of its error is told by the clock of all
    others.
    """
    lived = live("hosted:fail", size=2, warm=False, backend="none", hosts=placed(0, 1))
    assert lived.findings["ranks-are-on-their-hosts"].passed
    error = lived.history.error(1)
    assert error is not None
    assert error.event.values["message"] == "on its host"
    begun = lived.said(1, "subject.begin")[0]
    ended = lived.history.exit(1)
    assert ended is not None
    assert begun.ns < error.event.ns < ended.event.ns


@pytest.mark.whole
@pytest.mark.skipif(not isolation.has_clocks(), reason="this kernel gives a host no clock")
def test_a_wait_that_ends_by_the_clock_of_its_host_is_no_hang(live: Live) -> None:
    """A deadlock on hosts is proved.

    A rank that waits until a time of its own clock, a day ahead, only sleeps.
    """
    hang, on = Hang(window=0.6, within=2.0), placed(0, 1)
    stuck = live("hanging:branch_around_a_collective", hosts=on, hang=hang)
    assert stuck.history.noted("world.still"), stuck.history.noted("world.unproved")
    slow = live("hanging:waits_with_a_timeout", backend="none", hosts=on, hang=hang, deadline=60.0)
    assert [seen.event.values["code"] for seen in slow.history.noted("world.unproved")] == [
        "moving"
    ]
    assert not slow.history.noted("world.still")


@pytest.mark.skipif(not isolation.has_clocks(), reason="this kernel gives a host no clock")
def test_an_event_is_checked_against_the_clock_of_its_own_host(live: Live) -> None:
    """What a rank stamps with another host's clock is not an event."""
    lived = live("hosted:misdate", hosts=placed(0, 1), backend="none")
    assert [seen.event.values["why"] for seen in lived.history.noted("channel.garbage", 1)] == [
        "ns is outside the lifetime of the rank"
    ]
    assert not lived.findings["channel-is-whole"].passed


def test_a_wire_that_ends_before_any_rank_has_begun_makes_the_trial_void(
    pool: Any, order: Any, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wire is ours: without it nothing is said of the ranks. The next world has one again."""
    # No rank is heard to begin, however fast it is.
    monkeypatch.setattr(World, "_take", lambda *_: None)

    def begin(world: World) -> None:
        world.once("rank.started", rank=0, do=lambda: os.kill(wire_of(world), signal.SIGKILL))

    capture = World(order("calm:gather", size=3, hosts=placed(0, 1, 2)), pool, on_begin=begin).run()
    said = [event.values["message"] for event in capture.events if event.name == "harness.error"]
    assert said == ["the process that links the test hosts ended before the ranks did"]
    monkeypatch.undo()
    assert live("calm:gather", size=3, hosts=placed(0, 1, 2)).passed


def test_a_wire_that_is_killed_fails_the_trial(live: Live) -> None:
    """A rank that has begun may be who killed it."""
    lived = live(
        "hosted:wait",
        size=3,
        hosts=placed(0, 1, 2),
        gates=("waiting",),
        on_gate=lambda world, event: (
            os.kill(wire_of(world), signal.SIGKILL) if event.rank == 0 else None
        ),
    )
    assert lived.history.said(0, "rank.begin")
    assert not lived.findings["kept-to-the-end"].passed
    assert "the process that links the test hosts ended before the ranks did" in lived.void[0]


@pytest.mark.long
def test_a_wire_that_is_stopped_cannot_say_what_passed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that need it no more end, and the trial is not taken for whole."""
    lived = live(
        "hosted:wait",
        backend="none",
        hosts=placed(0, 1),
        gates=("waiting",),
        on_gate=lambda world, event: (
            os.kill(wire_of(world), signal.SIGSTOP) if event.rank == 0 else None
        ),
    )
    assert "did not answer after the ranks had ended" in lived.void[0]
    assert not lived.passed


def test_another_user_has_hosts_too(short_tmp: Path) -> None:
    """Without any right of root's, hosts are made, entered, and joined by the wire."""
    if os.getuid() != 0:
        pytest.skip(
            "is about changing the user, which takes root; every other test here shows it for"
            " this one"
        )
    if TUN.stat().st_mode & 0o006 != 0o006:
        pytest.skip(f"{TUN} is root's alone here, so that another user has no hosts")
    os.chown(short_tmp, 65534, 65534)
    read, write = os.pipe()
    if os.fork() == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            keep_private(private=True)  # as a keeper is
            opened = [{"host": 0, "port": 20_000, "backlog": 1}]
            wire = WireProcess({"count": 2, "of": [0, 1], "open": opened, "kept": []}, short_tmp)
            child = os.fork()
            if child == 0:
                wire.enter(1)
                # Nothing may be imported any more: this user need not be able to read the
                # interpreter's files.
                with socket.socket() as channel:
                    channel.connect(("10.77.0.1", 20_000))
                    channel.sendall(f"{os.getuid()} {os.uname().nodename}".encode())
                os._exit(0)
            with socket.socket(fileno=wire.opened[0]) as server:
                server.settimeout(10)
                with server.accept()[0] as channel:
                    os.write(write, channel.recv(100))
            os.waitpid(child, 0)
            wire.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert os.read(read, 100) == b"65534 host-1"
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max_net_namespaces", "cannot create a host's namespaces: No space left on device"),
        ("max_user_namespaces", "cannot create a user namespace: No space left on device"),
    ],
)
def test_where_hosts_are_forbidden_it_is_said_with_a_remedy(setting: str, said: str) -> None:
    """A machine that lets nobody have them: the reason names the step, and what to do."""
    code = (
        "from harness.world.hosts import host as hosts; print(hosts.refusal().code,"
        " hosts.refusal())"
    )
    script = f'echo 0 > /proc/sys/user/{setting} && exec "$0" -c "{code}"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", script, sys.executable]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"skip:machine-hosts test hosts cannot be created on this machine: {said}; "
    )
    assert "namespaces" in done.stdout.rpartition(": ")[2]
