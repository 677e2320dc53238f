"""That a pause was taken back is told by something that cannot be lost, however soon the rank
ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.rank.process import inspect
from harness.world.control.world import World
from tests.kit.faulted_worlds import Struck

Live = Callable[..., Struck]
Make = Callable[..., Any]


class KeeperHeldBack(World):
    """A world whose keeper gets no processor from when a rank is continued until that rank has
    ended.

    This is what load does to it. The rank is continued from here, as the keeper cannot.
    """

    def signal(self, number: int, *, rank: int | None = None) -> None:
        """Send the signal; SIGCONT with the keeper held back."""
        if number != signal.SIGCONT:
            super().signal(number, rank=rank)
            return
        assert rank is not None
        pid = self.pids[rank]
        found = inspect(pid)
        assert found is not None
        os.kill(found.parent, signal.SIGSTOP)
        try:
            until(found.parent, "T")
            super().signal(number, rank=rank)
            os.kill(pid, signal.SIGCONT)
            until(pid, "Z")
        finally:
            os.kill(found.parent, signal.SIGCONT)


def until(pid: int, state: str) -> None:
    """Return when the kernel says that a process is in this state."""
    end = time.monotonic() + 10
    while (found := inspect(pid)) is None or found.state != state:
        assert time.monotonic() < end, f"{found} never got to {state}"
        os.sched_yield()


@pytest.mark.slow
def test_a_rank_is_seen_to_continue_before_its_gate_opens(live: Live, fault: Make) -> None:
    """The keeper tells it before it says that the signal has landed, for which the gate waits: no
    end can hide it.
    """
    struck = live(fault(kind="pause", ranks=[1], at="door", **{"for": "20ms"}))
    continued = struck.one("server", 1, "rank.continued")
    landed = [
        seen.event.ns
        for seen in struck.history.served(None, "world.signalled")
        if seen.event.values["signal"] == "SIGCONT"
    ]
    assert len(landed) == 1
    assert (
        struck.one("harness", 1, "fault.undone").ns
        < continued.ns
        <= landed[0]
        < struck.one("rank", 1, "after").ns
    )
    assert "shown_by" not in continued.values


@pytest.mark.slow
def test_a_rank_that_ends_when_it_is_continued_proves_the_pause_by_its_end(
    live: Live, fault: Make
) -> None:
    """The kernel has forgotten that it went on; that it ended with a code shows it."""
    struck = live(
        fault(kind="pause", ranks=[1], at="door", **{"for": "20ms"}),
        entry="struck:end_when_continued",
        world=KeeperHeldBack,
    )
    assert struck.history.exit(1).event.values["code"] == 0
    assert struck.one("server", 1, "rank.continued").values == {"shown_by": "its end"}
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description
    assert found.proof.description.endswith(" at the latest, because it ended then")
    assert not struck.passed, "it has not returned, and a pause excuses no end"


@pytest.mark.slow
def test_a_signal_that_must_be_run_to_end_a_process_proves_it_too(live: Live, fault: Make) -> None:
    """SIGTERM waits until a stopped process goes on, so an end by it shows that it did."""
    struck = live(
        fault(kind="pause", ranks=[1], at="door", **{"for": "20ms"}),
        entry="struck:end_when_continued",
        arguments={"by": int(signal.SIGTERM)},
        world=KeeperHeldBack,
    )
    assert struck.history.exit(1).event.values["signal"] == "SIGTERM"
    (found,) = struck.proved
    assert found.proof.proved, found.proof.description


@pytest.mark.slow
def test_an_end_by_sigkill_proves_nothing(live: Live, fault: Make) -> None:
    """SIGKILL ends a stopped process as well: whether it had gone on cannot be known, and the
    reason says so.
    """
    struck = live(
        fault(kind="pause", ranks=[1], at="door", **{"for": "20ms"}),
        entry="struck:end_when_continued",
        arguments={"by": int(signal.SIGKILL)},
        world=KeeperHeldBack,
    )
    assert struck.count("server", 1, "rank.continued") == 0
    (found,) = struck.proved
    assert not found.proof.proved
    assert (
        found.proof.description
        == "it was not observed to resume before SIGKILL ended it, which ends a stopped process too"
    )
