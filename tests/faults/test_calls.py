"""Faults of calls: each strikes the call that it is for and no other, is proved, and is refused
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.backends import KINDS as BACKENDS
from harness.faults import prove
from harness.history import FAULT_IN_CALL, History
from tests.kit.faulted_worlds import Struck

Live = Callable[..., Struck]
Make = Callable[..., Any]
pytestmark = pytest.mark.slow
RING = BACKENDS["mlx-ring"]
needs_ring = pytest.mark.skipif(RING.refusal(size=2) is not None, reason=str(RING.refusal(size=2)))
# Which of twelve sums each strikes. A call that is left out makes up for the one that comes twice.
STRUCK = {
    "stale-payload": 2,
    "swapped-halves": 3,
    "lost-contribution": 4,
    "doubled-contribution": 5,
    "other-dtype": 6,
    "reorder-calls": 7,
    "skip-call": 10,
    "repeat-call": 12,
}


def sums(rank: list[float], other: list[float]) -> list[float]:
    return [a + b for a, b in zip(rank, other, strict=True)]


def given(rank: int, step: int) -> list[float]:
    return [float(index + 100 * rank + 1000 * step) for index in range(8)]


def strikes(fault: Make, operation: str, *, without: str = "") -> list[Any]:
    kinds = [kind for kind in STRUCK if kind != without]
    return [
        fault(kind=kind, ranks=[1], at="door", operation=operation, nth=STRUCK[kind])
        for kind in kinds
    ]


def demand_effects(found: list[list[float]]) -> None:
    """What rank 0 got of each step is what the fault makes of rank 1's part, and right where none
    struck.
    """
    mine = [given(0, step) for step in range(12)]
    other = [given(1, step) for step in range(12)]
    assert found[0] == sums(mine[0], other[0])
    assert found[1] == sums(mine[1], other[0])
    assert found[2] == sums(mine[2], [*other[2][4:], *other[2][:4]])
    assert found[3] == mine[3]
    assert found[4] == sums(mine[4], sums(other[4], other[4]))
    assert found[5] != sums(mine[5], other[5])


@pytest.mark.whole
def test_each_kind_strikes_its_call_and_no_other(live: Live, fault: Make) -> None:
    """Eight of them in one world of gloo: proved by the rank's word, each by the sum that its peer
    got.

    Without the rank's word, or with another one, nothing is proved.
    """
    struck = live(*strikes(fault, "all_reduce"), entry="calls:sums", observe=True)
    assert [(one.fault, one.proof.proved) for one in struck.proved] == [
        (kind, True) for kind in STRUCK
    ], struck.proved
    (summed,) = struck.history.said(0, "summed")
    found: Any = summed.event.values["found"]
    demand_effects(found)
    other = [given(1, step) for step in range(12)]
    assert found[6:8] == [sums(given(0, 6), other[7]), sums(given(0, 7), other[6])]
    # One is left out, so the next ones meet one step early, until one comes twice.
    assert found[9:11] == [sums(given(0, 9), other[10]), sums(given(0, 10), other[11])]
    assert "at calls.py:15 in sums was not made" in struck.proved[6].proof.description
    events = [seen.event for seen in struck.history.seen]
    changes: list[tuple[str, Any]] = [
        *(
            ("what", "another"),
            ("nth", 9),
            ("operation", "barrier"),
            ("why", "not so"),
            ("fault", "other"),
        ),
        *(("before", None), ("after", None), ("overtaken_by", None)),
    ]
    for key, value in [("", None), *changes]:
        forged = [
            (
                event
                if event.name != FAULT_IN_CALL
                else event._replace(values={**event.values, key: value})
            )
            for event in events
            if key or event.name != FAULT_IN_CALL
        ]
        proved = {
            one.fault for one in prove(struck.faults, History(forged, size=2)) if one.proof.proved
        }
        kept = {
            "before": {"reorder-calls", "skip-call", "repeat-call"},
            "after": {"reorder-calls", "skip-call", "repeat-call"},
            "overtaken_by": set(STRUCK) - {"reorder-calls"},
        }
        assert proved == kept.get(key, set()), key


@needs_ring
def test_the_same_over_a_ring(live: Live, fault: Make) -> None:
    """All that MLX's laziness allows."""
    faults = strikes(fault, "all_sum", without="reorder-calls")
    struck = live(*faults, entry="calls:sums_of_mlx", backend="mlx-ring", observe=True)
    assert all(one.proof.proved for one in struck.proved), struck.proved
    (summed,) = struck.history.said(0, "summed")
    found: Any = summed.event.values["found"]
    demand_effects(found)
    assert found[9] == sums(given(0, 9), given(1, 10))


def test_another_shape_breaks_the_call(live: Live, fault: Make) -> None:
    """It is aimed by line, and the trial is struck whatever becomes of it."""
    one = fault(kind="other-shape", ranks=[1], at="door", line="calls.py:15", nth=2)
    struck = live(one, entry="calls:sums", observe=True, deadline=2.0)
    assert (
        struck.proved[0].proof.description
        == "all_reduce at calls.py:15 in sums was made with one element less: ['float32', [8]]"
        " became ['float32', [7]]"
    )


def test_a_call_that_cannot_be_struck_is_made_as_it_is(live: Live, fault: Make) -> None:
    """It says why, and proves nothing."""
    refused = {
        ("swapped-halves", "broadcast", 1): "the rank sends nothing in this call",
        ("lost-contribution", "all_reduce", 1): "it is a max, not a sum",
        (
            "stale-payload",
            "all_gather",
            1,
        ): "there is no earlier call whose payload could be sent again",
        ("stale-payload", "all_gather", 2): "this fault does not change the payload of the call",
        (
            "skip-call",
            "all_gather",
            3,
        ): "it made no all_gather call 3 after door that was struck, and returned",
    }
    faults = [
        fault(kind=kind, ranks=[1], at="door", operation=operation, nth=nth).model_copy(
            update={"id": f"f-{place}"}
        )
        for place, (kind, operation, nth) in enumerate(refused)
    ]
    struck = live(*faults, entry="calls:one_sided", observe=True)
    assert struck.passed, struck.findings
    for one, why in zip(struck.proved, refused.values(), strict=True):
        assert (one.proof.proved, one.proof.description.endswith(why)) == (False, True), one


def test_what_a_library_raises_behind_the_seam_is_no_refusal_of_ours(
    live: Live, fault: Make
) -> None:
    """Where calls may be struck, an error of the library is still its own and the subject's."""
    waits = fault(kind="skip-call", ranks=[0], at="door", operation="all_reduce", nth=2)
    struck = live(waits, entry="calls:left_alone", observe=True)
    error = struck.one("rank", 0, "rank.error").values
    assert (error["type"], error["ours"]) == ("RuntimeError", False)
