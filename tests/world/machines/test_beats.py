"""Heartbeats wait for nobody: machines that take nothing cost the others no lease."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from harness.world.machines.agent_channel import argv
from harness.world.machines.fleet import READY_WITHIN, Reached
from harness.world.machines.heartbeat import MachineLine
from harness.world.machines.machine_server import MachinePool

pytestmark = [pytest.mark.slow, pytest.mark.whole]
LEASE = 1.5


@pytest.fixture
def fleet() -> Iterator[MachinePool]:
    """Four nodes in processes of this machine, reached as over ssh."""
    machines = [
        Reached(
            name=f"node-{index}",
            called=f"node-{index}",
            command=argv(sys.executable),
            address="127.0.0.1",
            slots=1,
            demand=lambda _told: None,
        )
        for index in range(4)
    ]
    with MachinePool(machines, lease=LEASE, back_within=0.1) as made:
        for index in range(4):
            made._lines[index] = made._connect(index)
        yield made


def fill(line: MachineLine) -> None:
    """Fill the pipe to a machine, up to the last byte."""
    with line._writing:
        for size in (65_536, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(line._writes, bytes(size))


@pytest.mark.long
@pytest.mark.parametrize("full", [False, True], ids=["stopped", "stopped-and-full"])
def test_stalled_machines_cost_the_others_no_lease(fleet: MachinePool, full: bool) -> None:
    """SIGSTOP of three of four nodes, their pipes full or not: they are lost, and the fourth
    answers as before.
    """
    lost = {index: threading.Event() for index in range(4)}
    for index, line in fleet._lines.items():
        line.loses = lambda _line, index=index: lost[index].set()  # type: ignore[misc]
    stalled = [fleet._lines[index] for index in range(3)]
    try:
        for line in stalled:
            os.kill(line._process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
            if full:
                fill(line)
        for index in range(3):
            assert lost[index].wait(30)
        other = fleet._lines[3]
        assert other.ask("lacks", trees=[], within=READY_WITHIN)["lacks"] == []
        assert not other.lost
    finally:
        for line in stalled:
            os.kill(line._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]


def test_a_beat_of_which_the_pipe_took_a_part_is_sent_whole(fleet: MachinePool) -> None:
    """What a full pipe left of a heartbeat goes before anything else, and the node understands what
    follows.
    """
    line = fleet._lines[0]
    with line._writing:
        line._rest = b'\0\0\0\x21\0\0\0\0{"ask": "beat", "ns": 1000000001}'
        os.write(line._writes, line._rest[:9])
        line._rest = line._rest[9:]
    assert line.ask("lacks", trees=[], within=READY_WITHIN)["lacks"] == []
    assert not line.lost
