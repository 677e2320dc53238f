"""`ledger-agrees`: it holds for ledgers that agree, and for nothing less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import LEDGERS_COMPARED, History
from harness.ledger.call import CallGroup
from harness.ledger.file import Ledger, encode
from harness.ledger.outside.account import account
from tests.ledger.made import WORLD, call, last, ledger, receive, send

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)


def noted(*ledgers: Ledger | bytes | None, ranks: Any = "every", world: str = WORLD) -> Finding:
    """What the check says of a trial whose ranks left these ledgers."""
    size = len(ledgers)
    check = CHECK.validate_python({"id": "in-step", "kind": "ledger-agrees", "ranks": ranks})
    files = {
        rank: one if isinstance(one, bytes) else encode(one)
        for rank, one in enumerate(ledgers)
        if one is not None
    }
    values = account(files, size=size, world=world, asked={"in-step": check.ranks.of(size)})
    return check.judge(
        History([Event(ns=5, by="harness", name=LEDGERS_COMPARED, values=values)], size=size)
    )


def test_ledgers_that_agree() -> None:
    """Every rank is asked, and shows how many calls it made, by the event that says so."""
    found = noted(ledger(0, call(), send(1)), ledger(1, call(), receive(0)))
    assert found.passed
    assert [(part.observed, part.line) for part in found.ranks] == [("2 calls", 1)] * 2


def test_a_difference_names_both_ranks_both_calls_and_both_lines() -> None:
    """One sentence, on every rank that differs: what each of two did, with its number and its
    line.
    """
    found = noted(
        ledger(0, call(), call(reduction="sum")),
        ledger(1, call(), call("barrier", shape="", dtype="", elements=0)),
    )
    reason = (
        "rank 0 made all_reduce #2 of 4 float32 (sum) at step.py:9, rank 1 barrier #2 at step.py:9"
    )
    assert [(part.passed, part.reason, part.uncompared) for part in found.ranks] == [
        (False, reason, False)
    ] * 2
    found = noted(ledger(0, call(), send(1, tag=3)), ledger(1, call()))
    assert (
        found.ranks[1].reason
        == "rank 0 made send #1 to rank 1 with tag 3 of 4 float32 at step.py:9, "
        "rank 1 made no such call: its last is all_reduce #1 of 4 float32 at step.py:9"
    )


WHOLE = ledger(0, call())


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "it left no ledger"),
        (
            b"noise",
            (
                "the file that it left is not a ledger: it does not begin with the header of a"
                " ledger"
            ),
        ),
        (encode(ledger(1, call()))[:-1], "the file that it left is not a ledger"),
        (ledger(0, call()), "its ledger is from rank 0 of 2 in another world"),
        (
            ledger(1, call(), world="f" * 16),
            "its ledger is from rank 1 of 2 in another world",
        ),
        (ledger(1), "it made no call"),
        (
            ledger(1, call(), why="torch 3 has a c10d::send"),
            "its calls were not observed: torch 3 has a",
        ),
        (ledger(1, call(), children=2), "2 calls of processes that it forked were not observed"),
    ],
)
def test_what_shows_nothing_agrees_with_nothing(other: Ledger | bytes | None, why: str) -> None:
    """A rank without a ledger, with an empty one, another one or one that is not whole, fails it,
    and so do its peers.

    For want of a comparison: no control fails as stated by it.
    """
    found = noted(WHOLE, other)
    assert [(part.passed, part.uncompared) for part in found.ranks] == [(False, True)] * 2
    assert found.ranks[1].reason.startswith(why)
    assert found.ranks[0].reason == "its calls could not be compared with rank 1"


def test_a_full_ledger_is_not_a_pass() -> None:
    """What it holds agrees, and what it does not hold nobody knows.

    A difference in what it holds is one.
    """
    calls = [call() for _ in range(5)]
    found = noted(ledger(0, *calls), last(ledger(1, *calls), kept=2))
    assert [part.passed for part in found.ranks] == [True, False]
    assert (
        found.ranks[1].reason == "its ledger was full: the first 3 of 5 calls are no longer in it"
    )
    assert found.ranks[1].uncompared
    found = noted(ledger(0, *calls), last(ledger(1, *calls[:4], call("barrier")), kept=2))
    assert [part.uncompared for part in found.ranks] == [False, False]


def test_calls_of_its_own_are_no_agreement() -> None:
    """Two ranks that made no call together agree on nothing."""
    alone = [ledger(rank, call(group=CallGroup("torch", "0", (rank,)))) for rank in range(2)]
    found = noted(*alone)
    assert [part.reason for part in found.ranks] == [
        "none of its calls (1) was matched by another rank"
    ] * 2


def test_a_world_of_one_has_nobody_to_agree_with() -> None:
    """It holds with calls of its own and with none, and says so.

    A ledger that is not there, or not whole, does not.
    """
    for own in ((call(group=CallGroup("torch", "0", (0,))),), ()):
        found = noted(ledger(0, *own, size=1))
        assert found.passed, found
        assert "a world of one has no other rank to agree with" in str(found.ranks[0].observed)
    assert not noted(None).passed
    assert not noted(
        last(ledger(0, *[call(group=CallGroup("torch", "0", (0,)))] * 5, size=1), kept=2)
    ).passed


def test_only_the_ranks_that_are_asked_have_to_agree() -> None:
    """A rank that a fault ended is left out by name."""
    calls = (call(), call())
    dead = ledger(2, call(), size=3)
    first, second = (ledger(rank, *calls, size=3) for rank in range(2))
    assert noted(first, second, dead, ranks=[0, 1]).passed
    assert noted(first, second, None, ranks=[0, 1]).passed
    assert not noted(first, second, None).passed


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.clear(),
        lambda values: values.update(ranks=[]),
        lambda values: values.update(ranks=[{}, {}]),
        lambda values: values.update(ranks="all"),
        lambda values: values.update(checks={}),
        lambda values: values["checks"]["in-step"].update(matched=[5]),
        lambda values: values["checks"]["in-step"].update(matched=[0, 0]),
        lambda values: values["checks"]["in-step"].update(matched=["many", None]),
        lambda values: values["checks"]["in-step"].update(difference={"ranks": [0, 1], "one": 5}),
        lambda values: values["ranks"][0].update(why=7),
    ],
)
def test_no_values_make_it_raise_or_hold(change: Callable[[Any], None]) -> None:
    """An event with other values than the harness notes is not an agreement."""
    check = CHECK.validate_python({"id": "in-step", "kind": "ledger-agrees", "ranks": "every"})
    files = {rank: encode(ledger(rank, call())) for rank in range(2)}
    values: Any = account(files, size=2, world=WORLD, asked={"in-step": (0, 1)})
    change(values)
    assert not check.judge(
        History([Event(ns=5, by="harness", name=LEDGERS_COMPARED, values=values)], size=2)
    ).passed


def test_a_rank_cannot_say_it_itself() -> None:
    """Only what the harness notes counts, and only once."""
    check = CHECK.validate_python({"id": "in-step", "kind": "ledger-agrees", "ranks": "every"})
    files = {rank: encode(ledger(rank, call())) for rank in range(2)}
    values = account(files, size=2, world=WORLD, asked={"in-step": (0, 1)})
    said = Event(ns=5, by="rank", rank=0, pid=7, name=LEDGERS_COMPARED, values=values)
    harness = said._replace(by="harness", rank=None, pid=None)
    for events, passed in (
        ([said], False),
        ([harness], True),
        ([harness, harness], False),
        ([], False),
    ):
        assert check.judge(History(events, size=2)).passed is passed
