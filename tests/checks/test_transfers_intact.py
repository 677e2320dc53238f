"""`transfers-intact`: it holds where every call was held against its other end, and for nothing
less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import LEDGERS_COMPARED, History
from harness.ledger.file import Ledger, encode
from harness.ledger.outside.account import account
from tests.ledger.made import WORLD, call, digested, ledger, part, receive, send

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
SENT = digested(ledger(0, send(1)), part(1, "sent", 5, whom=1))
TAKEN = digested(ledger(1, receive(0)), part(1, "received", 5, whom=0))


def of(values: Any, *, size: int = 2) -> Finding:
    """What the check says of an event of the harness."""
    check = CHECK.validate_python({"id": "intact", "kind": "transfers-intact", "ranks": "every"})
    return check.judge(
        History([Event(ns=5, by="harness", name=LEDGERS_COMPARED, values=values)], size=size)
    )


def noted(*ledgers: Ledger | None) -> dict[str, Any]:
    """What the harness notes of these ledgers."""
    files = {rank: encode(one) for rank, one in enumerate(ledgers) if one is not None}
    wanted = {"intact": range(len(ledgers))}
    return account(files, size=len(ledgers), world=WORLD, asked={}, transferred=wanted)


def test_what_arrived_whole_holds() -> None:
    """It shows how many calls were compared."""
    found = of(noted(SENT, TAKEN))
    assert [(one.passed, one.observed, one.line) for one in found.ranks] == [
        (True, "1 call compared", 1)
    ] * 2


def test_damage_names_both_ranks_both_calls_and_both_lines() -> None:
    """Of a transfer what each end had; of a sum which result is not one."""
    other = digested(ledger(1, receive(0)), part(1, "received", 6, whom=0))
    reason = (
        "rank 1 received in recv #1 from rank 0 of 4 float32 at step.py:9 data that differs from"
        " what rank 0 passed to send #1 to rank 1 of 4 float32 at step.py:9"
    )
    assert [(one.reason, one.uncompared) for one in of(noted(SENT, other)).ranks] == [
        (reason, False)
    ] * 2
    most = [
        digested(ledger(rank, call(reduction="max")), part(1, "sent", 1), part(1, "received", rank))
        for rank in (0, 1)
    ]
    found = of(noted(*most)).ranks[1].reason
    assert found.startswith(
        "rank 1 received in all_reduce #1 of 4 float32 (max) at step.py:9 a result that does not"
        " follow from"
    )


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "it left no ledger"),
        (ledger(1, receive(0)), "its ledger has no digests"),
        (
            digested(ledger(1, receive(0), undigested=1, undigested_why="recv: so")),
            "one of its calls was not digested: recv: so",
        ),
        (digested(ledger(1, receive(0))), "1 of its calls were not compared with the other end"),
        (
            digested(ledger(1, call("barrier"))),
            "none of its calls (1) was compared with another rank's",
        ),
    ],
)
def test_what_was_not_compared_is_not_intact(other: Ledger | None, why: str) -> None:
    """No ledger, no digests, a call that has none, or nothing to compare: each is said, and shows
    no damage.
    """
    found = of(noted(SENT, other))
    assert not found.passed
    assert (found.ranks[1].reason.startswith(why), found.ranks[1].uncompared) == (
        True,
        True,
    ), found.ranks[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.clear(),
        lambda values: values.update(ranks=[{}, {}]),
        lambda values: values.update(ranks="all"),
        lambda values: values.update(checks={}),
        lambda values: values["checks"]["intact"].update(compared=[1]),
        lambda values: values["checks"]["intact"].update(compared=[0, 0]),
        lambda values: values["checks"]["intact"].update(compared=["many", None]),
        lambda values: values["checks"]["intact"].update(left=[0, 1]),
        lambda values: values["checks"]["intact"].update(left=[False, "0"]),
        lambda values: values["checks"]["intact"].update(damage={"ranks": [0, 1], "sent": 5}),
        lambda values: values["ranks"][1].update(undigested=3),
        lambda values: values["ranks"][1].update(undigested="none"),
        lambda values: values["ranks"][1].pop("undigested"),
    ],
)
def test_no_values_make_it_raise_or_hold(change: Callable[[Any], None]) -> None:
    """An event with other values than the harness notes is not a comparison."""
    values = noted(SENT, TAKEN)
    change(values)
    assert not of(values).passed
