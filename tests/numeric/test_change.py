"""One element changed by a stated size: by how much, in which dtype, and worked back from what it
became.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.numeric.change import (
    MOST,
    ArrayInFile,
    change_number,
    change_value,
    restored,
    restored_file,
)
from harness.numeric.comparison import ulps


def order(change: str, size: float | None = None, *, seed: int = 0) -> dict[str, Any]:
    return {"change": change, "size": size, "seed": str(seed), "rank": 1, "fault": "defect"}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("value", [1.0, -1.0, 0.0, -2.5, 1.9921875, 6.1e-5, 60000.0])
def test_so_many_numbers_of_its_dtype_lie_between(dtype: str, value: float) -> None:
    """An ulp is one of the dtype's own, away from zero, and so far as the check that compares
    counts them.
    """
    value = _in(dtype, value)
    for many in (1, 3):
        after = change_number(value, order("ulp", many), dtype=dtype)
        assert after is not None
        assert ulps(after, value, dtype=dtype) == many
        assert abs(after) > abs(value) or value == 0.0


def _in(dtype: str, value: float) -> float:
    """The nearest number of a dtype; a bfloat16 cuts a float32 off."""
    if dtype != "bfloat16":
        return float(np.dtype(dtype).type(value))
    bits = np.float32(value).view(np.uint32) & np.uint32(0xFFFF0000)
    return float(bits.view(np.float32))


@pytest.mark.parametrize(
    ("change", "size", "before", "dtype", "after"),
    [
        ("absolute", 0.25, 1.0, "float64", 1.25),
        ("absolute", 1e-3, 1.0, "float32", float(np.float32(1.001))),
        ("absolute", 1e-3, 1.0, "float16", float(np.float16(1.001))),
        ("absolute", 1e-3, 1.0, "bfloat16", None),  # it has no number that near
        ("absolute", 0.01, 1.0, "bfloat16", 1.0078125),
        ("absolute", 1e-3, 1e20, "float64", None),
        ("absolute", 1e9, 1.0, "float16", None),  # beyond what it holds
        ("absolute", 2.0, 5, "int64", 7),
        ("absolute", 0.5, 5, "int64", None),
        ("relative", 0.5, -3.0, "float64", -1.5),
        ("relative", 0.5, 0.0, "float64", None),
        ("ulp", 2, 5, "int64", 7),
        ("ulp", 1, math.inf, "float64", None),
        ("ulp", 1, 65504.0, "float16", None),
        ("absolute", 1.0, math.nan, "float64", None),
        ("absolute", 1.0, 10**400, "float64", None),  # larger than a float can say
        ("token", None, 7, "int64", 8),
        ("token", None, 7.0, "float64", None),
    ],
)
def test_a_number_is_changed_as_stated_or_not_at_all(
    change: str, size: float | None, before: float, dtype: str, after: float | None
) -> None:
    """In its own dtype; a change that would make nothing of it, or no number, is none."""
    found = change_number(before, order(change, size), dtype=dtype)
    assert (found, type(found)) == (after, type(after))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
ORDERS = st.builds(
    order,
    st.sampled_from(["absolute", "relative", "ulp", "token", "character"]),
    st.just(1),
    seed=st.integers(0, 99),
)


@given(JSON, ORDERS)
def test_what_was_changed_can_be_worked_back(value: Any, order: Any) -> None:
    """One element differs, and putting it back gives the value that was.

    Doing it again gives the same.
    """
    changed = change_value(value, order)
    if changed is None:
        return
    assert repr(changed.whole) != repr(value)
    assert repr(restored(changed.whole, changed.position, changed.before)) == repr(value)
    assert repr(change_value(value, order)) == repr(changed)


DTYPES = ["<f8", ">f4", "<f2", "<i4", "|u1", ">i8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fortran", [False, True])
@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_an_element_of_a_file_is_the_one_at_its_position(
    dtype: str, fortran: bool, seed: int
) -> None:
    """NumPy sees one other element, at the position that is told.

    And the file is worked back byte for byte.
    """
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    array = np.asfortranarray(array) if fortran else array
    file = io.BytesIO()
    np.save(file, array)
    was = file.getvalue()
    asked = order("ulp", 1, seed=seed)
    changed = ArrayInFile(file, "a.npy").change(asked)
    assert changed is not None
    file.seek(0)
    now = np.load(file)
    (place,) = np.argwhere(now != array)
    assert place.tolist() == changed.position
    assert (array[tuple(place)], now[tuple(place)]) == (changed.before, changed.after)
    assert restored_file(file.getvalue(), "a.npy", changed.position, changed.before, asked) == was
    other = [*changed.position[:-1], (int(changed.position[-1]) + 1) % 4]
    assert restored_file(file.getvalue(), "a.npy", other, changed.before, asked) == b""
    assert restored_file(file.getvalue(), "a.npy", changed.position, changed.after, asked) == b""


def test_an_element_that_cannot_be_changed_is_passed_over() -> None:
    """NaN and infinities are left alone: the next one that can be is taken.

    Where there is none, nothing is done.
    """
    for content, there in (
        ([math.nan, math.inf, 2.0, -math.inf], True),
        ([math.nan] * (MOST // 64), False),
        ([], False),
    ):
        file = io.BytesIO()
        np.save(file, np.array(content, dtype="f4"))
        changed = ArrayInFile(file, "a.npy").change(order("absolute", 1.0))
        assert (changed is not None) == there
        assert changed is None or (changed.position, changed.after) == ([2], 3.0)
