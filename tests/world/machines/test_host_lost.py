"""The fault `cut-off` and the check `host-lost`: what proves that a machine was cut off, and that
all ended for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks.exit import NoSurvivorsCheck
from harness.checks.host_lost import HostLostCheck
from harness.events import Event
from harness.faults.cut_off import CutOffFault
from harness.forms.problem import ScenarioError
from harness.history import History
from harness.scenario import Cell, parse_scenario
from harness.stats.ends import how_it_ended
from harness.stats.outcome import judge

S = 1_000_000_000
SCENARIO = """
schema: 1
id: lost
title: A machine is lost
question: Does everybody end?
role: claim
subject: {entry: "subject:go", candidate: {}, control: {with: {a: 1}, must_fail: {check: all-end, ranks: [0, 2]}}}
matrix: {ranks: [3], hosts: [3]}
trials: {candidate: 1, control: 1, accept: {failure_rate_below: 99%, confidence: 50%}}
faults:
  - {id: cut, kind: cut-off, ranks: [1], at: door, for: 9s}
checks:
  - {id: all-end, kind: host-lost, ranks: every, fault: cut, limit: 1s}
"""
FAULT: CutOffFault = TypeAdapter(CutOffFault).validate_python(
    {"id": "cut", "kind": "cut-off", "ranks": [1], "at": "door", "for": "9s"}
)
CHECK: HostLostCheck = TypeAdapter(HostLostCheck).validate_python(
    {"id": "all-end", "kind": "host-lost", "ranks": "every", "fault": "cut", "limit": "1s"}
)
KILLED = {"code": None, "signal": "SIGKILL"}


def story() -> list[Event]:
    """Three ranks on three machines.

    The second is cut off at 2 s, missed at 7 s, and joined again at 11 s.
    """
    placed = {"called": ["a", "b", "c"], "of": [0, 1, 2]}
    told: list[tuple[float, str, int | None, str, dict[str, Any]]] = [
        (0, "harness", None, "world.begin", {"machines": placed}),
        (
            0.1,
            "harness",
            None,
            "machines.joined",
            {"machines": [{"machine": one} for one in "abc"], "lease": 4.0, "after_failure": 2.0},
        ),
        (0.2, "harness", None, "fault.planned", {"fault": "cut", "ranks": [1]}),
    ]
    for rank in range(3):
        told += [
            (0.3, "server", rank, "rank.started", {"machine": "abc"[rank]}),
            (0.4, "rank", rank, "rank.begin", {}),
            (0.5, "rank", rank, "backend.ready", {"backend": "gloo", "rank": rank, "size": 3}),
            (0.6, "rank", rank, "subject.loaded", {"entry": "subject.py", "elsewhere": False}),
            (1.0, "rank", rank, "door", {}),
        ]
    told += [
        (1.9, "harness", 1, "fault.struck", {"fault": "cut"}),
        (2.0, "harness", None, "machine.cut", {"machine": "b", "fault": "cut", "link": "down"}),
        (
            5.9,
            "harness",
            None,
            "machine.ended",
            {"machine": "b", "why": "lease lost", "ranks": [1], "silent": 4.02},
        ),
        (5.95, "server", 1, "rank.exited", KILLED),
        (
            7.0,
            "harness",
            None,
            "machine.lost",
            {"machine": "b", "why": "it sent nothing", "ranks": [1]},
        ),
        (8.5, "rank", 0, "rank.error", {"type": "RuntimeError", "message": "timed out", "mro": []}),
        (8.6, "server", 0, "rank.exited", {"code": 1, "signal": None}),
        (9.1, "harness", None, "world.stopped", {"ranks": [2], "why": "after-failure"}),
        (9.2, "server", 2, "rank.exited", KILLED),
        (11.1, "harness", 1, "fault.undone", {"fault": "cut"}),
        (11.2, "harness", None, "machine.joined", {"machine": "b", "fault": "cut", "link": "up"}),
        (13.0, "harness", None, "machine.collected", {"machine": "b", "messages": 9, "why": ""}),
        (13.1, "server", None, "world.survivors", {"count": 0, "processes": []}),
        (13.2, "harness", None, "world.end", {}),
    ]
    return [
        Event(
            ns=round(at * S),
            by=by,
            rank=rank,
            pid=None if rank is None else 10 + rank,
            name=name,
            values=values,
        )  # type: ignore[arg-type]
        for at, by, rank, name, values in told
    ]


def changed(
    name: str, rank: int | None = None, *, to: float | None = None, **values: Any
) -> History:
    """The story with one event at another time, with other values, or gone (without either)."""
    kept = []
    for event in story():
        if event.name == name and (rank is None or event.rank == rank):
            if to is None and not values:
                continue
            event = event._replace(  # noqa: PLW2901 - the same event, told otherwise
                ns=event.ns if to is None else round(to * S), values={**event.values, **values}
            )
        kept.append(event)
    return History(sorted(kept, key=lambda event: event.ns), size=3)


def returned(rank: int) -> History:
    """The story in which a rank reports success."""
    event = Event(
        ns=round(1.5 * S), by="rank", rank=rank, pid=10 + rank, name="subject.end", values={}
    )
    return History(sorted([*story(), event], key=lambda one: one.ns), size=3)


def test_a_machine_that_was_cut_off_fails_nobody() -> None:
    """Cut off, missed, ended by its lease, collected: the trial is good, though a machine did not
    stay.
    """
    scenario = parse_scenario(SCENARIO.encode(), name="s.yaml")
    trial, findings = judge(
        scenario, Cell("c", "c", 3, "gloo", {}, 3), "candidate", 0, History(story(), size=3)
    )
    assert (trial.outcome, trial.failures) == ("pass", []), findings
    # Without the fault it is what it always was: a machine was lost, and nothing makes that good.
    trial, _ = judge(
        scenario,
        Cell("c", "c", 3, "gloo", {}, 3),
        "candidate",
        0,
        changed("machine.cut", fault="another"),
    )
    assert trial.outcome == "fail"
    assert "world:machines-stayed" in [one.check for one in trial.failures]


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (lambda: changed("machine.cut"), "not cut off"),
        (lambda: changed("machine.cut", link="up"), "link of its machine was up"),
        (lambda: changed("machine.cut", machine="c"), "not cut off"),
        (lambda: changed("machine.lost"), "was not noticed"),
        (lambda: changed("machine.lost", to=1.95), "was not noticed"),
        (lambda: changed("machine.joined", to=10.0), "not cut off for 9 s"),
        (lambda: changed("machine.joined"), "not cut off for 9 s"),
        (lambda: changed("fault.struck"), ""),
    ],
)
def test_no_proof(history: Callable[[], History], why: str) -> None:
    """What the kernel, control and the clock of control do not all show is not proved."""
    found = FAULT.proof(history(), rank=1)
    assert not found.proved
    assert why in found.description
    assert FAULT.proof(History(story(), size=3), rank=1).ends


@pytest.mark.parametrize(
    ("history", "rank", "why"),
    [
        (lambda: returned(0), 0, "it returned"),
        (lambda: returned(1), 1, "it returned"),
        (lambda: changed("machine.ended"), 1, "did not report that it ended"),
        (lambda: changed("machine.ended", silent=None), 1, "how long"),
        (lambda: changed("machine.ended", silent=9.0), 1, "after 9 s without control"),
        (lambda: changed("machine.ended", silent=0.0), 1, "after 0 s without control"),
        (lambda: changed("rank.exited", 1, to=6.99), 1, "after its machine was to end it"),
        (lambda: changed("machine.collected", why="its journal is incomplete"), 1, "incomplete"),
        (lambda: changed("machine.collected"), 1, "its events were not collected"),
        (lambda: changed("world.stopped", to=11.0), 2, "stopped 4.0 s after"),
        (lambda: changed("machine.lost"), 2, "for a reason other than the lost machine"),
        (lambda: changed("rank.exited", 0, code=0), 0, "ended with code 0"),
        (lambda: changed("rank.exited", 2), 2, "not observed"),
        (lambda: changed("machine.cut"), 0, "no machine was cut off"),
    ],
)
def test_a_rank_that_does_not_end_as_it_has_to(
    history: Callable[[], History], rank: int, why: str
) -> None:
    """Success, a lease that was not kept, evidence that is missing, and who went on too long fail
    that rank.
    """
    parts = {part.rank: part for part in CHECK.judge(history()).ranks}
    assert not parts[rank].passed
    assert why in parts[rank].reason


@pytest.mark.parametrize("ahead", [-90.0, 90.0])
def test_the_lease_is_told_by_the_machines_own_clock(ahead: float) -> None:
    """With all times of that machine moved as a whole, as by a clock that is off, nothing is judged
    otherwise.
    """
    moved = [
        (
            event._replace(ns=event.ns + round(ahead * S))
            if event.name == "machine.ended" or (event.rank == 1 and event.by in ("rank", "server"))
            else event
        )
        for event in story()
    ]
    assert CHECK.judge(History(sorted(moved, key=lambda event: event.ns), size=3)).passed


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("hosts: [3]", "hosts: [1, 3]", "needs several machines"),
        (", hosts: [3]", "", "needs several machines"),
        ("for: 9s", "for: 5s", "not longer than it takes to notice a lost machine"),
        ("fault: cut,", "fault: cat,", "of kind cut-off"),
    ],
)
def test_what_could_never_be_shown(old: str, new: str, why: str) -> None:
    """A cut that nobody has to notice, or of no machine, is a mistake before any run."""
    with pytest.raises(ScenarioError, match=why):
        parse_scenario(SCENARIO.replace(old, new).encode(), name="s.yaml")


def test_the_headline_of_a_lost_machine_is_that_it_was_lost() -> None:
    """Nobody counted survivors, and the rank ended by SIGKILL: first comes that its machine was
    lost, and why.
    """
    events = [one for one in story() if one.name not in ("world.survivors", "world.stopped")]
    history = History(events, size=3)
    assert how_it_ended(history, 1).startswith("its machine b was lost: it sent nothing; ")
    assert "from outside the harness" not in how_it_ended(history, 1)
    found = NoSurvivorsCheck(id="left", kind="no-survivors").judge(history)
    assert found.reason == "machine b was lost (it sent nothing), so survivors could not be counted"
    silent = History([one for one in events if one.name != "rank.exited"], size=3)
    assert how_it_ended(silent, 1) == "its machine b was lost: it sent nothing"
    assert how_it_ended(silent, 2) == "its exit was not observed"
