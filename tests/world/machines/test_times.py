"""Times of two machines: whoever slips with a clock, or sorts events anew and signs, changes no
verdict.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harness.checks import Finding, RankFinding
from harness.events import Event
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import Cell, MustFail, parse_scenario
from harness.stats.outcome import judge
from harness.stats.profile import signature_of
from harness.stats.stated import deviation
from harness.world.machines.heartbeat import MachineLine
from tests.kit.histories import healthy

SCENARIO = b"""
schema: 1
id: over-machines
title: Two ranks on two machines
question: Do both get ready?
role: claim
subject:
  entry: subject:go
  candidate: {}
  control: {with: {broken: true}, must_fail: {check: ready, ranks: [1], error: ValueError, message: broken}}
matrix: {ranks: [2], hosts: [2]}
trials: {candidate: 1, control: 1, accept: {failure_rate_below: 99%, confidence: 50%}}
checks:
  - {id: ready, kind: event, ranks: every, event: tokenizer.ready}
  - {id: soon, kind: within, ranks: every, event: tokenizer.ready, limit: 5s}
"""


def over(events: list[Event], *, later: int = 0) -> list[Event]:
    """The same events of ranks on two machines, those of the second so many nanoseconds later, in
    order of time.
    """
    placed = {"machines": {"called": ["a", "b"], "of": [0, 1]}}
    moved = [
        (
            event._replace(ns=event.ns + later)
            if event.rank == 1 and event.by in ("rank", "server")
            else event
        )
        for event in events
    ]
    begin, *rest = [
        event._replace(values={**event.values, **placed}) if event.name == "world.begin" else event
        for event in moved
    ]
    joined = Event(
        ns=begin.ns,
        by="harness",
        name="machines.joined",
        values={"machines": [{"machine": "a"}, {"machine": "b"}]},
    )
    started = {0: "a", 1: "b"}
    told = [
        (
            event._replace(values={**event.values, "machine": started[event.rank]})
            if event.name == "rank.started" and event.rank is not None
            else event
        )
        for event in rest
    ]
    return [begin, joined, *sorted(told, key=lambda event: event.ns)]


def failing() -> Iterator[Event]:
    """A healthy world of two, in which both ranks raised in place of getting ready."""
    for event in healthy():
        if event.name in ("tokenizer.ready", "subject.end"):
            continue
        if event.name == "rank.exited":
            values = {
                "type": "ValueError",
                "message": f"broken {event.rank}",
                "mro": ["ValueError"],
            }
            yield Event(
                ns=event.ns - 1,
                by="rank",
                rank=event.rank,
                pid=event.pid,
                name="rank.error",
                values=values,
            )
            yield event._replace(values={**event.values, "code": 1})
        else:
            yield event


@pytest.mark.parametrize("later", [-90 * 10**9, -1_000_000, 1_000_000, 90 * 10**9])
def test_a_clock_that_is_off_changes_no_verdict(later: int) -> None:
    """Times of one machine moved as a whole, as by a slipped clock or a signer who sorts anew,
    leave what is judged.
    """
    scenario = parse_scenario(SCENARIO, name="s.yaml")
    cell = Cell("c", "c", 2, "gloo", {}, 2)
    for events in (list(healthy()), list(failing())):
        honest, moved = History(over(events), size=2), History(over(events, later=later), size=2)
        (trial, findings), (other, again) = (
            judge(scenario, cell, "candidate", 0, one) for one in (honest, moved)
        )
        assert (trial.outcome, trial.void) == (other.outcome, other.void)
        assert [
            [(part.rank, part.passed, part.reason) for part in one.ranks] for one in findings
        ] == [[(part.rank, part.passed, part.reason) for part in one.ranks] for one in again]
        # Nor does a reproduction see another way of failing, and none is called the first.
        assert signature_of(trial, honest) == signature_of(other, moved)
        assert trial.apart is other.apart is (trial.outcome == "fail")


@pytest.mark.parametrize("later", [-90 * 10**9, 0, 90 * 10**9])
def test_a_cause_elsewhere_is_one_before_and_after(later: int) -> None:
    """A rank that ended on another machine by what nobody stated is another cause, however its
    times are moved.
    """
    must_fail = MustFail.model_validate(
        {"check": "ready", "ranks": [1], "error": "ValueError", "message": "broken 1"}
    )
    found = Finding(
        check="ready",
        kind="event",
        ranks=tuple(RankFinding(rank=rank, passed=rank == 0) for rank in range(2)),
    )
    history = History(over(list(failing()), later=later), size=2)
    said = deviation(
        must_fail, [found], history, faults={}, silence=0.0, line_of=lambda _file, _line: None
    )
    assert said is not None
    assert said.code == DeviationCode.CAUSE_ELSEWHERE


@pytest.mark.parametrize("off", [-90.0, 0.0, 90.0])
def test_a_wall_clock_that_is_off_is_told_and_not_used(off: float) -> None:
    """A machine whose wall clock is 90 s off says so in the report.

    Its ranks' times go by its monotonic clock.
    """
    line = MachineLine.__new__(MachineLine)
    line._exchanges, line._walls = [], []
    ahead = 50_000 * 10**9
    for _ in range(3):
        now = time.monotonic_ns()
        beat = {
            "is": "beat",
            "echo": now,
            "ns": now + ahead,
            "wall": time.time_ns() + round(off * 1e9),
        }
        line._take(beat, b"")
    assert abs(line.offset()["offset"] - off) < 0.5
    assert abs(line.ahead - ahead) < 5 * 10**8
    assert line.within < 5 * 10**8
