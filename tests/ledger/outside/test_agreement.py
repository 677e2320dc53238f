"""Ledgers held against each other: what has to be alike, what may differ, and the first call that
does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.ledger.call import Call, CallGroup
from harness.ledger.outside.agreement import Agreement, agree
from tests.ledger.made import call, last, ledger, receive, send

FOUR = CallGroup("torch", "0", (0, 1, 2, 3))
PAIR = CallGroup("torch", "1", (0, 1))


def of(*ranks: list[Call]) -> Agreement:
    """What the ledgers of ranks with these calls give."""
    return agree({rank: ledger(rank, *calls, size=len(ranks)) for rank, calls in enumerate(ranks)})


def sides(found: Agreement) -> list[tuple[int, str, int]]:
    """Of the difference both ranks, each with the call it made, or 0 and the one it made last."""
    assert found.difference is not None
    told = []
    for side in (found.difference.one, found.difference.other):
        shown = side.call or side.last
        told.append(
            (side.rank, shown.operation if shown else "", shown.index if side.call and shown else 0)
        )
    return told


def test_the_same_calls_agree_and_are_counted() -> None:
    """Every call of every rank was held against another rank's."""
    found = of(
        [call(), call("barrier"), send(1), receive(1, tag=2)],
        [call(), call("barrier"), receive(0), send(0, tag=2)],
    )
    assert (found.difference, found.matched) == (None, {0: 4, 1: 4})


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "barrier"},
        {"dtype": "float16"},
        {"elements": 5},
        {"reduction": "max"},
        {"peer": 1},
    ],
)
def test_what_has_to_be_alike_is_compared(other: dict[str, Any]) -> None:
    """Operation, type, number of elements, reduction and root: each alone is a difference."""
    same = [call(), call(reduction="sum", peer=0)]
    found = of(
        [*same, call(reduction="sum", peer=0)],
        [*same, call(**{"reduction": "sum", "peer": 0, **other})],
    )
    assert [side[0] for side in sides(found)] == [0, 1]
    assert found.difference is not None
    assert (found.difference.ranks, found.matched) == ((0, 1), {0: 2, 1: 2})


def test_what_may_differ_is_not_compared() -> None:
    """Shapes with as many elements, places in the code, threads, and the splits of an
    all-to-all.
    """
    for one, other in (
        (call(shape="2x2"), call(shape="4", site="other.py:1 in f", thread=1)),
        (call("all_to_all_single", elements=9), call("all_to_all_single", elements=3)),
        (call("all_to_all", elements=9), call("all_to_all", elements=3)),
    ):
        assert of([one], [other]).difference is None


def test_a_call_that_was_not_made_is_a_difference() -> None:
    """The rank that stopped calling is named with the last call it made."""
    found = of([call(), call("barrier")], [call()])
    assert sides(found) == [(0, "barrier", 2), (1, "all_reduce", 0)]
    assert sides(of([call("barrier")], [])) == [(0, "barrier", 1), (1, "", 0)]


def test_the_majority_is_right() -> None:
    """Of four ranks those differ whose call is not that of more than half; of two and two, all."""
    usual, other = [call(group=FOUR)], [call("barrier", group=FOUR)]
    found = of(usual, other, usual, usual)
    assert (found.difference and found.difference.ranks, sides(found)) == (
        (1,),
        [(0, "all_reduce", 1), (1, "barrier", 1)],
    )
    found = of(other, usual, usual, usual)
    assert (found.difference and found.difference.ranks, sides(found)) == (
        (0,),
        [(1, "all_reduce", 1), (0, "barrier", 1)],
    )
    found = of(usual, other, usual, other)
    assert found.difference is not None
    assert found.difference.ranks == (0, 1, 2, 3)
    found = of(usual, [], usual, usual)
    assert found.difference is not None
    assert found.difference.ranks == (1,)


def test_the_first_difference_is_told() -> None:
    """Of several groups and channels the one that came first in the ranks' own order."""
    one = [call(), send(1), call(group=PAIR), call(group=PAIR)]
    other = [call(), receive(0), call("barrier", group=PAIR), call()]
    assert sides(of(one, other))[0] == (0, "all_reduce", 1)
    assert sides(of([send(1), call()], [call()])) == [(0, "send", 1), (1, "all_reduce", 0)]


def test_groups_are_told_apart_by_name_and_members() -> None:
    """Calls in two groups may come in another order on another rank.

    The same name with other members is another.
    """
    assert (
        of([call(), call("barrier", group=PAIR)], [call("barrier", group=PAIR), call()]).difference
        is None
    )
    found = of([call(group=PAIR)], [call(group=replace(PAIR, ranks=(1, 0)))])
    assert found.difference is not None


def test_sends_and_receives_belong_together_in_order() -> None:
    """By source, destination and tag.

    Each end that has no other is a difference, and so is another type or size.
    """
    assert (
        of([send(1, tag=1), send(1, tag=2)], [receive(0, tag=2), receive(0, tag=1)]).difference
        is None
    )
    assert sides(of([send(1)], [])) == [(0, "send", 1), (1, "", 0)]
    assert sides(of([], [receive(0)])) == [(1, "recv", 1), (0, "", 0)]
    assert sides(of([send(1, tag=1)], [receive(0, tag=2)])) == [(0, "send", 1), (1, "recv", 0)]
    assert sides(of([send(1), send(1, elements=8)], [receive(0, elements=8), receive(0)])) == [
        (0, "send", 1),
        (1, "recv", 1),
    ]
    assert sides(of([send(1)], [receive(0, dtype="int32")])) == [(0, "send", 1), (1, "recv", 1)]


def test_who_takes_from_anybody_takes_as_many_as_were_sent() -> None:
    """Which of them belong together nobody can say.

    One too many, on either side, is a difference.
    """
    anybody = [receive(None, group=FOUR), receive(None, group=FOUR)]
    to = [send(0, group=FOUR)]
    assert of(anybody, to, to, []).difference is None
    assert of(anybody, to, to, []).matched == {0: 2, 1: 1, 2: 1, 3: 0}
    found = of(anybody, to, to, to)
    assert found.difference is not None
    assert (found.difference.one.call is not None, found.difference.other.rank) == (True, 0)
    found = of(anybody, to, [], [])
    assert found.difference is not None
    assert (found.difference.one.rank, found.difference.other.call) == (0, None)


def test_of_full_ledgers_what_both_hold_is_compared() -> None:
    """Calls that one holds no more are left out on both sides.

    A difference in the rest is found.
    """
    whole = ledger(0, *[call() for _ in range(6)], call("barrier"))
    full = last(ledger(1, *whole.calls), kept=3)
    assert agree({0: whole, 1: full}) == Agreement(difference=None, matched={0: 3, 1: 3})
    found = agree({0: whole, 1: last(ledger(1, *whole.calls[:6], call("broadcast")), kept=3)})
    assert sides(found) == [(0, "barrier", 7), (1, "broadcast", 7)]
    # Of the group it holds nothing any more: nobody knows how many calls there were.
    full = last(
        ledger(1, *[call() for _ in range(7)], send(1, group=CallGroup("torch", "2", (1,)))), kept=1
    )
    assert agree({0: whole, 1: full}).matched[0] == 0


def test_calls_with_a_rank_that_is_not_asked_are_left_out() -> None:
    """A rank that a fault ends need not be asked, and the others may still agree."""
    ledgers = {rank: ledger(rank, call(group=FOUR), size=4) for rank in (0, 2)}
    ledgers[0] = ledger(0, call(group=FOUR), send(3, group=FOUR), size=4)
    assert agree(ledgers) == Agreement(difference=None, matched={0: 1, 2: 1})


def test_a_record_that_was_cut_off_is_not_a_call_that_was_not_made() -> None:
    """What a rank was writing as it was killed is unknown: that is not a difference, and what
    follows is compared.
    """
    whole = ledger(0, call(), call("barrier"), call(), send(1))
    other = ledger(1, call(), call("barrier"), call(), receive(0))
    kept = other.calls
    cut = replace(other, calls=(kept[0], *kept[2:]))
    assert cut.torn == 1
    assert agree({0: whole, 1: cut}) == Agreement(difference=None, matched={0: 3, 1: 3})
    assert agree({0: whole, 1: replace(cut, calls=kept[:3])}).difference is None
    found = agree(
        {0: whole, 1: replace(cut, calls=(kept[0], replace(kept[2], operation="broadcast")))}
    )
    assert sides(found) == [(0, "all_reduce", 3), (1, "broadcast", 3)]
