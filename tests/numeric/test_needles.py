"""Wrong arrays that a tolerance has to refuse, and what counts as refusing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.checks.close import CloseCheck
from harness.checks.distribution import DistributionCheck
from harness.numeric.arrays import ArrayFile, numbers
from harness.numeric.comparison import Tolerance
from harness.numeric.needles import extent, places_like, telling, try_values, unmasked, wrong_ones
from tests.checks.worlds import content

RANDOM = np.random.default_rng(3)
LOGITS = RANDOM.standard_normal((8, 32))


def file(values: Any, name: str = "it.npy") -> ArrayFile:
    return ArrayFile(name, content(np.asarray(values)))


def refused(values: Any, **asked: Any) -> list[bool]:
    """Whether a check refuses each needle of an array; nothing of an array that has none."""
    kind = DistributionCheck if "kl" in asked or "rank" in asked else CloseCheck
    check = kind.model_validate(
        {
            "id": "it",
            "kind": kind.model_fields["kind"].annotation.__args__[0],
            "ranks": "every",
            "against": 0,
        }  # type: ignore[union-attr]
        | {"artefact": "it", **asked}
    )
    expected = file(values)
    return [
        check.needle(what, wrong, expected).is_refused for what, wrong in wrong_ones(expected, {})
    ]


def test_an_array_is_rolled_along_each_axis_that_this_changes() -> None:
    """The last axis first, by one where half changes nothing.

    An axis along which none does makes no needle.
    """
    of = [what for what, _ in wrong_ones(file(RANDOM.standard_normal((1, 4, 6))), {})]
    assert of == ["rolled by 3 along axis 2", "rolled by 2 along axis 1"]
    rows = np.repeat(np.arange(6.0)[:, None], 4, 1)
    assert [what for what, _ in wrong_ones(file(rows), {})] == ["rolled by 3 along axis 0"]
    assert [what for what, _ in wrong_ones(file(np.full((6, 4), np.nan)), {})] == []
    assert [what for what, _ in wrong_ones(file(np.tile(np.arange(8.0), 2)), {})] == [
        "rolled by 1 along axis 0"
    ]


def test_a_mask_stays_where_it_is_in_one_needle() -> None:
    """In the first the numbers are rolled among themselves, and what is masked in the right array
    is masked too.
    """
    masked = np.where(np.arange(16).reshape(4, 4) % 3, LOGITS[:4, :4], -np.inf)
    what, wrong = next(wrong_ones(file(masked), {}))
    assert what == "its numbers rolled by 5, the mask in place"
    assert (np.isfinite(numbers(wrong)) == np.isfinite(masked)).all()
    assert telling(wrong, file(masked)) == 10


@pytest.mark.parametrize(
    ("values", "masks"),
    [
        ([0.5, -1e9, 2.0, -1e9], True),
        ([0.5, float(np.finfo("float32").min), 2.0, float(np.finfo("float32").min)], True),
        ([0.5, float(np.finfo("float64").min), -2.0, float(np.finfo("float64").min)], True),
        ([7.0, 1e4, 1e4, 8.0], True),
        ([0.5, -1e9, 2.0, 1.0], False),  # once: a number that is large
        ([0.5, 3.0, 2.0, 3.0], False),  # no further away than the others are apart
        ([0.0, -1e9, 0.0, -1e9], False),  # the mask itself is what is compared
        ([3.5, 3.5, 3.5, 3.5], False),
    ],
)
def test_a_number_that_stands_for_a_mask(values: list[float], *, masks: bool) -> None:
    """Of the largest magnitude, there more than once, and further from all others than they are
    from each other.
    """
    array = np.array(values)
    expected = np.where(np.abs(array) == np.abs(array).max(), -np.inf, array) if masks else array
    assert (numbers(unmasked(file(array))) == expected).all()
    scale = try_values(values, [], Tolerance(atol=1)).scale
    assert scale == np.abs(expected[np.isfinite(expected)]).max()


def test_a_mask_of_sixteen_bits_and_none_of_whole_numbers() -> None:
    """A bfloat16 keeps its bits in whole numbers, where -infinity is other bits."""
    bits = (np.array([0.5, -1e9, 2.0, -1e9], "float32").view("uint32") >> 16).astype("uint16")
    assert numbers(unmasked(file(bits, "it.bfloat16.npy"))).tolist() == [0.5, -np.inf, 2.0, -np.inf]
    whole = file(np.array([1, 9000, 2, 9000]))
    assert unmasked(whole) == whole


def test_what_was_kept_elsewhere_is_a_needle_where_most_of_it_differs() -> None:
    """Not one of another shape or dtype, nor one that is the same in half of its elements."""
    ones = np.ones(16)
    others = {
        "layer.1": np.arange(16.0),
        "layer.2": np.ones(8),
        "layer.3": np.arange(16.0).astype("float32"),
        "layer.4": np.where(np.arange(16) < 8, 1.0, 2.0),
    }
    found = [
        what
        for what, _ in wrong_ones(
            file(ones), {name: file(values) for name, values in others.items()}
        )
    ]
    assert found == ["layer.1"]
    names = [
        "hidden.10.0",
        "hidden.2.0",
        "hidden.3.1",
        "hidden.3.0",
        "hidden.3.attention.0",
        "logits.0",
    ]
    assert places_like("hidden.3.0", names) == ["hidden.2.0", "hidden.3.1", "hidden.10.0"]


@pytest.mark.parametrize(
    ("values", "asked", "sharp"),
    [
        (LOGITS, {"atol": 1e-5}, True),
        (LOGITS, {"atol": 100.0}, False),
        (LOGITS, {"atol": float(np.ptp(LOGITS))}, False),
        (LOGITS / 150, {"atol": 0.05}, False),
        (LOGITS, {"rtol": 0.02, "atol": 0.05}, True),
        (np.eye(16), {"atol": 1e-5}, True),
        (1 + LOGITS[0] * 1e-3, {"rtol": 1e-2}, False),
        (
            np.where(np.arange(8)[:, None] == 3, LOGITS, np.nan),
            {"atol": 1e-5, "nonfinite": "allowed"},
            False,
        ),
        (
            np.where(np.arange(8)[:, None] == 3, LOGITS, -np.inf),
            {"atol": 1e-5, "nonfinite": "allowed"},
            False,
        ),
        (
            np.where(np.tril(np.ones((32, 32))), RANDOM.standard_normal((32, 32)), -np.inf),
            {"atol": 1e-5, "nonfinite": "allowed"},
            True,
        ),
        (LOGITS, {"kl": 1e-3}, True),
        (LOGITS, {"kl": 50.0}, False),
        (np.where(np.arange(32) < 20, LOGITS, -np.inf), {"kl": 50.0}, False),
        (np.where(np.arange(32) < 20, LOGITS, -np.inf), {"kl": 1e-3}, True),
        (
            np.where(np.tri(32), RANDOM.standard_normal((32, 32)), -np.inf),
            {"atol": 100.0, "nonfinite": "allowed"},
            False,
        ),
        (LOGITS, {"rank": 31}, False),
        (np.repeat(LOGITS[:, :1], 32, 1), {"kl": 1e-3}, False),
    ],
)
def test_what_a_tolerance_refuses(values: Any, asked: dict[str, Any], *, sharp: bool) -> None:
    """By half of what says anything, and not by the few elements that a narrow tolerance happens to
    see.
    """
    assert any(refused(values, **asked)) == sharp


def test_what_says_anything() -> None:
    """Equal numbers do not, NaN and rows without a finite number do, a masked number among finite
    ones does not.
    """
    right = np.array([[1, 2, -np.inf], [np.nan, 5, 6], [-np.inf, -np.inf, -np.inf]])
    wrong = np.array([[1, 9, -np.inf], [np.nan, 5, 6], [-np.inf, -np.inf, -np.inf]])
    assert telling(file(wrong), file(right)) == 1 + 1 + 3


def test_how_far_an_array_reaches() -> None:
    """Its floats, the largest magnitude that is finite, whether it is one number, and how many are
    none.
    """
    assert extent(file(np.array([-3.0, 2.0, np.nan, np.inf]))) == (4, 3.0, False, 2)
    assert extent(file(np.zeros((2, 3)))) == (6, 0.0, True, 0)
    assert extent(file(np.arange(9))) == (0, None, False, 0)
    assert extent(file(np.full(8, -np.inf))) == (8, None, False, 8)


@pytest.mark.parametrize("atol", [1e-5, 0.4, 3.0, 100.0])
def test_lists_of_numbers_are_tried_as_arrays_are(atol: float) -> None:
    """The same needles, and the same of them refused, without NumPy."""
    values = RANDOM.standard_normal((4, 6))
    tried = try_values(values.tolist(), [], Tolerance(atol=atol)).tried
    assert [one.is_refused for one in tried] == refused(values, atol=atol)[: len(tried)]
    assert (tried[0].what, tried[0].telling) == ("rolled by 3 along axis 1", 24)


def test_few_numbers_whole_ones_and_reports_of_other_times() -> None:
    """Fewer than eight have no needle, whole numbers neither.

    Another report of the same shape is one.
    """
    assert try_values([1.5] * 7, [], Tolerance(atol=1)).tried == []
    assert try_values(list(range(20)), [], Tolerance(atol=1)).elements == 0
    one = try_values([1.0] * 8, [[1.0] * 8, [2.0] * 8, [3.0] * 9, "text"], Tolerance(atol=0.5))
    assert ([needle.what for needle in one.tried], one.constant, one.is_refused) == (
        ["report 1"],
        True,
        True,
    )
