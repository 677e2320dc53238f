"""Strikes that cannot land, ends that are meant, and what a rank may do about a fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.faulted_worlds import Struck

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

Live = Callable[..., Struck]
Make = Callable[..., Any]
AT_THE_DOOR = (
    {"kind": "pause", "at": "door", "for": "20ms"},
    {"kind": "delay", "at": "door", "for": "20ms"},
    {"kind": "kill", "at": "door"},
    {"kind": "raise", "at": "door"},
    {"kind": "exit", "at": "door", "code": 0},
)


@pytest.mark.parametrize("options", AT_THE_DOOR, ids=lambda options: options["kind"])
def test_a_strike_at_an_event_that_never_comes_is_not_proved(
    live: Live, fault: Make, options: Any
) -> None:
    """A rank that returns without its event had its chance: no strike, no proof, and the reason in
    words.
    """
    struck = live(fault(ranks=[1], **options), entry="struck:never")
    (found,) = struck.proved
    assert (found.struck, found.undone, found.proof.proved, found.proof.overtaken) == (
        False,
        False,
        False,
        False,
    )
    assert found.proof.description == "it never emitted door, and returned"
    assert struck.passed


@pytest.mark.parametrize("options", AT_THE_DOOR, ids=lambda options: options["kind"])
def test_a_rank_that_dies_before_its_fault_failed_by_itself(
    live: Live, fault: Make, options: Any
) -> None:
    """The fault came too late, says how the rank ended, and excuses nothing."""
    struck = live(fault(ranks=[1], **options), entry="struck:die_before")
    (found,) = struck.proved
    assert (found.struck, found.proof.proved, found.proof.overtaken) == (False, False, True)
    assert found.proof.description == "it never emitted door: it raised LookupError before"
    assert not struck.passed


@pytest.mark.slow
def test_a_rank_that_hangs_before_its_fault_failed_by_itself(live: Live, fault: Make) -> None:
    """Stopped at the deadline before it reached its event: too late as well."""
    struck = live(
        fault(kind="kill", ranks=[1], at="door"), entry="struck:hang_before", deadline=1.0
    )
    (found,) = struck.proved
    assert (found.proof.proved, found.proof.overtaken) == (False, True)
    assert not struck.passed


def test_a_rank_that_survives_its_signal_was_not_killed(live: Live, fault: Make) -> None:
    """SIGTERM ignored: the signal was sent, the rank returned, and nothing is proved."""
    struck = live(
        fault(kind="kill", ranks=[1], at="door", signal="TERM"), entry="struck:survive_sigterm"
    )
    (found,) = struck.proved
    assert (found.struck, found.proof.proved) == (True, False)
    assert found.proof.description == "it ended with code 0, not by SIGTERM"
    assert struck.passed


def test_what_is_raised_may_be_caught(live: Live, fault: Make) -> None:
    """A subject that handles the fault's exception passes, and the proof says that it was raised
    and caught.
    """
    raised = fault(kind="raise", ranks=[1], at="door", error="ConnectionError", message="gone away")
    struck = live(raised, entry="struck:catch")
    (found,) = struck.proved
    assert found.proof.proved
    assert "caught" in found.proof.description
    assert struck.one("rank", 1, "caught").values == {
        "type": "ConnectionError",
        "message": "gone away",
    }
    assert struck.passed


def test_what_a_fault_raises_is_not_taken_for_a_refusal_of_ours(live: Live, fault: Make) -> None:
    """The exception of a `raise` fault that nobody caught is the scenario's doing, though our code
    raises it.
    """
    struck = live(fault(kind="raise", ranks=[1], at="door"), entry="struck:outlive")
    assert struck.one("rank", 1, "rank.error").values["ours"] is False


@pytest.mark.parametrize("options", AT_THE_DOOR[2:], ids=lambda options: options["kind"])
def test_the_end_of_a_struck_rank_is_no_failure(live: Live, fault: Make, options: Any) -> None:
    """What a fault ends need not return, and the others keep their time; `world:finished` says
    which fault it was.
    """
    struck = live(
        fault(ranks=[1], **options),
        fault(id="r", kind="delay", ranks=[0], at="door", **{"for": "300ms"}),
        entry="struck:outlive",
        after_failure=0.05,
    )
    assert struck.passed
    part = struck.findings["world:finished"].ranks[1]
    assert part.observed == f"ended by fault {options['kind']}"
    assert struck.count("rank", 0, "worked") == 5
    assert all(found.proof.proved for found in struck.proved)


@pytest.mark.whole
def test_faults_before_the_group_is_joined(live: Live, fault: Make) -> None:
    """A rank killed at its very beginning proves the fault, and its peer does not wait at the start
    line for ever.
    """
    struck = live(fault(kind="kill", ranks=[1], at="rank.begin"), deadline=2.0)
    (found,) = struck.proved
    assert found.proof.proved
    assert struck.findings["world:group-is-whole"].ranks[1].passed


@pytest.mark.parametrize("kind", ["pause", "delay"])
def test_a_rank_held_at_the_start_line_holds_all(live: Live, fault: Make, kind: str) -> None:
    """A fault at `backend.ready` keeps everybody at the line until it is over."""
    struck = live(fault(kind=kind, ranks=[1], at="backend.ready", **{"for": "100ms"}))
    (found,) = struck.proved
    assert found.proof.proved
    assert struck.one("rank", 0, "subject.begin").ns > struck.one("harness", 1, "fault.undone").ns
    assert struck.passed


def test_several_faults_in_one_world(live: Live, fault: Make) -> None:
    """Both ranks late, one paused and one delayed: neither blocks the other, and the times
    overlap.
    """
    begin = time.monotonic()
    struck = live(
        fault(kind="pause", ranks="every", at="door", **{"for": "400ms"}),
        fault(kind="delay", ranks=[0], at="before", **{"for": "400ms"}),
        fault(kind="env", ranks="every", set={"STRUCK": "yes"}),
    )
    assert [found.proof.proved for found in struck.proved] == [True] * 5
    assert struck.passed
    took, begin = time.monotonic() - begin, time.monotonic()
    assert live().passed
    assert took < 0.8 + 20 * max(time.monotonic() - begin, 0.1)
    assert struck.one("server", 1, "rank.stopped").ns < struck.one("server", 0, "rank.stopped").ns


@pytest.mark.whole
def test_a_variable_read_at_import_starts_fresh_ranks(live: Live, fault: Make) -> None:
    """One rank with another number of threads: every rank is fresh, and torch there has what it was
    given.
    """
    struck = live(
        fault(kind="env", ranks=[1], set={"OMP_NUM_THREADS": "2"}),
        entry="struck:threads",
        warm=False,
        deadline=60.0,
    )
    (found,) = struck.proved
    assert found.proof.proved
    assert struck.one("rank", 1, "fault.env").values["at_start"] == {"OMP_NUM_THREADS": "2"}
    assert struck.one("rank", 0, "fault.env").values["values"] == {"OMP_NUM_THREADS": "1"}
    assert [struck.one("rank", rank, "threads").values["count"] for rank in (0, 1)] == [1, 2]


def test_a_world_that_fails_meanwhile_takes_back_what_is_in_force(live: Live, fault: Make) -> None:
    """A rank that is paused when another fails is stopped with its world.

    The strike is undone, and proves nothing.
    """
    struck = live(
        fault(kind="pause", ranks=[0], at="door", **{"for": "15s"}),
        entry="struck:die_before",
        after_failure=0.1,
    )
    (found,) = struck.proved
    assert (found.struck, found.undone, found.proof.proved, found.proof.overtaken) == (
        True,
        True,
        False,
        True,
    )
    assert (
        found.proof.description
        == "it was not stopped for 15 s: its world had failed meanwhile, and was stopped"
    )
    assert struck.history.exit(0).event.values["signal"] == "SIGKILL"


def test_a_late_rank_is_not_started_into_a_world_that_is_over(live: Live, fault: Make) -> None:
    """The deadline comes before the late rank: nobody is started any more, nothing waits for it."""
    begin = time.monotonic()
    struck = live(
        fault(kind="start-late", ranks=[1], **{"for": "15s"}), deadline=0.5, after_failure=0.2
    )
    assert time.monotonic() - begin < 15
    (found,) = struck.proved
    assert (found.struck, found.proof.proved, found.proof.overtaken) == (False, False, True)
    assert struck.count("server", 1, "rank.started") == 0
    assert not struck.passed


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "mlx-ring"])
@pytest.mark.parametrize("inside", [False, True], ids=["right-before", "inside"])
def test_a_pause_in_the_middle_of_collectives(
    live: Live, fault: Make, inside: bool, backend: str
) -> None:
    """Ranks wait for one that is stopped before or inside an all-gather, and all get what they
    always get.
    """
    world = {
        "entry": "struck:gather",
        "arguments": {"rounds": 200, "inside": inside},
        "backend": backend,
    }
    usual = live(**world)
    struck = live(fault(kind="pause", ranks=[1], at="door", **{"for": "300ms"}), **world)
    (found,) = struck.proved
    assert found.proof.proved
    assert struck.passed
    digests = {
        world.one("rank", rank, "gathered").values["digest"]
        for world in (usual, struck)
        for rank in (0, 1)
    }
    assert len(digests) == 1
    assert struck.one("rank", 0, "gathered").ns > struck.one("harness", 1, "fault.undone").ns
