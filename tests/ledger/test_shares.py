"""How members of a group share out a collective: what one gives is what the other takes, or both
are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.ledger.call import UNHELD, CallGroup, NotALedger, NotShares, Shares, packed, unpacked
from harness.ledger.file import encode, parse
from harness.ledger.outside.account import account, in_words
from harness.ledger.outside.agreement import LedgerDifference, agree
from tests.ledger.made import WORLD, call, ledger

THREE = CallGroup("torch", "0", (0, 1, 2))
# Row by row what each of three ranks gives the others, and itself.
GIVEN = ((1, 3, 1), (2, 4, 2), (3, 1, 3))


def split(
    gives: Sequence[int] = (),
    takes: Sequence[int] = (),
    operation: str = "all_to_all_single",
    **rest: Any,
) -> Any:
    """A call that says how it shares out its elements."""
    return call(operation, shares=Shares(tuple(gives), tuple(takes)), **{"group": THREE, **rest})


def difference(*calls: Any) -> LedgerDifference | None:
    """What ranks differ by that made one of these calls each."""
    return agree(
        {rank: ledger(rank, one, size=len(calls)) for rank, one in enumerate(calls)}
    ).difference


def exchanged(**changed: tuple[Sequence[int], Sequence[int]]) -> LedgerDifference | None:
    """What three ranks differ by in an all-to-all, of which some state something else:
    `rank_1=(gives, takes)`.
    """
    right = {f"rank_{rank}": (GIVEN[rank], [row[rank] for row in GIVEN]) for rank in range(3)}
    return difference(*(split(*sides) for sides in {**right, **changed}.values()))


def test_splits_that_fit_are_no_difference() -> None:
    """However uneven they are, and whatever each rank's own sum of them is."""
    assert exchanged() is None


@pytest.mark.parametrize(
    ("changed", "ranks", "told"),
    [
        # It takes from two what they do not give it: the one that contradicts both.
        ({"rank_1": (GIVEN[1], (4, 3, 1))}, (1,), {"from": 0, "gives": 3, "to": 1, "takes": 4}),
        # One more to one other: nobody can say which of the two is right.
        ({"rank_2": ((4, 1, 3), (1, 2, 3))}, (0, 2), {"from": 2, "gives": 4, "to": 0, "takes": 3}),
        # It contradicts itself.
        ({"rank_1": ((2, 5, 2), (3, 4, 1))}, (1,), {"from": 1, "gives": 5, "to": 1, "takes": 4}),
        # Even, where the others are not: no list at all stands for equal parts.
        ({"rank_0": ((1, 3, 1), (2,))}, (0,), {"from": 2, "gives": 3, "to": 0, "takes": 2}),
    ],
)
def test_splits_that_do_not_fit_are_named(
    changed: dict[str, Any], ranks: tuple[int, ...], told: dict[str, int]
) -> None:
    """With who gives, who takes and how many; of two that contradict each other once, both."""
    found = exchanged(**changed)
    assert found is not None
    assert found.ranks == ranks
    assert found.values()["split"] == told
    assert {found.one.rank, found.other.rank} == {told["from"], told["to"]}


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        ("all_gather", [Shares((2,), (2, 3)), Shares((3,), (3, 2))]),
        ("reduce_scatter", [Shares((2, 3), (2,)), Shares((3, 2), (3,))]),
        ("all_gather", [Shares((2,), (2, 4)), Shares()]),
        ("gather", [Shares((3,), (3, 5)), Shares()]),
        ("scatter", [Shares((3, 5), (3,)), Shares()]),
    ],
)
def test_lists_of_the_same_sum_are_told_apart(operation: str, calls: list[Shares]) -> None:
    """An uneven list on one rank, held against another one's list, or against equal parts."""
    elements = 3 if operation in ("gather", "scatter") else 6
    root = 0 if operation in ("gather", "scatter") else None
    two = [call(operation, shares=shares, elements=elements, peer=root) for shares in calls]
    found = difference(*two)
    assert found is not None
    assert found.split is not None


def test_arrays_of_one_call_are_alike_one_by_one() -> None:
    """A sum of several arrays whose sizes are in another order adds what does not belong
    together.
    """
    one, other = (
        split(sizes, operation="all_reduce_coalesced", elements=9)
        for sizes in ((4, 2, 3), (4, 3, 2))
    )
    found = difference(one, other, one)
    assert found is not None
    assert (found.ranks, found.split) == ((1,), None)
    assert "in parts of 4, 3, 2" in in_words(found.values()["other"]["call"])  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("states", "agrees"), [(("failed",) * 3, True), (("failed", "failed", "ended"), False)]
)
def test_a_call_that_every_rank_had_refused_is_no_difference(
    states: tuple[str, ...], agrees: bool
) -> None:
    """Each gave itself 3 and took 2 of it: refused alike, nothing went out.

    Where one was taken, they differ.
    """
    found = difference(
        *(split((3,), (2,), operation="all_gather", elements=3, state=state) for state in states)
    )
    assert (found is None) is agrees


def test_what_is_not_known_is_no_difference_and_no_agreement() -> None:
    """A ledger that states nothing contradicts nobody.

    What one could not hold is told, and is not agreement.
    """
    assert difference(split(elements=3), split(elements=9), split(elements=6)) is None
    lost = call("all_to_all_single", shares=Shares((4,), unheld=True))
    calls = [call("all_to_all_single", shares=Shares((4,), (4,))), lost]
    files = {rank: encode(ledger(rank, one)) for rank, one in enumerate(calls)}
    told: Any = account(files, size=2, world=WORLD, asked={"x": (0, 1)})
    assert told["checks"]["x"]["difference"] is None
    assert [one["partly"] for one in told["ranks"]] == [
        "",
        "its ledger had no room for how 1 call divided their elements",
    ]


@pytest.mark.parametrize(
    "shares", [Shares(), Shares((1, 2, 3), (6, 0, 0)), Shares((2,)), Shares((), (2,), unheld=True)]
)
def test_they_are_read_back_as_they_were_written(shares: Shares) -> None:
    """Both sides, one of them, none, and that one was not held."""
    written = ledger(0, split(shares.gives, shares.takes), size=3)
    written = replace(written, calls=[replace(written.calls[0], shares=shares)])
    assert parse(encode(written)).calls == tuple(written.calls)
    assert encode(parse(encode(written))) == encode(written)


@pytest.mark.parametrize("text", ["", "1,", "01,2,3", "-1,2,3", "1,2", "1,2,3,4", "1" * 20, "x"])
def test_what_cannot_be_sizes_is_refused(text: str) -> None:
    """A rank writes them: no number for each member, no numbers, no texts."""
    with pytest.raises(NotShares):
        unpacked(1, lambda _: text, operation="all_to_all", members=3)
    with pytest.raises(NotShares):
        unpacked(-1, lambda _: "1,2,3", operation="all_to_all", members=3)
    data = encode(ledger(0, call("all_to_all", shares=Shares((1, 2)))))
    with pytest.raises(NotALedger, match="is not a list of sizes"):
        parse(data.replace(b"1,2", b"1,x"))


def test_what_the_table_cannot_hold_is_marked() -> None:
    """Also where both sides were not held."""
    assert packed(Shares(unheld=True), len) == UNHELD
    assert unpacked(UNHELD << 16, str, operation="all_to_all", members=2) == Shares(unheld=True)
