"""When a second run reproduces a first, and when nobody can tell: counts, failures and numbers."""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Event
from harness.history import History
from harness.scenario import Scenario, parse_scenario
from harness.stats.outcome import Failure, Moment, Trial
from harness.stats.profile import (
    CellProfile,
    Signature,
    TrialProfile,
    numbers_of,
    same_numbers,
    signature_of,
)
from harness.stats.rates import fisher_two_sided
from harness.stats.reproduction import CellAnswer, reproduction
from harness.stats.tally import StartCounts

SCENARIO = b"""
schema: 1
id: words
title: t
question: q?
role: upstream
subject: {entry: "subject:go"}
matrix: {ranks: [2], backend: [none]}
checks:
  - {id: exact, kind: agree, ranks: every, value: out.value}
  - {id: tokens, kind: agree, ranks: every, value: out.value, level: token-exact}
  - {id: close, kind: agree, ranks: every, value: out.value, level: numeric, rtol: 0.01}
  - {id: loose, kind: agree, ranks: every, value: out.value, level: statistical}
"""
HERE = Signature(cause="Oops in f of s.py", ranks=[1], checks=["met on rank 1"], faults=[])
THERE = HERE.model_copy(update={"cause": "Ouch in g of s.py"})


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return parse_scenario(SCENARIO, name="s")


def side(
    failed: int, total: int, *, voids: int = 0, signature: Signature = HERE
) -> list[TrialProfile]:
    outcomes: list[Any] = ["fail"] * failed + ["pass"] * (total - failed) + ["void"] * voids
    return [
        TrialProfile(
            index=index,
            seed=str(index),
            outcome=outcome,
            signature=signature if outcome == "fail" else None,
            numbers={},
        )
        for index, outcome in enumerate(outcomes)
    ]


def cell(
    verdict: Any, candidate: list[TrialProfile], control: list[TrialProfile] | None = None
) -> CellProfile:
    return CellProfile(
        id="a",
        verdict=verdict,
        reasons=["why"],
        candidate=candidate,
        control=side(5, 5) if control is None else control,
    )


def answered(scenario: Scenario, then: CellProfile, now: CellProfile) -> CellAnswer:
    return reproduction(scenario, [then], [now]).cells[0]


def test_the_same_verdict_with_the_same_failure_is_reproduced(scenario: Scenario) -> None:
    """PASS twice and FAIL twice are REPRODUCED where the failures are the same."""
    assert (
        answered(scenario, cell("PASS", side(0, 59)), cell("PASS", side(0, 59))).answer
        == "REPRODUCED"
    )
    found = answered(scenario, cell("FAIL", side(5, 5)), cell("FAIL", side(4, 5)))
    assert (found.answer, found.same_failure) == ("REPRODUCED", "yes")


def test_starts_of_kept_services_are_compared_in_place_of_their_trials(scenario: Scenario) -> None:
    """Of 50 trials over 5 starts 10 fail after one start: the trials alone would differ, and one
    start of five does not.
    """

    def kept(verdict: str, failed: int) -> CellProfile:
        found = cell(verdict, side(10 * failed, 50))
        counts = StartCounts(made=5, counted=5, failed=failed, as_stated=0, voids=0)
        return found.model_copy(update={"starts": {"candidate": counts}})

    alone = answered(scenario, cell("PASS", side(0, 50)), cell("FAIL", side(10, 50)))
    assert alone.answer == "NOT REPRODUCED"
    assert alone.arms[0].model_dump().keys().isdisjoint({"unit"})
    found = answered(scenario, kept("PASS", 0), kept("FAIL", 1))
    assert (found.answer, found.more_trials) == ("CANNOT TELL", None)
    assert "0 of 5 starts of its services failed then, 1 of 5 here" in found.reasons[0]
    assert answered(scenario, kept("PASS", 0), kept("FAIL", 5)).answer == "NOT REPRODUCED"


def test_another_failure_is_told_apart(scenario: Scenario) -> None:
    """FAIL twice for different causes is SAME VERDICT, DIFFERENT FAILURE.

    A rare second cause is not.
    """
    other = cell("FAIL", side(5, 5, signature=THERE))
    assert (
        answered(scenario, cell("FAIL", side(5, 5)), other).answer
        == "SAME VERDICT, DIFFERENT FAILURE"
    )
    mixed = [*side(4, 4), *side(1, 1, signature=THERE)]
    assert answered(scenario, cell("FAIL", mixed), cell("FAIL", side(5, 5))).answer == "REPRODUCED"


@pytest.mark.parametrize(
    ("then", "now", "answer"),
    [
        ((3, 59), (0, 59), "CANNOT TELL"),
        ((3, 3), (0, 3), "CANNOT TELL"),
        ((5, 5), (0, 5), "NOT REPRODUCED"),
        ((0, 59), (59, 59), "NOT REPRODUCED"),
        ((1, 59), (0, 59), "CANNOT TELL"),
        ((20, 59), (0, 59), "NOT REPRODUCED"),
    ],
)
def test_not_reproduced_only_where_the_numbers_exclude_it(
    scenario: Scenario, then: tuple[int, int], now: tuple[int, int], answer: str
) -> None:
    """Another verdict is NOT REPRODUCED only below Fisher's 5 %.

    Else nobody can tell, and the wait is named.
    """
    before = cell("FAIL" if then[0] else "PASS", side(*then))
    found = answered(scenario, before, cell("FAIL" if now[0] else "PASS", side(*now)))
    assert found.answer == answer
    if answer == "CANNOT TELL":
        assert found.more_trials
        total = now[1] + found.more_trials
        assert fisher_two_sided(*then, 0, total) < 0.05 <= fisher_two_sided(*then, 0, total - 1)


def test_many_cells_share_the_level(scenario: Scenario) -> None:
    """What one cell would exclude, one of ten does not: chance has ten tries."""
    then = [cell("FAIL", side(5, 5)).model_copy(update={"id": str(n)}) for n in range(10)]
    now = [then[0].model_copy(update={"verdict": "PASS", "candidate": side(0, 5)}), *then[1:]]
    found = reproduction(scenario, then, now)
    assert (found.answer, found.cells[0].answer) == ("CANNOT TELL", "CANNOT TELL")
    assert reproduction(scenario, then[:1], now[:1]).answer == "NOT REPRODUCED"


def test_void_trials_skips_and_missing_cells_cannot_tell(scenario: Scenario) -> None:
    """INCONCLUSIVE for want of trials, a skipped cell and one that is not there never are
    REPRODUCED.
    """
    then = cell("INCONCLUSIVE", side(0, 5))
    assert (
        answered(scenario, then, cell("INCONCLUSIVE", side(0, 3, voids=2))).answer == "CANNOT TELL"
    )
    assert answered(scenario, then, then).answer == "REPRODUCED"
    passed, skipped = cell("PASS", side(0, 5)), cell("SKIPPED", [], [])
    assert answered(scenario, passed, skipped).answer == "CANNOT TELL"
    assert reproduction(scenario, [passed], []).answer == "CANNOT TELL"
    assert reproduction(scenario, [skipped], [skipped]).answer == "CANNOT TELL"
    both = skipped.model_copy(update={"id": "b"})
    assert reproduction(scenario, [passed, both], [passed, both]).answer == "REPRODUCED"


def test_a_rate_that_never_settles_is_no_endless_search(scenario: Scenario) -> None:
    """Equal rates are settled by no number of trials, and the search ends."""
    found = answered(scenario, cell("FAIL", side(1, 2)), cell("INCONCLUSIVE", side(1, 2)))
    assert (found.answer, found.more_trials) == ("CANNOT TELL", None)


def test_the_report_and_the_comparison_use_one_test(scenario: Scenario) -> None:
    """The p of a rerun's report is the one `compare` prints: 3 of 10 against 0 of 40 is 0.0061, not
    twice a tail.
    """
    found = answered(scenario, cell("FAIL", side(3, 10)), cell("PASS", side(0, 40)))
    assert found.arms[0].p_value == pytest.approx(0.006122448979591837, rel=1e-12)


def history(value: Any, *more: Event) -> History:
    events = [
        Event(ns=1, by="rank", rank=rank, pid=9, name="out", values={"value": value})
        for rank in (0, 1)
    ]
    return History([*events, *more], size=2)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1, 2], [1, 2], {"exact", "tokens", "close"}),
        ({"ids": [1, 2], "score": 0.5}, {"ids": [1, 2], "score": 0.7}, {"tokens"}),
        ({"ids": [1, 2], "score": 0.5}, {"ids": [1, 2], "score": 0.504}, {"tokens", "close"}),
        ([1, 2], [2, 1], set()),
        ([[1], 2], [1, [2]], set()),
        (True, 1, set()),
        ("a" * 500, "a" * 499 + "b", {"tokens"}),
        ([0.5] * 9000, [0.5] * 8999 + [0.6], {"tokens"}),
        (1e308, -1e308, {"tokens"}),
    ],
)
def test_numbers_are_compared_at_the_level_declared(
    scenario: Scenario, one: Any, other: Any, same: set[str]
) -> None:
    """Exact asks for every byte, token-exact for the whole numbers, numeric for closeness.

    Statistical is left out.
    """
    before, after = numbers_of(scenario, history(one)), numbers_of(scenario, history(other))
    assert "loose" not in before
    checks = {check.id: check for check in scenario.checks}
    assert {
        name for name in before if same_numbers(checks[name], before[name], after[name])
    } == same


def error(rank: int, line: int, **values: Any) -> Event:
    frames = [{"file": "s.py", "function": "f", "line": line, "source": "x", "subject": True}]
    told = {
        "type": "Oops",
        "message": f"0x{line:x} in pid {line}",
        "source": "assert x",
        "frames": frames,
        **values,
    }
    return Event(ns=line, by="rank", rank=rank, pid=line, name="rank.error", values=told)


def trial(first: Moment, *more: Moment, checks: dict[str, list[int]]) -> Trial:
    return Trial(
        index=0,
        seed="1",
        evidence="e",
        ms=1.0,
        outcome="fail",
        failures=[Failure(check=name, ranks=ranks, reasons=[]) for name, ranks in checks.items()],
        first=first,
        consequences=list(more),
    )


def test_a_signature_leaves_out_what_changes_from_run_to_run() -> None:
    """Addresses, pids, line numbers, order and consequences on other ranks are not part of a
    failure.
    """
    one = trial(
        Moment(rank=1, ms=1.0, what="a"),
        Moment(rank=0, ms=2.0, what="b"),
        checks={"met": [1], "ended": [0, 1]},
    )
    other = trial(
        Moment(rank=1, ms=7.0, what="c"),
        checks={"world:all-finished": [0, 1], "ended": [1], "met": [1]},
    )
    gone = error(0, 5, type="ConnectionError", source="barrier()")
    found = signature_of(one, history(1, error(1, 3), gone))
    assert found == signature_of(other, history(1, error(1, 99)))
    assert found is not None
    assert (
        found.description()
        == "Oops in f of s.py at 'assert x' on rank 1; checks: ended on rank 1, met on rank 1"
    )


def test_a_signature_tells_ranks_errors_lines_and_faults() -> None:
    """Another rank, type, line of source, function or check makes another failure."""
    first = Moment(rank=1, ms=1.0, what="a")
    base = signature_of(trial(first, checks={"met": [1]}), history(1, error(1, 3)))
    frame = {"file": "s.py", "function": "g", "line": 1, "source": "x", "subject": True}
    others = [
        signature_of(trial(first, checks={"met": [1]}), history(1, error(1, 3, type="Ouch"))),
        signature_of(trial(first, checks={"met": [1]}), history(1, error(1, 3, source="assert y"))),
        signature_of(trial(first, checks={"met": [1]}), history(1, error(1, 3, frames=[frame]))),
        signature_of(trial(first, checks={"met": [1], "said": [1]}), history(1, error(1, 3))),
        signature_of(
            trial(first, Moment(rank=0, ms=1.0, what="a"), checks={"met": [0, 1]}),
            history(1, error(1, 3), error(0, 3)),
        ),
    ]
    assert base is not None
    assert all(other != base for other in others)
    passed = trial(first, checks={}).model_copy(update={"outcome": "pass"})
    assert signature_of(passed, history(1)) is None


@pytest.mark.parametrize(
    "values",
    [
        {"frames": 7},
        {"frames": "x"},
        {"type": ["a"], "frames": [3]},
        {"source": {"a": 1}},
        {"type": "\ud800" * 9000},
    ],
)
def test_an_error_of_any_form_has_a_signature(values: dict[str, Any]) -> None:
    """A program tells its errors itself: whatever it says makes a bounded signature that can be
    written down.
    """
    found = signature_of(
        trial(Moment(rank=1, ms=1.0, what="a"), checks={"met": [1]}),
        history(1, error(1, 3, **values)),
    )
    assert found is not None
    assert len(found.description().encode()) < 5000
    assert found.ranks == [1]
