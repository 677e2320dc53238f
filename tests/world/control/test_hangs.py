"""The proof of a hang: worlds that stand still, and worlds that are only slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.world.control.hang import Hang, holding_back
from harness.world.control.pool import ServerPool, prepare
from tests.kit.worlds import Lived

HANG = Hang(window=0.6, within=6.0)
SLOW_WORLDS = (
    "computes",
    "computes_in_a_thread",
    "sleeps",
    "polls",
    "waits_with_a_timeout",
    "selects_with_a_timeout",
    "receives_with_a_timeout",
    "sleeps_in_a_loop",
    "waits_for_a_sleeping_child",
    "waits_for_a_computing_child",
    "waits_for_an_orphan",
    "waits_for_a_sleeping_thread",
    "talks",
)
SLOW = Hang(window=0.6, within=1.4)


def lines(lived: Lived, rank: int, sample: int) -> set[str]:
    """Functions of the subject on the stacks of a rank, the time it was asked."""
    found = [seen.event.values for seen in lived.history.noted("rank.stack", rank)]
    asked: list[Any] = [values["threads"] for values in found if values["sample"] == sample]
    return {
        frame["function"]
        for threads in asked
        for thread in threads
        for frame in thread["frames"]
        if frame["subject"]
    }


LANES = 5


def together(
    live: Callable[..., Lived], pool: ServerPool, orders: dict[str, dict[str, Any]]
) -> dict[str, Lived]:
    """Live the worlds: those without a group, which mostly wait, side by side from servers that
    hold no torch.
    """
    grouped = {name: rest for name, rest in orders.items() if "backend" in rest}
    alone = {
        name: {**rest, "backend": "none", "warm": False}
        for name, rest in orders.items()
        if name not in grouped
    }
    prepare(pool, LANES, warm=False, env={})
    found = {name: live(f"hanging:{name}", deadline=60.0, **rest) for name, rest in grouped.items()}
    with ThreadPoolExecutor(LANES) as threads:
        running = {
            name: threads.submit(live, f"hanging:{name}", deadline=60.0, **rest)
            for name, rest in alone.items()
        }
    return {**found, **{name: future.result() for name, future in running.items()}}


@pytest.mark.slow
def test_a_world_that_stands_still_is_proved_to_hang(
    live: Callable[..., Lived], pool: ServerPool
) -> None:
    """Deadlocks of a group, a ring, a lock, a thread and a socket are proved, with their line on
    both stacks.
    """
    ring, gloo = {"backend": "mlx-ring", "hang": HANG}, {"backend": "gloo", "hang": HANG}
    alone = {"hang": HANG}
    found = together(
        live,
        pool,
        {
            "branch_around_a_collective": gloo,
            "missing_send": gloo,
            "lock_across_fork": alone,
            "in_a_thread": alone,
            "silent_socket": alone,
            "ring_without_peer": ring,
            "peer_is_gone": alone,
        },
    )
    for name, lived in found.items():
        still = lived.history.noted("world.still")
        assert still, (name, lived.history.noted("world.unproved"))
        assert not lived.history.noted("world.unproved"), name
        values: Any = still[0].event.values
        assert values["seconds"] >= 0.6
        for rank in values["ranks"]:
            where = "_wait_for_ever" if name in ("in_a_thread", "peer_is_gone") else name
            assert where in lines(lived, rank, 1), (name, rank)
            assert where in lines(lived, rank, 2), (name, rank)
    assert found["peer_is_gone"].history.noted("world.still")[0].event.values["ranks"] == [1]
    spinning: Any = (
        found["ring_without_peer"].history.noted("world.still")[0].event.values["spinning"]
    )
    assert set(spinning) == {"0"}


@pytest.mark.whole
def test_a_world_that_is_only_slow_is_never_proved_to_hang(
    live: Callable[..., Lived], pool: ServerPool
) -> None:
    """A peer that computes, sleeps, polls, waits with a timeout or for a child that goes on: no
    proof.
    """
    orders: dict[str, dict[str, Any]] = {name: {"hang": SLOW} for name in SLOW_WORLDS}
    orders["computes_natively"] = {"hang": SLOW, "backend": "mlx-ring"}
    for name, lived in together(live, pool, orders).items():
        unproved = lived.history.noted("world.unproved")
        assert unproved, (name, lived.history.noted("world.still"))
        assert unproved[0].event.values["code"] in ("moving", "doubtful"), name


def test_who_is_writing_its_stacks_is_seen_until_it_is_done() -> None:
    """Half a stack is not taken for a whole one, however long the processor lets its writer wait in
    the middle.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    room = 0
    try:
        while True:
            room += os.write(writes, bytes(65536))
    except BlockingIOError:
        os.set_blocking(writes, True)  # from here on whoever writes waits until somebody reads
    code = (
        f"import faulthandler, signal; faulthandler.register(signal.SIGUSR1, file={writes});"
        " print(flush=True);signal.sigwait([signal.SIGTERM])"
    )
    asked = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, pass_fds=[writes]
    )
    try:
        assert asked.stdout is not None
        asked.stdout.readline()
        before = holding_back(asked.pid, signal.SIGUSR1)
        asked.send_signal(signal.SIGUSR1)
        while not holding_back(asked.pid, signal.SIGUSR1) - before:
            assert asked.poll() is None
        text = b""
        while room:
            room -= len(os.read(reads, room))
        while (
            holding_back(asked.pid, signal.SIGUSR1) - before
            or b"most recent call first" not in text
        ):
            text += os.read(reads, 4096)
        assert b'File "<string>", line 1 in <module>' in text
    finally:
        asked.kill()
        asked.communicate()
        os.close(reads)
        os.close(writes)
