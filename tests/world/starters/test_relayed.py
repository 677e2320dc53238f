"""What is behind a relay, as control sees it: without Ray, with the relay that an actor of Ray
is.
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from harness.forms.model import MOST_RANKS
from harness.world.machines.agent_channel import AgentChannel, Unreachable, boot
from harness.world.machines.fleet import BESIDE, have_descriptors
from harness.world.starters.ray_relay import LOST, NodeLost, Piped, RayRelay


class Here:
    """A relay of this process, which a test may lose."""

    def __init__(self, program: str) -> None:
        self._relay = RayRelay(program, interpreter=sys.executable)
        self._numbers = itertools.count()
        self.lost = ""

    def read(self, wait: float) -> bytes | None:
        if self.lost:
            raise NodeLost(self.lost)
        return self._relay.read(wait)

    def write(self, content: bytes) -> None:
        self._relay.write(content, next(self._numbers))

    def said(self) -> str:
        return self._relay.said()

    def kill(self) -> None:
        self._relay.close()


def test_an_agent_behind_a_relay_is_one_behind_ssh() -> None:
    """It answers, takes what is longer than a pipe, and ends with its channel."""
    started: list[Piped] = []

    def start() -> Piped:
        started.append(Piped(Here(boot())))
        return started[0]

    with AgentChannel(start, within=60.0) as channel:
        assert channel.clock(2).offset < 60.0
        assert channel.ask("take", content=bytes(2**20), within=60.0) == {"taken": 2**20}
    assert started[0].wait(60.0) == 0


def test_a_lost_relay_says_why() -> None:
    """Who waits for a node that was lost hears so, in the words of what lost it, and not of how a
    process ended.
    """
    relay = Here(boot())
    relay.lost = "Ray has lost it"
    with pytest.raises(Unreachable, match=rf"it ended \(exit code {LOST}\): Ray has lost it"):
        AgentChannel(lambda: Piped(relay), within=60.0)


def test_what_a_program_said_last_is_heard() -> None:
    """The end of a process tells its last words."""
    with pytest.raises(Unreachable, match="ValueError: no"):
        AgentChannel(lambda: Piped(Here("raise ValueError('no')")), within=60.0)


def test_calls_that_overtake_each_other_are_put_in_order() -> None:
    """Threads of an actor may write in another order than control did: the process reads what
    control wrote.
    """
    relay = RayRelay("sys.stdout.buffer.write(sys.stdin.buffer.read())", interpreter=sys.executable)
    for number in (2, 0, 3, 1):
        relay.write(f"{number} ".encode() if number < 3 else b"", number)
    found = b""
    while part := relay.read(60.0):
        found += part
    assert found == b"0 1 2 "


def test_a_relay_ends_when_nobody_asks(tmp_path: Path) -> None:
    """What Ray leaves behind when control is gone ends by itself, and what it started hears of
    that.
    """
    program = (
        f"sys.stdin.read(); os.write(os.open({str(tmp_path / 'told')!r}, os.O_WRONLY), b'closed')"
    )
    os.mkfifo(tmp_path / "told")
    actor = (
        "import sys, time; from harness.world.starters import ray_relay; ray_relay.UNASKED = 0.2; "
        f"made = ray_relay.RayRelay({program!r}, interpreter=sys.executable, alone=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", actor]) as process:
        assert (tmp_path / "told").read_bytes() == b"closed"
        assert process.wait(60.0) == 0


def test_descriptors_are_had_for_many_machines() -> None:
    """Control raises its own soft limit for as many channels, never beyond the hard one, and never
    lowers it.
    """
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    some = 3 * 100 + 9 * MOST_RANKS + BESIDE
    if soft == resource.RLIM_INFINITY or hard in range(some + 1):
        pytest.skip("this system has other limits")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (some - 1, hard))
        for machines, limit in ((100, some), (10, some), (10**6, 3 * 10**6 + some - 300)):
            have_descriptors(machines)
            most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
