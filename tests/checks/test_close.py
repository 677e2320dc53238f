"""Numbers within a tolerance: what counts as one, whom it is compared with, and what the finding
shows.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import History

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
SILENT = object()


def found(kind: str, *values: Any, **options: Any) -> Finding:
    """The finding over ranks that report these values.

    A tuple is one rank's reports, SILENT is none.
    """
    events = []
    for rank, reported in enumerate(values):
        for value in (
            () if reported is SILENT else reported if isinstance(reported, tuple) else (reported,)
        ):
            event = Event(ns=len(events) + 1, by="rank", rank=rank, name="out", values={"x": value})
            events.append(Event.parse(event.line()))
    check = CHECK.validate_python(
        {"id": "it", "kind": kind, "ranks": "every", "value": "out.x", **options}
    )
    return check.judge(History(events, size=len(values)))


@pytest.mark.parametrize(
    ("values", "options", "failed"),
    [
        ((0.75, 1.0), {"to": 0.5, "atol": 0.25}, (1,)),
        (([1, 2], [1, 2.0]), {"to": [1, 2], "atol": 0}, ()),
        (([1, 2], [2, 1]), {"to": [1, 2], "atol": 0.5}, (1,)),
        (([1, 2], [1, 2, 3]), {"against": 0, "atol": 1}, (1,)),
        ((1.0, 1.0 + 2**-52), {"against": 0, "ulp": 1}, ()),
        ((1.0, 1.0 + 2**-51), {"against": 0, "ulp": 1}, (1,)),
        ((2**60, 2**60 + 1), {"against": 0, "atol": 0}, (1,)),
        (((1, 2), (1, 3)), {"against": 0, "atol": 0.5}, (1,)),
        (((1, 2), (1,)), {"against": 0, "atol": 0.5}, (1,)),
        ((SILENT, 1), {"against": 0, "atol": 9}, (0, 1)),
        ((1, SILENT), {"against": 0, "atol": 9}, (1,)),
        (("1", 1), {"to": 1, "atol": 9}, (0,)),
        ((True, 1), {"to": 1, "atol": 9}, (0,)),
        ((None, 1), {"to": 1, "atol": 9}, (0,)),
        (([], []), {"against": 0, "atol": 9}, (0, 1)),
        (([], []), {"against": 0, "atol": 9, "empty": "allowed"}, ()),
    ],
)
def test_who_is_close(
    values: tuple[Any, ...], options: dict[str, Any], failed: tuple[int, ...]
) -> None:
    """Exactly the ranks that are too far, or reported something else or nothing, fail."""
    finding = found("close", *values, **options)
    assert finding.failed_ranks == failed
    assert all(bool(part.reason) != part.passed for part in finding.ranks)


def test_the_finding_shows_the_worst_its_place_and_the_limit() -> None:
    """For a rank that passes too: how near it came to the limit is what a reader wants to know."""
    finding = found("close", [[1, 2], [3, 4]], [[1, 2], [3.5, 4.1]], against=0, atol=0.25)
    assert finding.ranks[0].observed == "4 of 4 elements equal"
    assert (
        finding.ranks[1].reason
        == "value out.x does not match: found 3.5, expected 3 (off by 0.5 at [1, 0]; 1 of 4 elements"
        " beyond atol 0.25)"
    )
    near = found("close", [1, 2], [1, 2.125], against=0, atol=0.25).ranks[1]
    assert (near.passed, near.observed) == (
        True,
        "worst difference 0.125, at [1]; all 2 elements within atol 0.25",
    )


@pytest.mark.parametrize(
    ("kind", "value", "to", "passed"),
    [
        ("at-most", 1.5, 1.5, True),
        ("at-most", 1.5000001, 1.5, False),
        ("at-most", (1, 2, 1), 1, False),
        ("at-most", 2**70 + 1, 2**70, False),
        ("at-least", 3, 4, False),
        ("at-least", 4.0, 4, True),
        ("at-least", (5, 4), 4, True),
        ("at-least", True, 0, False),
        ("at-least", "5", 0, False),
        ("at-least", [5], 0, False),
        ("at-least", SILENT, 0, False),
    ],
)
def test_a_limit_is_allowed_itself(kind: str, value: Any, to: Any, passed: bool) -> None:
    """What is on the wrong side, is not a number, or was not reported fails."""
    assert found(kind, value, to=to).passed is passed


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"to": 1}, "atol"),
        ({"atol": 1}, "to"),
        ({"to": 1, "against": 0, "atol": 1}, "to"),
        ({"to": "1", "atol": 1}, "must be a number"),
        ({"to": [[1], [1, 2]], "atol": 1}, "differ in length"),
        ({"to": 1, "atol": -1}, "atol"),
        ({"to": 1, "atol": float("nan")}, "atol"),
        ({"to": 1, "ulp": 0.5}, "ulp"),
    ],
)
def test_a_tolerance_is_stated(options: dict[str, Any], place: str) -> None:
    """A tolerance is not chosen for anybody, and a check says what it compares with."""
    with pytest.raises(ValidationError, match=place):
        found("close", 1, **options)
