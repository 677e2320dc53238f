"""Needles: wrong arrays that a tolerance must not accept, tried by the harness itself.

An array is compared with others of its shape: itself rolled by half along an axis, and what was kept elsewhere under
the same name (of another prompt, of another layer). A tolerance that accepts all of them shows nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from harness.forms.model import Model
from harness.numeric.arrays import ArrayFile, numbers
from harness.numeric.comparison import Told, compare_values
from harness.numeric.tolerance import Number, Tolerance

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LEAST = 8
"""Fewer numbers than these make no array in which anything could be at the wrong place."""
OTHERS = 3
"""So many arrays from elsewhere are tried at most."""
Count = Annotated[int, Field(ge=0)]


class Needle(Model):
    """One wrong array, and what the check says of it.

    Attributes:
        what: where it is from.
        telling: how many of its elements (of logits: positions) say anything: those that are another number than the
            right one, and those where neither holds a number that could be compared.
        beyond: how many of these lie beyond the tolerance.
        passes: whether the check, as it stands, would pass on it.
    """

    what: str
    telling: Count
    beyond: Count
    passes: bool

    @property
    def is_refused(self) -> bool:
        """Whether the check tells it from the right one: it fails, by half of what says anything and more."""
        return not self.passes and 2 * self.beyond >= self.telling


class Needles(Told):
    """What was tried with one array; nothing more once a needle was refused.

    Attributes:
        elements: how many floats it holds; 0 of anything else.
        scale: the largest magnitude among those that are finite; None where none is.
        constant: whether all of its elements are one number.
        hollow: how many are no number that could be compared: NaN, +infinity, or in a row without any finite number.
        tried: each needle, in order.
    """

    elements: Count
    scale: Annotated[float, Field(ge=0)] | None
    constant: bool
    hollow: Count = 0
    tried: list[Needle]

    @property
    def is_refused(self) -> bool:
        """Whether one was refused."""
        return any(needle.is_refused for needle in self.tried)


class Extent(NamedTuple):
    """How many floats an array holds, their largest finite magnitude, whether all are one, and how many say nothing."""

    elements: int
    scale: float | None
    constant: bool
    hollow: int


def extent(expected: ArrayFile) -> Extent:
    """Look how far the elements of an array reach.

    Raises:
        NotAnArray: it is not one.
    """
    import numpy as np

    array = numbers(expected)
    if array.dtype.kind != "f" or not array.size:
        return Extent(0, None, False, 0)
    hollow = int(np.count_nonzero(_hollow(array)))
    finite = array[np.isfinite(array)]
    if not finite.size:
        return Extent(int(array.size), None, False, hollow)
    least, most = float(finite.min()), float(finite.max())
    is_constant = least == most and finite.size == array.size
    return Extent(int(array.size), max(abs(least), abs(most)), is_constant, hollow)


def _hollow(array: Array) -> Array:
    """Where an array holds no number that could be compared."""
    import numpy as np

    found: Array = np.isnan(array) | np.isposinf(array)
    return found | ~np.isfinite(array).any(axis=-1, keepdims=True) if array.ndim else found


def wrong_ones(expected: ArrayFile, others: Mapping[str, ArrayFile]) -> Iterator[tuple[str, ArrayFile]]:
    """Arrays of the same shape and dtype that are not the right one, each with where it is from.

    Args:
        expected: the right one.
        others: what was kept under such a name elsewhere.

    Raises:
        NotAnArray: one is not one.
    """
    import numpy as np

    head, array = expected.load()
    for axis in reversed(range(array.ndim)):
        by = array.shape[axis] // 2
        rolled = np.roll(array, by, axis)
        if by and not _same(rolled, array).all():
            file = io.BytesIO()
            np.lib.format.write_array(file, rolled, allow_pickle=False)
            yield f"rolled by {by} along axis {axis}", ArrayFile(expected.name, file.getvalue())
    for name, other in others.items():
        its, found = other.load()
        if (its.shape, its.dtype) == (head.shape, head.dtype) and 2 * int(_same(found, array).sum()) < array.size:
            yield name, other


def _same(one: Array, other: Array) -> Array:
    import numpy as np

    equal: Array = (one == other) | (np.isnan(one) & np.isnan(other))
    return equal


def telling(wrong: ArrayFile, expected: ArrayFile) -> int:
    """How many elements of a wrong array say anything (`Needle.telling`).

    Not those that are the same number in both, but for numbers that are none: NaN, +infinity, and whatever is in a row
    without any finite number. A masked logit, -infinity among others that are finite, is a number like any other.
    """
    import numpy as np

    one, other = numbers(wrong), numbers(expected)
    return int(other.size - np.count_nonzero((one == other) & ~_hollow(other)))


def place_of(name: str) -> str:
    """What the name of an artefact has in common with those of other places: all but its numbers."""
    return re.sub(r"\d+", "#", name)


def places_like(name: str, names: Iterable[str]) -> list[str]:
    """The names of other places than this one, in the order of their numbers; only so many are tried."""
    found = [other for other in names if other != name and place_of(other) == place_of(name)]
    return sorted(found, key=lambda other: [int(one) for one in re.findall(r"\d+", other)])[:OTHERS]


# -- of values of events, which are numbers or nested lists of them ---------------------------------------------------


def try_values(expected: Any, others: Sequence[Any], tolerance: Tolerance) -> Needles:
    """Try needles on lists of numbers, as JSON holds them; needs no NumPy.

    Args:
        expected: the right one.
        others: what was reported under the same name at other times.
        tolerance: what is allowed.

    Raises:
        TypeError: it is not numbers.
    """
    shape = compare_values(expected, expected, tolerance).shape
    flat = list(_flat(expected))
    if not any(isinstance(one, float) for one in flat):
        return Needles(elements=0, scale=None, constant=False, tried=[])
    tried: list[Needle] = []
    if len(flat) >= LEAST:
        for what, wrong in _wrong_values(expected, shape, others):
            found = compare_values(wrong, expected, tolerance)
            passes = not found.complaint(tolerance)
            tried.append(Needle(what=what, telling=found.differing, beyond=found.beyond, passes=passes))
            if tried[-1].is_refused:
                break
    scale = float(max(abs(one) for one in flat))
    return Needles(elements=len(flat), scale=scale, constant=len(set(flat)) == 1, tried=tried)


def _wrong_values(expected: Any, shape: Sequence[int], others: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for axis in reversed(range(len(shape))):
        by = shape[axis] // 2
        rolled = _rolled(expected, axis, by)
        if by and rolled != expected:
            yield f"rolled by {by} along axis {axis}", rolled
    tried = 0
    for number, other in enumerate(others):
        try:
            found = compare_values(other, expected, Tolerance())
        except TypeError:
            continue
        if found.shape == found.expected_shape and 2 * found.differing > found.elements:
            tried += 1
            yield f"report {number}", other
        if tried == OTHERS:
            return


def _rolled(values: Any, axis: int, by: int) -> Any:
    if axis:
        return [_rolled(one, axis - 1, by) for one in values]
    return [*values[len(values) - by :], *values[: len(values) - by]]


def _flat(values: Any) -> Iterator[Number]:
    if isinstance(values, list):
        for one in values:
            yield from _flat(one)
    else:
        yield values
