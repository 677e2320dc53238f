"""What agreement is: who differs, whom a rank is compared with, and what is not a value to agree
on.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.checks import Finding
from harness.checks.agree import AgreeCheck
from harness.events import Event
from harness.history import History

SILENT = object()


def found(*values: Any, **options: Any) -> Finding:
    """The finding over ranks that report these values once each.

    A tuple is one rank's reports, SILENT is none.
    """
    events = []
    for rank, reported in enumerate(values):
        for value in (
            () if reported is SILENT else reported if isinstance(reported, tuple) else (reported,)
        ):
            event = Event(
                ns=len(events) + 1, by="rank", rank=rank, name="out", values={"ids": value}
            )
            events.append(Event.parse(event.line()))
    check = AgreeCheck.model_validate(
        {"id": "it", "kind": "agree", "ranks": "every", "value": "out.ids", **options}
    )
    return check.judge(History(events, size=len(values)))


@pytest.mark.parametrize(
    "nothing", [None, "", [], {}, [None], [None, ""], [[], {}]], ids=json.dumps
)
def test_to_agree_on_nothing_is_no_agreement(nothing: Any) -> None:
    """Null, an empty value and a list of nothing else fail on every rank, unless the check allows
    them.
    """
    finding = found(nothing, nothing)
    assert finding.failed_ranks == (0, 1)
    assert "does not count as agreement" in finding.ranks[0].reason
    allowed = found(nothing, nothing, empty="allowed")
    assert allowed.passed
    assert [part.observed for part in allowed.ranks] == [
        json.dumps(nothing, separators=(",", ":"))
    ] * 2


@pytest.mark.parametrize(
    "something", [0, False, 0.0, " ", [0], [None, 1], {"a": None}, [[None]]], ids=json.dumps
)
def test_zero_and_false_are_values(something: Any) -> None:
    """What is small, false or holds something is a value like any other, and is what the finding
    shows.
    """
    finding = found(something, something)
    assert finding.passed
    assert finding.ranks[1].observed == something


def test_one_empty_report_among_others_fails_its_rank_alone() -> None:
    """A rank that once reported nothing fails, at the line of that report.

    The others had a value to agree on.
    """
    finding = found((1, 2), (1, []), (1, 2))
    assert finding.failed_ranks == (1,)
    assert finding.ranks[1].line == 4
    assert found("a", None).failed_ranks == (1,)


def test_several_reports_are_shown_as_the_sequence_that_was_compared() -> None:
    """What is shown of a rank that reported twice are both values, for both were compared."""
    assert [part.observed for part in found((1, 2), (1, 2)).ranks] == [[1, 2], [1, 2]]
    assert found((1, 2), (1, 3), (1, 2)).failed_ranks == (1,)


@pytest.mark.parametrize(
    ("values", "failed"),
    [
        (("a", "b"), (0, 1)),
        (("a", "a", "b"), (2,)),
        (("a", "a", "b", "b"), (0, 1, 2, 3)),
        (("a", "a", "b", "c"), (0, 1, 2, 3)),
        (("a", "a", "b", SILENT), (2, 3)),
        (("a", "b", SILENT), (0, 1, 2)),
        (("a", SILENT), (1,)),
        ((SILENT, SILENT), (0, 1)),
    ],
)
def test_without_a_majority_every_rank_differs(
    values: tuple[Any, ...], failed: tuple[int, ...]
) -> None:
    """A rank is right if more than half of those who reported say what it says.

    With two ranks nobody is to blame.
    """
    finding = found(*values)
    assert finding.failed_ranks == failed
    tie = any("has a majority" in part.reason for part in finding.ranks)
    assert tie == (len({value for value in values if value is not SILENT}) > 1 and 0 in failed)


@pytest.mark.parametrize(
    ("values", "against", "failed"),
    [
        (("a", "b"), 0, (1,)),
        (("a", "b"), 1, (0,)),
        (("a", "b", "b"), 0, (1, 2)),
        (("a", "a", SILENT), 0, (2,)),
        ((SILENT, "b", "b"), 0, (0, 1, 2)),
        ((None, "b"), 0, (0, 1)),
    ],
)
def test_whom_to_compare_with_can_be_named(
    values: tuple[Any, ...], against: int, failed: tuple[int, ...]
) -> None:
    """`against` makes one rank's value the right one.

    Where it reported none, nobody can agree with it.
    """
    assert found(*values, against=against).failed_ranks == failed


def test_a_rank_that_is_not_asked_can_be_compared_with() -> None:
    """`ranks: nonzero` with `against: 0` holds the others to rank 0's value, and says nothing about
    rank 0.
    """
    finding = found("a", "a", "b", ranks="nonzero", against=0)
    assert [part.rank for part in finding.ranks] == [1, 2]
    assert finding.failed_ranks == (2,)
    assert "differs from the value of rank 0" in finding.ranks[1].reason
