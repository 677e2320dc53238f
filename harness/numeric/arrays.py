"""Arrays compared with NumPy: what `harness.numeric.comparison` says of a pair, of ten million."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.numeric.array import HEADER_LIMIT, ArrayHeader, NotAnArray, header
from harness.numeric.comparison import Comparison, ComparisonTally, Tolerance, coarser

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

CHUNK = 1 << 20
"""Elements that are compared at a time."""
# Nearer to the limit than this, in units of it, exact arithmetic decides; the error of float64 is
# far below.
DOUBTFUL = 1e-9


class ArrayFile(NamedTuple):
    """An array's file.

    Attributes:
        name: whose suffix tells a bfloat16.
        content: all of its bytes, in memory or mapped there.
    """

    name: str
    content: bytes | mmap.mmap

    def load(self) -> tuple[ArrayHeader, Array]:
        """Read it.

        Raises:
            NotAnArray: it is not one, or it is cut off, or there is more behind it.
        """
        import numpy as np

        head = header(io.BytesIO(self.content[: HEADER_LIMIT + 16]), name=self.name)
        if len(self.content) != head.bytes:
            raise NotAnArray(f"it has {len(self.content)} bytes, but its header says {head.bytes}")
        flat = np.frombuffer(self.content, head.descr, offset=head.begin)
        return head, flat.reshape(head.shape, order="F" if head.fortran else "C")


def numbers(file: ArrayFile) -> Array:
    """Return the array itself: whatever floats it holds, as floats of NumPy.

    Raises:
        NotAnArray: it is not one.
    """
    import numpy as np

    head, array = file.load()
    if head.dtype != "bfloat16":
        return array
    widened: Array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return widened


class Spread(NamedTuple):
    """Between which values the elements of an array lie.

    Attributes:
        least: the smallest finite one; None where there is none.
        most: the largest finite one.
        nans: how many are NaN.
        infinities: how many are infinite, of either sign.
    """

    least: float | None
    most: float | None
    nans: int
    infinities: int


def spread(file: ArrayFile) -> Spread:
    """Look between which values an array's elements lie.

    Raises:
        NotAnArray: it is not one.
    """
    import numpy as np

    array = numbers(file)
    finite = array[np.isfinite(array)]
    least, most = (finite.min().item(), finite.max().item()) if finite.size else (None, None)
    return Spread(
        least, most, int(np.count_nonzero(np.isnan(array))), int(np.count_nonzero(np.isinf(array)))
    )


def compare(found: ArrayFile, expected: ArrayFile, tolerance: Tolerance) -> Comparison:
    """Compare two arrays' files.

    Raises:
        NotAnArray: one of them is not one.
    """
    head, left = found.load()
    other, right = expected.load()
    if head.shape != other.shape:
        return Comparison(
            shape=list(head.shape),
            expected_shape=list(other.shape),
            dtype=head.dtype,
            expected_dtype=other.dtype,
        )
    tally = ComparisonTally(head.shape, tolerance, dtype=coarser(head.dtype, other.dtype))
    for ours, theirs in zip(_chunks(left, head.dtype), _chunks(right, other.dtype), strict=True):
        _count(tally, ours, theirs)
    return tally.comparison(dtype=head.dtype, expected_dtype=other.dtype)


def _chunks(array: Array, dtype: str) -> Iterator[Array]:
    """Its elements in C order, whatever the order in memory.

    Floats as float64, which holds each of them exactly.
    """
    import numpy as np

    flat = array.reshape(-1)  # a copy where the file holds Fortran's order
    for begin in range(0, flat.size, CHUNK):
        chunk = np.asarray(flat[begin : begin + CHUNK])
        if dtype == "bfloat16":
            chunk = (chunk.astype(np.uint32) << np.uint32(16)).view(np.float32)
        yield chunk.astype({"f": np.float64, "b": np.uint8}.get(chunk.dtype.kind, chunk.dtype))


def _count(tally: ComparisonTally, found: Array, expected: Array) -> None:
    """Count a chunk: by float64 what is clear, by exact arithmetic what is not."""
    import numpy as np

    # Whole numbers beside floats or beside others, which no dtype holds exactly.
    if found.dtype != expected.dtype:
        for pair in zip(found.tolist(), expected.tolist(), strict=True):
            tally.pair(*pair)
        return
    tolerance = tally.tolerance
    first = tally.elements
    tally.elements += found.size
    same = found == expected
    if found.dtype.kind == "f":
        finite = np.isfinite(found), np.isfinite(expected)
        tally.nonfinite[0] += int(np.count_nonzero(~finite[0]))
        tally.nonfinite[1] += int(np.count_nonzero(~finite[1]))
        tally.signed_zeros += int(
            np.count_nonzero(same & (found == 0) & (np.signbit(found) != np.signbit(expected)))
        )
        same = (
            same | (np.isnan(found) & np.isnan(expected))
            if tolerance.nonfinite
            else same & finite[0]
        )
    places = np.flatnonzero(~same)
    if not places.size:
        return
    found = found[places]
    expected = expected[places]
    excess, within = _judge(found, expected, tolerance, dtype=tally.dtype)
    tally.differing += int(places.size)
    tally.beyond += int(np.count_nonzero(~within))
    if found.dtype.kind == "f":
        tally.unbounded += int(np.count_nonzero(~(np.isfinite(found) & np.isfinite(expected))))
    stretches = tally.stretch_of(places + first)  # ascending, as the places are
    starts = np.flatnonzero(np.diff(stretches, prepend=-1))
    for stretch, largest in zip(
        stretches[starts], np.maximum.reduceat(excess, starts), strict=True
    ):
        tally.excess[stretch] = max(tally.excess[stretch], float(largest))
    worst = int(np.argmax(excess))
    tally.worse(
        int(places[worst]) + first,
        float(excess[worst]),
        found[worst].item(),
        expected[worst].item(),
    )


def _judge(
    found: Array, expected: Array, tolerance: Tolerance, *, dtype: str
) -> tuple[Array, Array]:
    """`Tolerance.excess` and `Tolerance.allows` of pairs that differ.

    All of one kind, floats as float64.
    """
    import numpy as np

    whole = found.dtype.kind != "f"
    with np.errstate(all="ignore"):
        if whole:
            steps = np.maximum(found, expected).astype(np.uint64) - np.minimum(
                found, expected
            ).astype(np.uint64)
            apart = steps.astype(np.float64)
            size = np.abs(expected.astype(np.float64))
        else:
            steps = (
                _steps(found, expected, dtype)
                if tolerance.ulp is not None
                else np.zeros(0, np.uint64)
            )
            apart = np.abs(found - expected)
            size = np.abs(expected)
        limit = tolerance.atol + tolerance.rtol * size
        excess = apart / limit
        within = excess <= 1
        doubtful = np.flatnonzero(~(np.abs(excess - 1) >= DOUBTFUL) | np.isnan(excess))
        if not (whole or tolerance.rtol):
            # Both differences are exact here: the first has no rounding error, the second is of two
            # neighbours.
            exact = _error(found[doubtful], -expected[doubtful]) == 0
            within[doubtful] = apart[doubtful] - limit[doubtful] <= 0
            doubtful = doubtful[~exact]
        # Infinity of infinity, and a limit that float64 cannot hold to all its digits.
        unsaid = np.isnan(excess) | ((limit > 0) & (limit < np.finfo(np.float64).tiny))
        lost = np.flatnonzero(unsaid & np.isfinite(found) & np.isfinite(expected))
        bare = tolerance._replace(ulp=None)
        excess[lost] = [
            bare.excess(*pair)
            for pair in zip(found[lost].tolist(), expected[lost].tolist(), strict=True)
        ]
        if tolerance.ulp is not None:
            # 0 of 0 allowed is within.
            share = np.where(steps == 0, 0.0, steps.astype(np.float64) / tolerance.ulp)
            excess = np.fmin(excess, share)
    if doubtful.size:  # each pair once: what lies at the limit often does so many times
        pairs, which = np.unique(
            np.stack([found[doubtful], expected[doubtful]]), axis=1, return_inverse=True
        )
        within[doubtful] = np.array([bare.allows(*pair) for pair in pairs.T.tolist()])[
            which.reshape(-1)
        ]
    if tolerance.ulp is not None:
        within |= steps <= tolerance.ulp
    if not whole:
        nonfinite = ~(np.isfinite(found) & np.isfinite(expected))
        excess[nonfinite] = np.inf
        within[nonfinite] = False
    return excess, within


def _error(left: Array, right: Array) -> Array:
    """Return what rounding takes from a sum. Source: Knuth's TwoSum."""
    total = left + right
    part = total - left
    error: Array = (left - (total - part)) + (right - part)
    return error


def _steps(found: Array, expected: Array, dtype: str) -> Array:
    """`tolerance.ulps` of each pair, as uint64."""
    import numpy as np

    width = {"float64": 8, "float16": 2}.get(dtype, 4)
    ordinals = []
    for values in (found, expected):
        bits = values.astype(f"f{width}").view(f"i{width}")
        size = (bits & np.iinfo(bits.dtype).max).astype(np.int64) >> (
            16 if dtype == "bfloat16" else 0
        )
        ordinals.append(np.where(bits < 0, -size, size))
    steps: Array = np.maximum(*ordinals).astype(np.uint64) - np.minimum(*ordinals).astype(np.uint64)
    return steps
