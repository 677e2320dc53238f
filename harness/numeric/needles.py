"""Needles: wrong arrays that a tolerance must not accept, tried by the harness itself.

An array is compared with others of its shape: itself rolled by half along an axis, and what was
kept elsewhere under the same name (of another prompt, of another layer). A tolerance that accepts
all of them shows nothing.

A mask is no number: where one side is masked and the other is not, no tolerance is exceeded,
however small it is. So only pairs of numbers count, and an array that has a mask is also tried with
its numbers rolled among themselves.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from harness.forms.model import Model
from harness.numeric.arrays import ArrayFile, numbers
from harness.numeric.comparison import Number, Told, Tolerance, compare_values

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
        telling: how many of its elements (of logits: positions) say anything: those that are
            another number than the right one, and those where the right one holds none that could
            be compared.
        beyond: how many of these lie beyond the tolerance.
        passes: whether the check, as it stands, would pass on it.
    """

    what: str
    telling: Count
    beyond: Count
    passes: bool

    @property
    def is_refused(self) -> bool:
        """Return whether the check tells it from the right one: it fails, by half of what says
        anything and more.
        """
        return not self.passes and 2 * self.beyond >= self.telling > 0


class Needles(Told):
    """What was tried with one array; nothing more once a needle was refused.

    Attributes:
        elements: how many floats it holds; 0 of anything else.
        scale: the largest magnitude among those that are finite; None where none is.
        constant: whether all of its elements are one number.
        hollow: how many are no number that could be compared: NaN, +infinity, or in a row without
            any finite number.
        tried: each needle, in order.
    """

    elements: Count
    scale: Annotated[float, Field(ge=0)] | None
    constant: bool
    hollow: Count = 0
    tried: list[Needle]

    @property
    def is_refused(self) -> bool:
        """Return whether one was refused."""
        return any(needle.is_refused for needle in self.tried)


class Extent(NamedTuple):
    """How many floats an array holds, their largest finite magnitude, whether all are one, and how
    many say nothing.
    """

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
    least = float(finite.min())
    most = float(finite.max())
    is_constant = least == most and finite.size == array.size
    return Extent(int(array.size), max(abs(least), abs(most)), is_constant, hollow)


def _hollow(array: Array) -> Array:
    """Where an array holds no number that could be compared."""
    import numpy as np

    found: Array = np.isnan(array) | np.isposinf(array)
    return found | ~np.isfinite(array).any(axis=-1, keepdims=True) if array.ndim else found


def wrong_ones(
    expected: ArrayFile, others: Mapping[str, ArrayFile]
) -> Iterator[tuple[str, ArrayFile]]:
    """Arrays of the same shape and dtype that are not the right one, each with where it is from.

    Args:
        expected: the right one, its mask as `unmasked` gives it.
        others: what was kept under such a name elsewhere.

    Raises:
        NotAnArray: one is not one.
    """
    import numpy as np

    head, array = expected.load()
    places = np.isfinite(numbers(expected))
    if not places.all():
        inner = array[places]
        by = inner.size // 2
        rolled = np.array(array)
        rolled[places] = np.roll(inner, by)
        if not _same(rolled, array).all():
            yield f"its numbers rolled by {by}, the mask in place", _file(expected.name, rolled)
    for axis in reversed(range(array.ndim)):
        # By 1 where the second half is the first once more.
        for by in dict.fromkeys((array.shape[axis] // 2, 1)):
            rolled = np.roll(array, by, axis)
            if not _same(rolled, array).all():
                yield f"rolled by {by} along axis {axis}", _file(expected.name, rolled)
                break
    for name, other in others.items():
        its, found = other.load()
        if (its.shape, its.dtype) == (head.shape, head.dtype) and 2 * int(
            _same(found, array).sum()
        ) < array.size:
            yield name, other


def unmasked(file: ArrayFile) -> ArrayFile:
    """An array with -infinity wherever a finite number stands for a mask, as -1e9 and the least
    float32 do.

    That is the number of the largest magnitude, where it is there more than once and lies further
    from all others than these lie from each other.

    Raises:
        NotAnArray: it is not one.
    """
    import numpy as np

    _, array = file.load()
    values = numbers(file)
    finite = (
        values[np.isfinite(values)].astype(np.float64) if values.dtype.kind == "f" else np.zeros(0)
    )
    if not finite.size:
        return file
    mask = finite[np.argmax(np.abs(finite))]
    rest = finite[finite != mask]
    if finite.size - rest.size < 2 or not rest.size:
        return file
    # halves, whose difference float64 holds
    least = rest.min() / 2
    most = rest.max() / 2
    if least == most or min(abs(mask / 2 - least), abs(mask / 2 - most)) <= most - least:
        return file
    found = np.array(array)
    found[values == mask] = 0xFF80 if values.dtype != array.dtype else -np.inf
    return _file(file.name, found)


def _file(name: str, array: Array) -> ArrayFile:
    import numpy as np

    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return ArrayFile(name, file.getvalue())


def _same(one: Array, other: Array) -> Array:
    import numpy as np

    equal: Array = (one == other) | (np.isnan(one) & np.isnan(other))
    return equal


def telling(wrong: ArrayFile, expected: ArrayFile) -> int:
    """How many elements of a wrong array say anything (`Needle.telling`).

    Those that are another number, and those that are none: NaN, +infinity, and whatever is in a row
    without any finite number. A masked element, -infinity among others that are finite, says
    nothing, on whichever side.
    """
    import numpy as np

    one = numbers(wrong)
    other = numbers(expected)
    compared = np.isfinite(one) & np.isfinite(other) & (one != other)
    return int(np.count_nonzero(compared | _hollow(other)))


def place_of(name: str) -> str:
    """Return what the name of an artefact has in common with those of other places: all but its
    numbers.
    """
    return re.sub(r"\d+", "#", name)


def places_like(name: str, names: Iterable[str]) -> list[str]:
    """The names of other places than this one, in the order of their numbers.

    Only so many are tried.
    """
    found = [other for other in names if other != name and place_of(other) == place_of(name)]
    return sorted(found, key=lambda other: [int(one) for one in re.findall(r"\d+", other)])[:OTHERS]


# -- of values of events, which are numbers or nested lists of them ----------------------------


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
    mask = _mask(flat)
    tried: list[Needle] = []
    if len(flat) >= LEAST:
        for what, wrong in _wrong_values(expected, shape, others, mask):
            passes = not compare_values(wrong, expected, tolerance).beyond
            pairs = [
                pair
                for pair in zip(_flat(wrong), flat, strict=True)
                if mask not in pair and pair[0] != pair[1]
            ]
            if not pairs:
                continue
            beyond = sum(not tolerance.allows(*pair) for pair in pairs)
            tried.append(Needle(what=what, telling=len(pairs), beyond=beyond, passes=passes))
            if tried[-1].is_refused:
                break
    scale = float(max(abs(one) for one in flat if one != mask))
    return Needles(elements=len(flat), scale=scale, constant=len(set(flat)) == 1, tried=tried)


def _wrong_values(
    expected: Any, shape: Sequence[int], others: Sequence[Any], mask: Number | None
) -> Iterator[tuple[str, Any]]:
    if mask is not None:
        inner = [one for one in _flat(expected) if one != mask]
        by = len(inner) // 2
        rolled = _filled(expected, iter(_rolled(inner, 0, by)), mask)
        if rolled != expected:
            yield f"its numbers rolled by {by}, the mask in place", rolled
    for axis in reversed(range(len(shape))):
        for by in dict.fromkeys((shape[axis] // 2, 1)):
            rolled = _rolled(expected, axis, by)
            if rolled != expected:
                yield f"rolled by {by} along axis {axis}", rolled
                break
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


def _mask(values: Sequence[Number]) -> Number | None:
    """Return the number that stands for a mask, as `unmasked` has it; None where there is none."""
    mask = max(values, key=abs)
    rest = [value for value in values if value != mask]
    if len(values) - len(rest) < 2 or not rest:
        return None
    least = min(rest) / 2
    most = max(rest) / 2
    return (
        None
        if least == most or min(abs(mask / 2 - least), abs(mask / 2 - most)) <= most - least
        else mask
    )


def _filled(values: Any, numbers: Iterator[Number], mask: Number) -> Any:
    """Lists with other numbers in the places that are not masked."""
    if isinstance(values, list):
        return [_filled(value, numbers, mask) for value in values]
    return values if values == mask else next(numbers)


def _rolled(values: Any, axis: int, by: int) -> Any:
    if axis:
        return [_rolled(value, axis - 1, by) for value in values]
    return [*values[len(values) - by :], *values[: len(values) - by]]


def _flat(values: Any) -> Iterator[Number]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values
