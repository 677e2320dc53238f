"""When a control that must not notice a fault failed as required: by noticing nothing, and not by a
slip.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Event
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import cells, parse_scenario
from harness.stats import outcome

SECOND = 1_000_000_000
SCENARIO = b"""
schema: 1
id: dies
title: Dies
question: Is it noticed?
role: self-test
expects: PASS
subject:
  entry: subject:work
  candidate: {with: {swallows: false}}
  control:
    with: {swallows: true}
    must_fail: {check: ends, ranks: [0]}
matrix: {ranks: [3], backend: [gloo]}
world: {deadline: 30s}
faults: [{id: gone, kind: kill, ranks: [1], at: door}]
checks: [{id: ends, kind: survivors-end, ranks: every, fault: gone, limit: 2s}]
"""
PEER = {
    "type": "RuntimeError",
    "message": "gloo/transport/tcp: Connection closed by peer",
    "mro": ["RuntimeError"],
}
LOADED = {"entry": "subject.py", "elsewhere": False, "modules": []}


def world(*rank_0: tuple[int, str, str, dict[str, Any]]) -> History:
    """Rank 1 is killed at its door after a second; rank 2 notices.

    Rank 0 does what is said, in milliseconds.
    """
    told: list[tuple[int, str, int | None, str, dict[str, Any]]] = [
        (0, "harness", None, "world.begin", {"harness_pid": 1, "backend": "gloo"}),
        (900, "rank", 1, "door", {}),
        (1000, "harness", 1, "fault.struck", {"fault": "gone", "kind": "kill"}),
        (1001, "server", None, "world.signalled", {"signal": "SIGKILL", "ranks": [1]}),
        (1002, "server", 1, "rank.exited", {"code": None, "signal": "SIGKILL"}),
        (1200, "rank", 2, "rank.error", PEER),
        (1300, "server", 2, "rank.exited", {"code": 1, "signal": None}),
        (9000, "harness", None, "world.end", {}),
        *(
            (ms, by, None if name == "world.stopped" else 0, name, values)
            for ms, by, name, values in rank_0
        ),
    ]
    for rank in range(3):
        told.append((1 + rank, "server", rank, "rank.started", {}))
        told.append((10 + rank, "rank", rank, "rank.begin", {}))
        told.append((20 + rank, "rank", rank, "backend.ready", {"rank": rank, "size": 3}))
        told.append((30 + rank, "rank", rank, "subject.loaded", LOADED))
        told.append((40 + rank, "rank", rank, "subject.begin", {}))
    events = [
        Event(
            ns=ms * 1_000_000 + 1,
            by=by,
            rank=rank,
            pid=None if rank is None else 200 + rank,
            name=name,
            values=values,
        )  # type: ignore[arg-type]
        for ms, by, rank, name, values in told
    ]
    return History(sorted(events, key=lambda event: event.ns), size=3)


def error(
    kind: str, *, ms: int = 1200, message: str = "x", causes: Any = ()
) -> tuple[int, str, str, dict[str, Any]]:
    values = {"type": kind, "message": message, "mro": [kind, "Exception"], "causes": list(causes)}
    return ms, "rank", "rank.error", values


EXIT_1 = (5300, "server", "rank.exited", {"code": 1, "signal": None})
CASES: dict[str, tuple[list[Any], DeviationCode | None]] = {
    "it returned": (
        [
            (1200, "rank", "subject.end", {}),
            (1300, "server", "rank.exited", {"code": 0, "signal": None}),
        ],
        None,
    ),
    "it hung": (
        [
            (4000, "harness", "world.stopped", {"ranks": [0], "why": "after-failure"}),
            (4001, "server", "rank.exited", {"code": None, "signal": "SIGKILL"}),
        ],
        None,
    ),
    "it noticed too late": (
        [error("RuntimeError", ms=5200, message=PEER["message"]), EXIT_1],
        None,
    ),
    "a slip": ([error("NameError"), EXIT_1], DeviationCode.SLIP),
    "a slip while it handled the error": (
        [error("NameError", causes=[PEER]), EXIT_1],
        DeviationCode.SLIP,
    ),
    "an error of its own before": (
        [error("ValueError", ms=500), EXIT_1],
        DeviationCode.UNSTATED_END,
    ),
    "a crash": (
        [(1300, "server", "rank.exited", {"code": None, "signal": "SIGSEGV"})],
        DeviationCode.UNSTATED_END,
    ),
    "it noticed in time": (
        [error("RuntimeError", message=PEER["message"]), (1300, *EXIT_1[1:])],
        DeviationCode.CHECK_HELD,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_a_rank_that_notices_nothing_or_too_late_fails_as_stated(name: str) -> None:
    """Returning, hanging and noticing late are the stated failure.

    Whatever else ended the rank is not.
    """
    events, code = CASES[name]
    scenario = parse_scenario(SCENARIO, name="s.yaml")
    trial, findings = outcome.judge(scenario, cells(scenario)[0], "control", 0, world(*events))
    assert trial.void is None, trial.void
    assert findings[0].ranks[1].observed == "ended by fault gone"
    assert (trial.otherwise.code if trial.otherwise is not None else None) == code, trial.otherwise
