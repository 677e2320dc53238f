"""Two arrays compared: what NumPy finds of ten million is what exact arithmetic finds of each
pair.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.numeric.array import BFLOAT16_SUFFIX, NotAnArray, header
from harness.numeric.arrays import ArrayFile
from harness.numeric.arrays import compare as compare_files
from harness.numeric.comparison import Comparison, ComparisonTally, Tolerance, compare_values, ulps

BIG = 1 << 62
DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int64", "uint64", "bool")
TOLERANCES = st.builds(
    Tolerance,
    atol=st.sampled_from([0.0, 0.1, 0.5, 1e-300, 5e-324, 1e308]),
    rtol=st.sampled_from([0.0, 0.125, 1e-3, 1.0]),
    ulp=st.sampled_from([None, 0, 1, 4, 1 << 40]),
    nonfinite=st.booleans(),
)


def compare(found: Path, expected: Path, tolerance: Tolerance) -> Comparison:
    files = [ArrayFile(path.name, path.read_bytes()) for path in (found, expected)]
    return compare_files(*files, tolerance)


def saved(folder: Path, name: str, values: Any, dtype: str) -> Path:
    """An array's file; a bfloat16 is cut off a float32, as it lies in memory."""
    if dtype == "bfloat16":
        path = folder / (name + BFLOAT16_SUFFIX)
        np.save(path, (np.asarray(values, "float32").view("uint32") >> 16).astype("uint16"))
    else:
        path = folder / f"{name}.npy"
        np.save(path, np.asarray(values, dtype))
    return path


def numbers(path: Path) -> list[Any]:
    """The elements of a file as Python has them, in C order."""
    values = np.load(path)
    if path.name.endswith(BFLOAT16_SUFFIX):
        values = (values.astype("uint32") << 16).view("float32")
    return [int(one) if isinstance(one, bool) else one for one in values.reshape(-1).tolist()]


def one_by_one(found: Path, expected: Path, tolerance: Tolerance, dtype: str) -> Comparison:
    """The same by exact arithmetic, pair by pair."""
    pairs = list(zip(numbers(found), numbers(expected), strict=True))
    tally = ComparisonTally(
        [len(pairs)],
        tolerance,
        dtype=dtype if dtype in ("float16", "float32", "bfloat16") else "float64",
    )
    for pair in pairs:
        tally.pair(*pair)
    return tally.comparison(dtype=dtype, expected_dtype=dtype)


def test_the_excess_over_a_denormal_limit(tmp_path: Path) -> None:
    """A limit between two neighbouring float64 is not rounded to one of them before it divides."""
    tolerance = Tolerance(atol=5e-324, rtol=0.125)
    files = saved(tmp_path, "left", [0.0], "float64"), saved(tmp_path, "right", [5e-324], "float64")
    found, expected = compare(*files, tolerance), one_by_one(*files, tolerance, "float64")
    assert found.excess == expected.excess == [0.8889]


@given(data=st.data(), dtype=st.sampled_from(DTYPES), tolerance=TOLERANCES)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_arrays_are_compared_as_pairs_are(
    tmp_path: Path, data: Any, dtype: str, tolerance: Tolerance
) -> None:
    """Every dtype, NaN, infinities, denormals and both zeros among them."""
    kind: Any = "float32" if dtype == "bfloat16" else dtype
    left = data.draw(arrays.arrays(kind, st.integers(0, 12)))
    near = data.draw(
        st.sampled_from([left, np.nextafter(left, 1).astype(kind) if "float" in kind else left])
    )
    right = data.draw(st.one_of(st.just(near), arrays.arrays(kind, left.shape)))
    files = saved(tmp_path, "left", left, dtype), saved(tmp_path, "right", right, dtype)
    found, expected = compare(*files, tolerance), one_by_one(*files, tolerance, dtype)
    for name in ("elements", "differing", "beyond", "signed_zeros", "nonfinite", "stretch"):
        assert getattr(found, name) == getattr(expected, name), name
    assert len(found.excess) == len(expected.excess)
    for ours, theirs in zip(found.excess, expected.excess, strict=True):
        # Beyond any tolerance and a number too large for float64 are the same to whoever looks at a
        # picture.
        assert (
            ours == theirs
            or None in (ours, theirs)
            or math.isclose(ours or 0, theirs or 0, rel_tol=1e-6)
        )
    for one in (found, expected):
        assert one.contradiction(tolerance) == ""
        assert Comparison.of(one.values()) == one


@pytest.mark.parametrize(
    ("tolerance", "found", "expected", "dtype"),
    [
        (Tolerance(ulp=0), [1 / 3, 1.0, 3.0], [1 / 3, 2.0, 3.0], "float32"),
        (Tolerance(rtol=2.0), [1e308, 1.0, 4.0], [-1e308, 3.0, 1.0], "float64"),
    ],
)
def test_the_worst_pair_is_one_that_is_beyond(
    tmp_path: Path, tolerance: Tolerance, found: list[float], expected: list[float], dtype: str
) -> None:
    """Beside one that differs by no step of the coarser dtype, or whose distance and limit are both
    infinite.
    """
    files = saved(tmp_path, "found", found, "float64"), saved(tmp_path, "expected", expected, dtype)
    got = compare(*files, tolerance)
    assert got.contradiction(tolerance) == ""
    assert (got.beyond, got.worst and got.worst.index) == (1, [1 if dtype == "float32" else 2]), got


CLOSE = Tolerance(atol=0.5)
HAND_MADE: dict[str, tuple[Any, Any, str, Tolerance, bool]] = {
    "0 ulp": ([1.5], [1.5], "float32", Tolerance(ulp=0), True),
    "1 ulp": (
        [1.0],
        [np.nextafter(np.float32(1), np.float32(2))],
        "float32",
        Tolerance(ulp=1),
        True,
    ),
    "2 ulp, 1 allowed": ([1.0], [1.0 + 2 * 2.0**-23], "float32", Tolerance(ulp=1), False),
    "1 ulp of bfloat16": ([1.0], [1.0 + 2.0**-7], "bfloat16", Tolerance(ulp=1), True),
    "2 ulp of bfloat16": ([1.0], [1.0 + 2.0**-6], "bfloat16", Tolerance(ulp=1), False),
    "1 ulp of float16 across zero": ([0.0], [-(2.0**-24)], "float16", Tolerance(ulp=1), True),
    "at the limit": ([1.5], [1.0], "float64", CLOSE, True),
    "just beyond the limit": ([np.nextafter(1.5, 2)], [1.0], "float64", CLOSE, False),
    "at the relative limit": ([9.0], [8.0], "float32", Tolerance(rtol=0.125), True),
    "relative to what is expected": ([8.0], [9.0], "float32", Tolerance(rtol=0.112), True),
    "NaN against NaN": ([math.nan], [math.nan], "float32", CLOSE, False),
    "NaN against NaN, allowed": (
        [math.nan, 1],
        [math.nan, 1],
        "float32",
        Tolerance(nonfinite=True),
        True,
    ),
    "nothing but NaN, allowed": (
        [math.nan] * 2,
        [math.nan] * 2,
        "float32",
        Tolerance(nonfinite=True),
        False,
    ),
    "NaN against a number, allowed": (
        [math.nan],
        [1.0],
        "float32",
        Tolerance(atol=9, nonfinite=True),
        False,
    ),
    "infinity against itself": ([math.inf], [math.inf], "float32", CLOSE, False),
    "infinities of two signs": (
        [math.inf],
        [-math.inf],
        "float32",
        Tolerance(ulp=BIG, nonfinite=True),
        False,
    ),
    "negative zero": ([-0.0], [0.0], "float32", Tolerance(ulp=0), True),
    "denormals": ([5e-324], [0.0], "float64", Tolerance(ulp=1), True),
    "denormals, nothing allowed": ([5e-324], [0.0], "float64", Tolerance(), False),
    "the largest integers": ([2**63 - 1], [-(2**63)], "int64", Tolerance(atol=2.0**64), True),
    "integers that no double tells apart": ([2**53 + 1], [2**53], "int64", Tolerance(), False),
    "unsigned, the smaller first": ([0], [2**64 - 1], "uint64", CLOSE, False),
    "booleans": ([True, False], [True, True], "bool", CLOSE, False),
    "huge, whose difference overflows": (
        [1.7e308],
        [-1.7e308],
        "float64",
        Tolerance(rtol=1.0, atol=1e308),
        False,
    ),
}


@pytest.mark.parametrize("case", HAND_MADE)
def test_a_pair_is_close_or_not(tmp_path: Path, case: str) -> None:
    """One pair each, and the same answer from the arrays and from what the record holds of them."""
    found, expected, dtype, tolerance, close = HAND_MADE[case]
    got = compare(
        saved(tmp_path, "found", found, dtype),
        saved(tmp_path, "expected", expected, dtype),
        tolerance,
    )
    assert (got.complaint(tolerance) == "") is close, got
    again = Comparison.of(got.values())
    assert again is not None
    assert (again.complaint(tolerance) == "") is close


def test_arrays_of_other_shapes_and_dtypes_are_a_finding_of_their_own(tmp_path: Path) -> None:
    """Transposed, broadcast, of another dtype, empty: never compared as if nothing were."""
    square, tolerance = np.arange(6.0).reshape(2, 3), Tolerance(atol=1e9)
    first = saved(tmp_path, "first", square, "float64")
    for name, other, complaint in (
        ("turned", square.T, "its shape is [2, 3], expected [3, 2]"),
        ("broadcast", square[:1], "its shape is [2, 3], expected [1, 3]"),
        ("flat", square.reshape(-1), "its shape is [2, 3], expected [6]"),
    ):
        found = compare(first, saved(tmp_path, name, other, "float64"), tolerance)
        assert (found.complaint(tolerance), found.elements) == (complaint, 0)
    single = compare(first, saved(tmp_path, "single", square, "float32"), tolerance)
    assert (
        single.complaint(tolerance)
        == "its dtype is float64, expected float32 (dtype: any lets them differ)"
    )
    assert single.complaint(tolerance, dtype_matters=False) == ""
    nothing = saved(tmp_path, "nothing", np.zeros((0, 3)), "float64")
    found = compare(nothing, nothing, tolerance)
    assert "agreeing on nothing" in found.complaint(tolerance)
    assert found.complaint(tolerance, empty=True) == ""


def test_the_order_in_memory_and_of_bytes_is_not_a_difference(tmp_path: Path) -> None:
    """Fortran's order and big-endian bytes hold the same array; a permuted one does not."""
    values = np.arange(12, dtype="float32").reshape(3, 4)
    plain = saved(tmp_path, "plain", values, "float32")
    for name, other in (("fortran", np.asfortranarray(values)), ("big", values.astype(">f4"))):
        np.save(tmp_path / f"{name}.npy", other)
        assert compare(tmp_path / f"{name}.npy", plain, Tolerance()).complaint(Tolerance()) == ""
    found = compare(plain, saved(tmp_path, "permuted", values[::-1], "float32"), Tolerance(atol=1))
    assert found.worst is not None
    assert (found.beyond, found.worst.index, found.worst.difference) == (8, [0, 0], 8.0)
    assert (
        found.complaint(Tolerance(atol=1))
        == "found 0, expected 8 (off by 8 at [0, 0]; 8 of 12 elements beyond atol 1)"
    )


@pytest.mark.whole
def test_ten_million_elements_at_the_limit(tmp_path: Path) -> None:
    """Each lies at the limit, where only exact arithmetic knows.

    One in the last row lies beyond.
    """
    values = np.random.default_rng(0).integers(0, 1 << 20, (10_000, 1000)).astype("float32")
    other = values + np.float32(0.5)
    files = (
        saved(tmp_path, "found", other, "float32"),
        saved(tmp_path, "expected", values, "float32"),
    )
    found = compare(*files, CLOSE)
    assert (found.elements, found.differing, found.beyond) == (10_000_000, 10_000_000, 0)
    other[-1, -1] += np.float32(0.25)
    found = compare(saved(tmp_path, "found", other, "float32"), files[1], CLOSE)
    assert (found.beyond, found.worst and found.worst.index) == (1, [9999, 999])
    assert (len(found.excess), found.excess[-1], found.excess[0]) == (500, 1.5, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"beyond": 0},
        {"elements": 2},
        {"differing": 0},
        {"beyond": 3},
        {"worst": None},
        {"worst": {"index": [1], "found": 1.0, "expected": 1.0}},
        {"worst": {"index": [3], "found": 1.0, "expected": 2.0}},
        {"worst": {"index": [0, 0], "found": 1.0, "expected": 2.0}},
        {"expected_shape": [4]},
    ],
)
def test_a_comparison_that_was_changed_contradicts_itself(change: dict[str, Any]) -> None:
    """What a record holds of two arrays hangs together, so that a changed count is seen without
    them.
    """
    found = compare_values([1, 5, 3], [1, 2, 3], CLOSE)
    assert (found.contradiction(CLOSE), found.beyond) == ("", 1)
    changed = Comparison.of({**found.values(), **change})
    assert changed is not None
    assert changed.complaint(CLOSE) != ""


@pytest.mark.parametrize(
    ("found", "expected", "close"),
    [
        (0.75, 0.5, True),
        ([0.5, 1.0], [1, 1], True),
        ([[1, 2], [3, 4]], [[1, 2], [3, 5]], False),
        ([[1, 2], [3, 4]], [1, 2, 3, 4], False),
        (2**70, 2**70 + 1, False),
        ([], [], False),
    ],
)
def test_values_of_events_are_compared_likewise(found: Any, expected: Any, close: bool) -> None:
    """Numbers and lists of numbers nested to one depth, whole numbers of any size without
    rounding.
    """
    assert (compare_values(found, expected, CLOSE).complaint(CLOSE) == "") is close


@pytest.mark.parametrize(
    "value", [None, "1", True, [1, "2"], [[1], [2, 3]], [1, [2]], {"a": 1}, [[1], 2], [None]]
)
def test_what_is_not_numbers_is_said(value: Any) -> None:
    """A text that looks like a number is not one, nor is a ragged list."""
    with pytest.raises(TypeError, match="is not a"):
        compare_values(value, 1.0, CLOSE)
    with pytest.raises(TypeError, match="what it is compared with"):
        compare_values(1.0, value, CLOSE)


@given(
    content=st.binary(max_size=300),
    start=st.sampled_from([b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00\x40\0\0\0"]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_is_not_an_array_is_refused(
    tmp_path: Path, content: bytes, start: bytes
) -> None:
    """Whatever bytes: an array, or a reason; nothing is executed and nothing else is raised."""
    (tmp_path / "x.npy").write_bytes(start + content)
    reason = "it is one, by chance"
    try:
        with (tmp_path / "x.npy").open("rb") as file:
            header(file, name="x.npy")
    except NotAnArray as error:
        reason = str(error)
    assert reason.startswith(("it ", "its "))


def test_arrays_of_anything_but_numbers_are_refused(tmp_path: Path) -> None:
    """Objects would be unpickled, which runs code.

    Cut off or padded files are not what their header says.
    """
    good = saved(tmp_path, "good", [1.0], "float64")
    for name, values in (
        ("objects", np.array([{}])),
        ("texts", np.array(["a"])),
        ("complex", np.array([1j])),
    ):
        np.save(tmp_path / f"{name}.npy", values, allow_pickle=True)
        with pytest.raises(NotAnArray, match="dtype"):
            compare(tmp_path / f"{name}.npy", good, CLOSE)
    for name, content in (("cut", good.read_bytes()[:-1]), ("padded", good.read_bytes() + b"\0")):
        (tmp_path / f"{name}.npy").write_bytes(content)
        with pytest.raises(NotAnArray, match="bytes"):
            compare(good, tmp_path / f"{name}.npy", CLOSE)
    (tmp_path / "not.bfloat16.npy").write_bytes(good.read_bytes())
    with pytest.raises(NotAnArray, match="bfloat16"):
        compare(tmp_path / "not.bfloat16.npy", good, CLOSE)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
@settings(deadline=None)
def test_the_next_number_is_one_step_away(value: float) -> None:
    """Across zero, in the denormals, at every size."""
    with np.errstate(all="ignore"):  # the largest number has no next one, and NumPy warns of it
        after = float(np.nextafter(np.float32(value), np.float32(np.inf)))
    if math.isfinite(after):
        assert ulps(value, after, dtype="float32") == (0 if value == after else 1)


@pytest.mark.parametrize(
    "shape", ["(10**30, 0)", f"({1 << 62}, 0)", f"({1 << 40}, {1 << 40}, 0)", f"(0x{'F' * 3900},)"]
)
def test_a_shape_that_numpy_cannot_make_is_not_an_array(tmp_path: Path, shape: str) -> None:
    """Whether it holds no element or more than can be counted: a rank's file must not end the
    run.
    """
    path = saved(tmp_path, "x", np.zeros(0), "float64")
    text = (
        "{'descr': '<f8', 'fortran_order': False, 'shape':"
        f" {shape.replace('10**30', str(10**30))}, }}".encode()
    )
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with path.open("rb") as file, pytest.raises(NotAnArray, match="too large for an array"):
        header(file, name=path.name)
