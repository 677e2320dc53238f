"""Each kind of check holds on a healthy trial and fails on the fault it exists for, on exactly the
rank at fault.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import History

Make = Callable[..., History]
CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)


def judge(check: dict[str, object], history: History) -> Finding:
    model = CHECK.validate_python({"id": "it", **check})
    return model.judge(history)


def only(
    rank: int, name: str, change: Callable[[Event], Event | None]
) -> Callable[[Event], Event | None]:
    """Change one rank's events of one name."""
    return lambda event: change(event) if (event.rank, event.name) == (rank, name) else event


def with_values(**values: object) -> Callable[[Event], Event]:
    return lambda event: event._replace(values={**event.values, **values})


CASES = {
    "event": (
        {"kind": "event", "ranks": "every", "event": "tokenizer.ready"},
        only(1, "tokenizer.ready", lambda _: None),
    ),
    "agree-differs": (
        {"kind": "agree", "ranks": "every", "value": "decode.ids", "against": 0},
        only(1, "decode", with_values(ids=[1, 3])),
    ),
    "agree-silent": (
        {"kind": "agree", "ranks": "every", "value": "decode.ids"},
        only(1, "decode", lambda _: None),
    ),
    "equal": (
        {"kind": "equal", "ranks": "every", "value": "decode.text", "to": "Hello world"},
        only(1, "decode", with_values(text="Hello")),
    ),
    "equal-silent": (
        {"kind": "equal", "ranks": "every", "value": "decode.text", "to": "Hello world"},
        only(1, "decode", lambda _: None),
    ),
    "exit": ({"kind": "exit", "ranks": "every"}, only(1, "rank.exited", with_values(code=1))),
    "exit-by-signal": (
        {"kind": "exit", "ranks": "every"},
        only(1, "rank.exited", with_values(code=None, signal="SIGKILL")),
    ),
    "exit-unseen": ({"kind": "exit", "ranks": "every"}, only(1, "rank.exited", lambda _: None)),
    "within-missing": (
        {"kind": "within", "ranks": "every", "event": "tokenizer.ready", "limit": "1s"},
        only(1, "tokenizer.ready", lambda _: None),
    ),
    "within-late": (
        {"kind": "within", "ranks": "every", "event": "tokenizer.ready", "limit": "5ms"},
        only(1, "tokenizer.ready", lambda event: event._replace(ns=event.ns + 60_000_000)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_holds_on_a_healthy_trial_and_fails_on_the_fault(history: Make, name: str) -> None:
    """A check passes when all is well and fails on exactly the rank that was broken."""
    check, fault = CASES[name]
    assert judge(check, history()).passed
    found = judge(check, history(fault))
    assert found.failed_ranks == (1,)
    assert all(part.reason for part in found.ranks if not part.passed)
    is_missing = name == "event" or name.endswith(("-silent", "-missing", "-unseen"))
    assert [part.missing for part in found.ranks] == [False, is_missing]


def test_a_rank_cannot_forge_its_exit_code(history: Make) -> None:
    """An exit code that the rank itself reports does not count."""
    forged = Event(
        ns=99, by="rank", rank=1, pid=201, name="rank.exited", values={"code": 0, "signal": None}
    )
    gone = history(only(1, "rank.exited", lambda _: None), more=[forged])
    assert judge({"kind": "exit", "ranks": "every"}, gone).failed_ranks == (1,)


def test_true_is_not_one(history: Make) -> None:
    """`equal` compares JSON by type: true is not 1 and 1.0 is not 1."""
    check = {"kind": "equal", "ranks": "every", "value": "decode.count", "to": 1}
    for value, holds in ((1, True), (True, False), (1.0, False)):
        found = judge(
            check,
            history(
                lambda event, value=value: (
                    with_values(count=value)(event) if event.name == "decode" else event
                )
            ),
        )
        assert found.passed is holds


def test_every_occurrence_counts(history: Make) -> None:
    """One wrong value among right ones fails `equal` and `agree`."""
    again = Event(
        ns=20_500_000,
        by="rank",
        rank=0,
        pid=200,
        name="decode",
        values={"text": "other", "ids": [9]},
    )
    for check in (
        {"kind": "equal", "ranks": "every", "value": "decode.text", "to": "Hello world"},
        {"kind": "agree", "ranks": "every", "value": "decode.ids"},
    ):
        assert not judge(check, history(more=[again])).passed


def test_survivors_are_found_and_not_looking_is_not_finding_none(history: Make) -> None:
    """`no-survivors` fails when processes were left, and when nobody looked."""
    check = {"kind": "no-survivors"}
    assert judge(check, history()).passed
    left = history(
        lambda event: with_values(count=2)(event) if event.name == "world.survivors" else event
    )
    assert "2 processes" in judge(check, left).reason
    assert not judge(
        check, history(lambda event: None if event.name == "world.survivors" else event)
    ).passed


def test_a_check_that_asks_nobody_fails(history: Make) -> None:
    """`nonzero` in a world of one asks no rank, and a fact about nobody is not a fact."""
    found = judge(
        {"kind": "event", "ranks": "nonzero", "event": "tokenizer.ready"}, history(size=1)
    )
    assert not found.passed
    assert "no rank" in found.reason


def test_the_finding_names_the_line_that_shows_it(history: Make) -> None:
    """A rank's finding points at the line of events.jsonl on which its event stands."""
    trial = history()
    found = judge({"kind": "event", "ranks": [1], "event": "tokenizer.ready"}, trial)
    line = found.ranks[0].line
    assert line is not None
    assert (trial.seen[line - 1].event.rank, trial.seen[line - 1].event.name) == (
        1,
        "tokenizer.ready",
    )
