"""Logits compared as distributions: NumPy's answer is that of plain arithmetic, position by
position.
"""

from __future__ import annotations

import io
import math
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.checks.distribution import DistributionCheck
from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile
from harness.numeric.distribution import Distances, agrees, compare

INF = math.inf


def file(values: Any, dtype: str = "float32") -> ArrayFile:
    buffer = io.BytesIO()
    if dtype == "bfloat16":
        np.save(buffer, (np.asarray(values, "float32").view("uint32") >> 16).astype("uint16"))
        return ArrayFile("x.bfloat16.npy", buffer.getvalue())
    np.save(buffer, np.asarray(values, dtype))
    return ArrayFile("x.npy", buffer.getvalue())


def plainly(found: list[float], expected: list[float], k: int) -> tuple[float, int, int]:
    """KL in nats, overlap of the k best, rank of the expected token: by the definitions."""
    p, q = ([math.exp(one - max(row)) for one in row] for row in (expected, found))
    p, q = ([one / sum(row) for one in row] for row in (p, q))
    kl = sum(
        a * (math.log(a) - (math.log(b) if b else -INF)) for a, b in zip(p, q, strict=True) if a
    )
    order, wanted = (
        sorted(range(len(row)), key=lambda token: (-row[token], token)) for row in (found, expected)
    )
    return kl, len(set(order[:k]) & set(wanted[:k])), order.index(wanted[0]) + 1


LOGITS = st.floats(-30, 30, width=32)


@given(
    data=st.data(),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 8)),
    k=st.integers(1, 9),
)
@settings(deadline=None, max_examples=60)
def test_the_answer_is_that_of_the_definitions(data: Any, shape: tuple[int, int], k: int) -> None:
    """Ties among tokens are broken by their number, on both sides."""
    expected = data.draw(arrays.arrays("float32", shape, elements=LOGITS))
    found = data.draw(
        st.one_of(st.just(expected), arrays.arrays("float32", shape, elements=LOGITS))
    )
    got = compare(file(found), file(expected), k=k)
    want = [
        plainly(one.tolist(), other.tolist(), min(k, shape[1]))
        for one, other in zip(found, expected, strict=True)
    ]
    assert got.kl == pytest.approx(max(kl for kl, _, _ in want), rel=1e-5, abs=1e-6)
    assert (got.overlap, got.place) == (
        min(one for _, one, _ in want),
        max(one for _, _, one in want),
    )
    assert (got.positions, got.undefined, got.contradiction(k=k)) == (shape[0], 0, "")
    again = Distances.of(got.values())
    assert again is not None
    assert agrees(got, again)


def finding(
    found: Any, expected: Any, *, dtype: str = "float32", **options: Any
) -> tuple[bool, Any]:
    """Whether it passes, and what is shown."""
    check = DistributionCheck.model_validate(
        {
            "id": "it",
            "kind": "distribution",
            "ranks": "every",
            "artefact": "x",
            "against": 0,
            **options,
        }
    )
    part = check.judge_comparison(0, check.compare(file(found, dtype), file(expected, dtype)), 1)
    return part.passed, part.observed


ONE = [[1.0, 2.0, 3.0, 4.0]]
SWAPPED = [[1.0, 2.0, 4.0, 3.0]]


@pytest.mark.parametrize(
    ("found", "expected", "options", "passed", "shown"),
    [
        (ONE, ONE, {"kl": 0}, True, "KL 0 at most"),
        (
            SWAPPED,
            ONE,
            {"rank": 1},
            False,
            "rank 2 at position 0, allowed: 1; expected token 3 (margin 1), found 2",
        ),
        (SWAPPED, ONE, {"rank": 2}, True, "rank 2 at most"),
        (SWAPPED, ONE, {"kl": 0.1}, False, "at position 0, allowed: 0.1"),
        (SWAPPED, ONE, {"overlap": 2, "top": 2}, True, "2 of 2"),
        (
            [[4.0, 2.0, 3.0, 1.0]],
            ONE,
            {"overlap": 2, "top": 2},
            False,
            "1 of the 2 best tokens at position 0, required: 2",
        ),
        ([[1.0, 2.0, 3.0, 5.0]], [[11.0, 12.0, 13.0, 15.0]], {"kl": 1e-9}, True, "KL"),
        ([[1.0, math.nan, 3.0, 4.0]], ONE, {"rank": 4}, False, "1 of 1 positions have a NaN"),
        (
            [[1.0, math.nan, 3.0, 4.0]],
            [[1.0, math.nan, 3.0, 4.0]],
            {"rank": 4},
            False,
            "have a NaN",
        ),
        ([[1.0, INF, 3.0, 4.0]], ONE, {"kl": 9}, False, "+infinity"),
        ([[-INF] * 4], [[-INF] * 4], {"kl": 9}, False, "no finite logit"),
        ([[-INF, 2.0, 3.0, 4.0]], [[-INF, 2.0, 3.0, 4.0]], {"kl": 0}, True, "KL 0 at most"),
        ([[-INF, 2.0, 3.0, 4.0]], ONE, {"kl": 9}, False, "KL infinite at position 0"),
        ([[-INF, 2.0, 3.0, 4.0]], ONE, {"rank": 1}, True, "KL infinite"),
        (ONE, [[1.0, 2.0, 3.0]], {"kl": 9}, False, "its shape is [1, 4], but [1, 3] was expected"),
        (np.zeros((0, 4)), np.zeros((0, 4)), {"kl": 9}, False, "no position"),
        (np.zeros((3, 0)), np.zeros((3, 0)), {"kl": 9}, False, "contradicts itself"),
        ([[2.0, 2.0]], [[2.0, 2.0]], {"rank": 1}, True, "rank 1 at most"),
        (
            [[1.0], [2.0]],
            [[5.0], [-3.0]],
            {"kl": 0},
            False,
            "shape is [2, 1], with a vocabulary (the last axis) of 1",
        ),
        (
            SWAPPED,
            ONE,
            {"overlap": 1},
            False,
            "any logits would pass; 6 tokens are needed",
        ),
        (SWAPPED, ONE, {"rank": 4}, False, "5 tokens are needed"),
        (SWAPPED, ONE, {"overlap": 3, "top": 3}, True, "3 of 3 best tokens"),
        ([*ONE, *ONE, *SWAPPED], [*ONE] * 3, {"rank": 1}, False, "at position 2"),
        ([[ONE[0], SWAPPED[0]]], [[ONE[0], ONE[0]]], {"rank": 1}, False, "at position 1"),
    ],
)
def test_logits_are_near_or_not(
    found: Any, expected: Any, options: dict[str, Any], passed: bool, shown: str
) -> None:
    """Each with the position that is the worst, and what is asked of it."""
    got = finding(found, expected, **options)
    assert got[0] is passed
    assert shown in got[1]


def test_other_dtypes() -> None:
    """bfloat16 and float16 hold logits too; a single number does not."""
    assert finding(ONE, ONE, dtype="bfloat16", kl=0)[0]
    assert finding(SWAPPED, ONE, dtype="float16", rank=1)[0] is False
    with pytest.raises(NotAnArray, match="vocabulary"):
        compare(file(1.0), file(1.0), k=5)


@given(
    change=st.sampled_from(["positions", "undefined", "overlap", "place", "kl", "mean_kl"]),
    by=st.integers(1, 50),
)
def test_a_changed_comparison_is_not_the_one_of_the_arrays(change: str, by: int) -> None:
    """A verifier with the arrays sees any other number, beyond rounding."""
    honest = compare(file([ONE[0], SWAPPED[0]]), file([ONE[0], ONE[0]]), k=2)
    changed = honest.model_copy(update={change: getattr(honest, change) + by})
    assume(changed != honest)
    assert not agrees(changed, honest)
    assert agrees(honest.model_copy(update={"kl": (honest.kl or 0) * (1 + 1e-12)}), honest)


def test_a_changed_picture_or_position_is_not_the_one_of_the_arrays() -> None:
    """The position that the report names has the largest KL, and the picture is of these logits."""
    honest = compare(file([ONE[0], SWAPPED[0]]), file([ONE[0], ONE[0]]), k=2)
    assert honest.kl_at is not None
    for update in (
        {"excess": [honest.kl, 0.0]},
        {"kl_at": honest.kl_at.model_copy(update={"position": 0})},
        {"kl_at": honest.kl_at.model_copy(update={"found": 0})},
    ):
        assert not agrees(honest.model_copy(update=update), honest), update
