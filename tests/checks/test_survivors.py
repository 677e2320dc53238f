"""What `detected-within` and `survivors-end` say of the ranks that a fault leaves alive."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding, judge_trial
from harness.events import Event
from harness.history import FaultOnRank, History

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
STRUCK = 1_000_000_000
SECOND = 1_000_000_000
GONE = {
    "type": "DistBackendError",
    "message": "Connection closed by peer",
    "mro": ["DistBackendError", "RuntimeError", "Exception"],
    "ours": False,
}


def event(ns: int, by: str, rank: int | None, name: str, **values: Any) -> Event:
    pid = None if rank is None else 200 + rank
    return Event(ns=ns, by=by, rank=rank, pid=pid, name=name, values=values)  # type: ignore[arg-type]


def world(*, size: int = 3, dead: int = 1, change: dict[int, list[Event]] | None = None) -> History:
    """Rank `dead` is killed after a second.

    Each of the others raises 0.2 s later, and ends 0.1 s after that.
    """
    events = [event(1, "harness", None, "world.begin", harness_pid=100, size=size)]
    for rank in range(size):
        events.append(event(2 + rank, "server", rank, "rank.started"))
        events.append(event(10 + rank, "rank", rank, "subject.begin"))
    events.append(event(STRUCK, "harness", dead, "fault.struck", fault="dies", kind="kill"))
    events.append(event(STRUCK + 1000, "server", dead, "rank.exited", code=None, signal="SIGKILL"))
    for rank in range(size):
        if rank == dead:
            continue
        usual = [
            event(STRUCK + SECOND // 5, "rank", rank, "rank.error", **GONE),
            event(STRUCK + 3 * SECOND // 10, "server", rank, "rank.exited", code=1, signal=None),
        ]
        events += (change or {}).get(rank, usual)
    events.append(event(60 * SECOND, "harness", None, "world.end"))
    events.sort(key=lambda one: one.ns)
    return proved(History(events, size=size), dead=dead)


def proved(history: History, *, dead: int = 1, ends: bool = True) -> History:
    struck = next((seen for seen in history.seen if seen.event.name == "fault.struck"), None)
    return history.with_faults(
        [FaultOnRank(fault="dies", rank=dead, struck=struck, proved=ends, ends=ends)]
    )


def judge(kind: str, history: History, **options: Any) -> Finding:
    given = {"id": "it", "kind": kind, "ranks": "every", "fault": "dies", "limit": "2s", **options}
    return CHECK.validate_python(given).judge(history)


BOTH = pytest.mark.parametrize("kind", ["detected-within", "survivors-end"])


@BOTH
def test_survivors_that_fail_in_time_pass_and_the_dead_rank_is_excused(kind: str) -> None:
    """Who raised and ended in time passes, with the time since the strike.

    The dead rank is named as such.
    """
    found = judge(kind, world())
    assert found.passed
    assert [part.rank for part in found.ranks] == [0, 1, 2]
    assert found.ranks[1].observed == "ended by fault dies"
    seconds = "raised 0.200 s" if kind == "detected-within" else "ended 0.300 s"
    assert found.ranks[0].observed == f"DistBackendError, {seconds} after fault dies"


def stopped(rank: int) -> list[Event]:
    """It went on until the harness stopped it, and stood in a loop."""
    frames = [
        {"file": "threading.py", "line": 7, "function": "wait", "subject": False},
        {"file": "subject.py", "line": 11, "function": "work", "subject": True},
    ]
    return [
        event(9 * SECOND, "harness", rank, "rank.stack", sample=1, threads=[{"frames": frames}]),
        event(9 * SECOND + 1, "harness", None, "world.stopped", ranks=[rank], why="after-failure"),
        event(9 * SECOND + 2, "server", rank, "rank.exited", code=None, signal="SIGKILL"),
    ]


def raised(*, at: int = STRUCK + SECOND // 5, code: int | None = 1, **values: Any) -> list[Event]:
    return [
        event(at, "rank", 2, "rank.error", **{**GONE, **values}),
        event(max(at, STRUCK) + SECOND // 10, "server", 2, "rank.exited", code=code, signal=None),
    ]


CASES: dict[str, tuple[list[Event], str]] = {
    "stopped": (stopped(2), "until the harness stopped it, in work (subject.py:11)"),
    "late": (raised(at=STRUCK + 5 * SECOND), "it took longer than 2 s"),
    "before the strike": (raised(at=STRUCK - 5), "before the fault dies struck"),
    "a slip": (raised(type="NameError", mro=["NameError", "Exception"]), "a typing mistake"),
    "a slip of a class that descends from one": (
        raised(type="ModuleNotFoundError", mro=["ModuleNotFoundError", "ImportError"]),
        "a typing mistake",
    ),
    "an event of its own refused": (
        raised(type="ValueError", mro=["ValueError"], ours=True),
        "a typing mistake",
    ),
    "a crash": (
        [event(STRUCK + 9, "server", 2, "rank.exited", code=None, signal="SIGSEGV")],
        "ended with SIGSEGV",
    ),
    "as if nothing had happened": (
        [
            event(STRUCK + 8, "rank", 2, "subject.end"),
            event(STRUCK + 9, "server", 2, "rank.exited", code=0, signal=None),
        ],
        "returned as if nothing had happened",
    ),
    "nobody saw it end": ([], "its exit was not observed"),
}


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_a_survivor_that_does_otherwise_fails_alone(kind: str, name: str) -> None:
    """Each way not to notice a fault fails on exactly that rank, and says which way it was."""
    events, words = CASES[name]
    found = judge(kind, world(change={2: events}))
    assert found.failed_ranks == (2,)
    assert words in found.ranks[2].reason


@BOTH
def test_sigabrt_and_exit_codes_are_errors(kind: str) -> None:
    """An uncaught error of C++ ends a process by SIGABRT, a program by a code: both are an
    error.
    """
    for values in ({"code": None, "signal": "SIGABRT"}, {"code": 3, "signal": None}):
        assert judge(
            kind, world(change={2: [event(STRUCK + 9, "server", 2, "rank.exited", **values)]})
        ).passed


def test_an_error_is_not_an_end() -> None:
    """A rank that raised in time and whose process stayed is noticed, and has not ended."""
    stays = [raised()[0], *stopped(2)]
    assert judge("detected-within", world(change={2: stays})).passed
    found = judge("survivors-end", world(change={2: stays}))
    assert found.failed_ranks == (2,)
    assert "until the harness stopped it" in found.ranks[2].reason
    assert judge("survivors-end", world(change={2: raised(code=0)})).failed_ranks == (2,)


@BOTH
def test_the_error_can_be_stated(kind: str) -> None:
    """A type that is stated is met by what descends from it, also by a slip.

    A message by a text that holds it.
    """
    assert judge(kind, world(), error="RuntimeError", message="closed by peer").passed
    assert judge(kind, world(), error="TimeoutError").failed_ranks == (0, 2)
    assert judge(kind, world(), message="timed out").failed_ranks == (0, 2)
    slip = world(
        change={
            0: raised(type="TypeError", mro=["TypeError"]),
            2: raised(type="TypeError", mro=["TypeError"]),
        }
    )
    assert judge(kind, slip, error="TypeError", ranks=[2]).passed


@BOTH
def test_without_a_fault_there_is_nothing_to_notice(kind: str) -> None:
    """A rank that fails without a strike fails the check.

    So does a world in which nobody was left alive.
    """
    unstruck = History(
        [seen.event for seen in world().seen if seen.event.name != "fault.struck"], size=3
    )
    found = judge(kind, proved(unstruck, ends=False))
    assert found.failed_ranks == (0, 1, 2)
    assert "did not take effect" in found.ranks[0].reason
    assert "no rank is left" in judge(kind, world(), ranks=[1]).reason


@BOTH
def test_events_cannot_make_a_survivor_a_victim(kind: str) -> None:
    """A strike on another rank, written into the events, excuses nobody: the scenario says for whom
    the fault is.
    """
    forged = event(STRUCK + 1, "harness", 2, "fault.struck", fault="dies", kind="kill")
    history = world(change={2: [forged, *stopped(2)]})
    assert judge(kind, history).failed_ranks == (2,)


@BOTH
def test_who_must_end_with_an_error_need_not_return(kind: str) -> None:
    """`world:finished` excuses the survivors that did as asked, and nobody else."""
    check = CHECK.validate_python(
        {"id": "it", "kind": kind, "ranks": "every", "fault": "dies", "limit": "2s"}
    )
    history = world(change={0: stopped(0)})
    findings = {one.check: one for one in judge_trial([check], history, ended_by_fault={1: "dies"})}
    finished = findings["world:finished"]
    assert finished.failed_ranks == (0,)
    assert finished.ranks[2].observed == "ended with an error, as it demands"
    hung = world(change={2: [raised()[0], *stopped(2)]})
    findings = {one.check: one for one in judge_trial([check], hung, ended_by_fault={1: "dies"})}
    assert findings["world:finished"].failed_ranks == (2,)
    # The same world without such a check: nobody asked for an error.
    assert 2 in {one.check: one for one in judge_trial([], history)}["world:finished"].failed_ranks
