"""How far two numbers may lie apart, and what two arrays differ by.

A tolerance is exact: the answer at the limit depends on no rounding of ours. A comparison is small
enough for a record, and judged again without the arrays.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, Strict, ValidationError

from harness.forms.model import Model
from harness.forms.strict_json import JSON

Number = int | float
# Format of `struct` for the bits of a float, by dtype. The upper half of a float32's bits are a
# bfloat16.
BITS = {
    "float64": ("<d", "<q"),
    "float32": ("<f", "<i"),
    "bfloat16": ("<f", "<i"),
    "float16": ("<e", "<h"),
}


class Tolerance(NamedTuple):
    """What is allowed between a number and the one that is expected.

    A pair is within where |found - expected| <= atol + rtol * |expected|, or where at most `ulp`
    numbers of its dtype lie from one to the other. Both signs of zero are the same number. NaN and
    infinities are within nothing, except their like where `nonfinite` allows it.

    Attributes:
        atol: absolute tolerance.
        rtol: relative tolerance, of the expected number.
        ulp: units in the last place; None where they are not asked.
        nonfinite: whether NaN against NaN, and an infinity against the same one, count as equal.
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulp: int | None = None
    nonfinite: bool = False

    def allows(self, found: Number, expected: Number, *, dtype: str = "float64") -> bool:
        """Return whether a number is within the tolerance, in exact arithmetic.

        Args:
            found: the number.
            expected: the number it is compared with.
            dtype: what both are numbers of, for `ulp`.
        """
        if not (math.isfinite(found) and math.isfinite(expected)):
            return self.nonfinite and kind(found) == kind(expected)
        apart = abs(Fraction(found) - Fraction(expected))
        if apart <= Fraction(self.atol) + Fraction(self.rtol) * abs(Fraction(expected)):
            return True
        return self.ulp is not None and ulps(found, expected, dtype=dtype) <= self.ulp

    def excess(self, found: Number, expected: Number, *, dtype: str = "float64") -> float:
        """Return the distance in units of what is allowed: 1.0 lies at the limit, infinity beyond
        any.

        For pictures and to find the worst; whether a pair is within is `allows`' to say.
        """
        if not (math.isfinite(found) and math.isfinite(expected)):
            return 0.0 if self.nonfinite and kind(found) == kind(expected) else math.inf
        apart = abs(Fraction(found) - Fraction(expected))
        share = _share(apart, Fraction(self.atol) + Fraction(self.rtol) * abs(Fraction(expected)))
        if self.ulp is not None:
            share = min(
                share, _share(Fraction(ulps(found, expected, dtype=dtype)), Fraction(self.ulp))
            )
        return share

    def __str__(self) -> str:
        parts = [
            f"{name} {value:g}"
            for name, value in (("atol", self.atol), ("rtol", self.rtol))
            if value
        ]
        parts += [] if self.ulp is None else [f"{self.ulp} ulp"]
        return (
            " or ".join([" + ".join(parts[:2]), *parts[2:]])
            if len(parts) > 2
            else ", ".join(parts) or "exactly"
        )


def _share(apart: Fraction, allowed: Fraction) -> float:
    if not apart:
        return 0.0
    try:
        return float(apart / allowed)
    except (ZeroDivisionError, OverflowError):
        return math.inf


def ulps(found: Number, expected: Number, *, dtype: str) -> int:
    """How many numbers of a dtype lie from one to the other; of whole numbers, their difference.

    Raises:
        KeyError: floats of a dtype that has no such steps here.
    """
    if isinstance(found, int) and isinstance(expected, int):
        return abs(found - expected)
    return abs(_ordinal(float(found), dtype) - _ordinal(float(expected), dtype))


def _ordinal(value: float, dtype: str) -> int:
    """Return the place of a float among all of its dtype, by size; both zeros have the same."""
    real, whole = BITS[dtype]
    try:
        packed = struct.pack(real, value)
    except OverflowError:  # of another dtype, and larger than this one holds
        packed = struct.pack(real, math.copysign(math.inf, value))
    bits: int = struct.unpack(whole, packed)[0]
    width = 8 * struct.calcsize(whole)
    place = bits if bits >= 0 else -(bits + (1 << (width - 1)))
    return int(place / 0x10000) if dtype == "bfloat16" else place


def kind(value: Number) -> str:
    """`finite`, `NaN`, `Infinity` or `-Infinity`."""
    if math.isfinite(value):
        return "finite"
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


POSITIONS = 512
"""The excess is kept for so many stretches of positions at most: enough for a picture."""

Named = Literal["NaN", "Infinity", "-Infinity"]
Count = Annotated[int, Field(ge=0)]


class Worst(Model):
    """The pair that lies furthest apart, in units of the tolerance.

    Attributes:
        index: its place in the array, an axis each.
        found: the number there. JSON has no NaN and no infinities, so these are named.
        expected: the number it was compared with.
    """

    index: list[Count]
    found: int | float | Named
    expected: int | float | Named

    @property
    def pair(self) -> tuple[Number, Number]:
        """Both as numbers."""
        return number(self.found), number(self.expected)

    @property
    def difference(self) -> float:
        """How far they are apart; NaN where that has no answer."""
        found, expected = self.pair
        return (
            float(abs(found - expected)) if kind(found) == kind(expected) == "finite" else math.nan
        )


class Told(Model):
    """What two arrays differ by, as an event of the harness tells it."""

    def values(self) -> dict[str, JSON]:
        """As the values of an event."""
        found: dict[str, JSON] = self.model_dump(mode="json")
        return found

    @classmethod
    def of(cls, values: Mapping[str, JSON]) -> Self | None:
        """Read back what `values` gave; None where an event holds something else."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError:
            return None


class Comparison(Told):
    """Two arrays compared, element by element.

    Attributes:
        shape: of what was found; empty for a single number.
        expected_shape: of what it was compared with. Where the two differ nothing else was
            compared.
        dtype: of what was found, such as `float32`; `json` for a value of an event.
        expected_dtype: of what it was compared with.
        elements: how many pairs were compared.
        differing: how many of them are not the same number.
        beyond: how many of them lie outside of the tolerance.
        unbounded: how many of these hold a NaN or an infinity, so that nobody can say how far apart
            they are.
        signed_zeros: pairs of zeros of different signs, which are the same number.
        nonfinite: NaN and infinities found, and expected.
        worst: the pair that lies furthest apart; None where all are the same.
        stretch: how many positions of the first axis each number of `excess` stands for.
        excess: the largest distance in each stretch, in units of the tolerance; None is beyond any
            tolerance.
    """

    shape: list[Count]
    expected_shape: list[Count]
    dtype: str
    expected_dtype: str
    elements: Count = 0
    differing: Count = 0
    beyond: Count = 0
    unbounded: Count = 0
    signed_zeros: Count = 0
    # The pair alone: JSON has lists.
    nonfinite: Annotated[tuple[Count, Count], Strict(False)] = (0, 0)
    worst: Worst | None = None
    stretch: Annotated[int, Field(ge=1)] = 1
    excess: list[float | None] = Field(default_factory=list, max_length=POSITIONS)

    @property
    def share(self) -> float | None:
        """Largest distance in units of the tolerance, over all elements; None beyond any."""
        if None in self.excess:
            return None
        return max((one for one in self.excess if one is not None), default=0.0)

    def contradiction(self, tolerance: Tolerance) -> str:
        """Why these numbers cannot all be true of two arrays; empty where they can."""
        if self.shape != self.expected_shape:
            return "shapes differ, and yet elements were compared" if self.elements else ""
        if self.elements != math.prod(self.shape):
            return f"{self.elements} elements were compared of an array of {math.prod(self.shape)}"
        if not self.unbounded <= self.beyond <= self.differing <= self.elements:
            return "more elements are beyond the tolerance than differ"
        if self.unbounded > sum(self.nonfinite):
            return "more pairs are not finite than numbers are"
        if (self.worst is None) != (self.differing == 0):
            return "the worst pair is missing, or is present although nothing differs"
        if self.worst is None:
            return ""
        index = self.worst.index
        if len(index) != len(self.shape) or any(
            one >= size for one, size in zip(index, self.shape, strict=True)
        ):
            return "the worst pair is outside the array"
        dtype = coarser(self.dtype, self.expected_dtype)
        if tolerance.allows(*self.worst.pair, dtype=dtype) != (self.beyond == 0):
            return "the worst pair contradicts the count of elements beyond the tolerance"
        return ""

    def complaint(
        self, tolerance: Tolerance, *, dtype_matters: bool = True, empty: bool = False
    ) -> str:
        """Why the arrays are not close; empty where they are."""
        if self.shape != self.expected_shape:
            return f"its shape is {_shape(self.shape)}, expected {_shape(self.expected_shape)}"
        if dtype_matters and self.dtype != self.expected_dtype:
            return (
                f"its dtype is {self.dtype}, expected {self.expected_dtype} (dtype: any lets them"
                " differ)"
            )
        if contradiction := self.contradiction(tolerance):
            return f"the comparison contradicts itself: {contradiction}"
        if not self.elements and not empty:
            return (
                "it is empty, and agreeing on nothing is not agreement (empty: allowed permits it)"
            )
        if self.elements and min(self.nonfinite) == self.elements and not self.beyond and not empty:
            return (
                "no element is finite, and agreeing on nothing is not agreement (empty: allowed"
                " permits it)"
            )
        return self.description(tolerance) if self.beyond else ""

    def description(self, tolerance: Tolerance) -> str:
        """Return the worst pair and its place, how many are beyond the tolerance, and the
        tolerance.
        """
        if self.shape != self.expected_shape:
            return f"shape {_shape(self.shape)}, expected {_shape(self.expected_shape)}"
        zeros = (
            f", {self.signed_zeros} of them zeros of different signs" if self.signed_zeros else ""
        )
        if self.worst is None:
            return (
                f"{self.elements} of {self.elements} elements equal{zeros}"
                if self.shape
                else "the same number"
            )
        found, expected = self.worst.pair
        apart = self.worst.difference
        if not self.beyond and self.shape:
            return (
                f"worst difference {apart:.4g}, at {_shape(self.worst.index)};"
                f" {'its element' if self.elements == 1 else f'all {self.elements} elements'} within"
                f" {tolerance}"
            )
        off = "not finite" if math.isnan(apart) else f"off by {apart:.4g}"
        place = f" at {_shape(self.worst.index)}" if self.shape else ""
        many = (
            f"{self.beyond} of {self.elements} elements beyond {tolerance}"
            if self.elements > 1
            else f"allowed: {tolerance}"
        )
        return f"found {_text(found)}, expected {_text(expected)} ({off}{place}; {many})"


def coarser(*dtypes: str) -> str:
    """Return the dtype whose steps are counted as ulp: of two floats the one with fewer digits."""
    return next((name for name in ("bfloat16", "float16", "float32") if name in dtypes), "float64")


class ComparisonTally:
    """Counts pairs into a comparison, in the order of the array (C order)."""

    def __init__(
        self, shape: Sequence[int], tolerance: Tolerance, *, dtype: str = "float64"
    ) -> None:
        self._shape = list(shape)
        self.tolerance = tolerance
        self.dtype = dtype
        size = self._shape[0] if self._shape else 1
        self.stretch = max(1, -(-size // POSITIONS))
        self._row = max(1, math.prod(self._shape[1:]))
        self.excess = [0.0] * -(-size // self.stretch)
        self.elements = self.differing = self.beyond = self.unbounded = self.signed_zeros = 0
        self.nonfinite = [0, 0]
        self._worst: tuple[float, int, Number, Number] | None = None

    def pair(self, found: Number, expected: Number) -> None:
        """Count the next pair."""
        place = self.elements
        self.elements = self.elements + 1
        for side, value in enumerate((found, expected)):
            self.nonfinite[side] += not math.isfinite(value)
        if found == expected:
            self.signed_zeros += found == 0 and math.copysign(1, found) != math.copysign(
                1, expected
            )
        same = found == expected and math.isfinite(found)
        if same or (self.tolerance.nonfinite and kind(found) == kind(expected) != "finite"):
            return
        self.differing += 1
        self.beyond += not self.tolerance.allows(found, expected, dtype=self.dtype)
        self.unbounded += not (math.isfinite(found) and math.isfinite(expected))
        self.worse(place, self.tolerance.excess(found, expected, dtype=self.dtype), found, expected)

    def worse(self, place: int, excess: float, found: Number, expected: Number) -> None:
        """Note a differing pair at a place in C order, if it is the worst so far, and its stretch's
        excess.
        """
        stretch = self.stretch_of(place)
        self.excess[stretch] = max(self.excess[stretch], excess)
        if self._worst is None or excess > self._worst[0]:
            self._worst = excess, place, found, expected

    def stretch_of(self, place: Any) -> Any:
        """Return the stretch that a place, or an array of places, in C order lies in."""
        return place // self._row // self.stretch

    def comparison(self, *, dtype: str, expected_dtype: str) -> Comparison:
        """Return what was counted."""
        worst = None
        if self._worst is not None:
            _, place, found, expected = self._worst
            worst = Worst(
                index=list(_index(place, self._shape)), found=named(found), expected=named(expected)
            )
        return Comparison(
            shape=self._shape,
            expected_shape=self._shape,
            dtype=dtype,
            expected_dtype=expected_dtype,
            elements=self.elements,
            differing=self.differing,
            beyond=self.beyond,
            unbounded=self.unbounded,
            signed_zeros=self.signed_zeros,
            nonfinite=(self.nonfinite[0], self.nonfinite[1]),
            worst=worst,
            stretch=self.stretch,
            excess=[_rounded(excess) for excess in self.excess] if self.differing else [],
        )


def compare_values(found: JSON, expected: JSON, tolerance: Tolerance) -> Comparison:
    """Compare numbers, or lists of numbers nested to the same depth, as JSON holds them.

    Raises:
        TypeError: one of the two is not that; the message says which and why.
    """
    shapes = [
        _shape_of(value, word)
        for value, word in ((found, "the value"), (expected, "what it is compared with"))
    ]
    if shapes[0] != shapes[1]:
        return Comparison(
            shape=shapes[0], expected_shape=shapes[1], dtype="json", expected_dtype="json"
        )
    tally = ComparisonTally(shapes[0], tolerance)
    for one, other in zip(_numbers(found), _numbers(expected), strict=True):
        tally.pair(one, other)
    return tally.comparison(dtype="json", expected_dtype="json")


def _shape_of(value: JSON, word: str) -> list[int]:
    """Shape of a number or of nested lists of numbers."""
    shape: list[int] = []
    layer: list[JSON] = [value]
    while layer and isinstance(layer[0], list):
        lengths = {len(one) if isinstance(one, list) else -1 for one in layer}
        if len(lengths) != 1:
            raise TypeError(f"{word} is not an array: its lists differ in length")
        shape.append(lengths.pop())
        layer = [below for one in layer for below in one]
    for one in layer:
        if isinstance(one, bool) or not isinstance(one, int | float):
            raise TypeError(
                f"{word} is not a number or a list of numbers: it contains {_kind_of(one)}"
            )
    return shape


def _kind_of(value: JSON) -> str:
    names = {
        bool: "true or false",
        str: "a string",
        type(None): "null",
        dict: "a mapping",
        list: "a list",
    }
    return names[type(value)]


def _numbers(value: JSON) -> Iterator[Number]:
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    else:
        yield value


def _index(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        place, rest = divmod(place, size)
        index.insert(0, rest)
    return tuple(index)


def named(value: Number) -> Number | Named:
    """Return a number as JSON can hold it: NaN and infinities by name."""
    found: str = kind(value)
    return value if found == "finite" else found  # type: ignore[return-value]


def number(value: Number | str) -> Number:
    """Read back what `named` gave."""
    return float(value) if isinstance(value, str) else value


def _text(value: Number) -> str:
    if isinstance(value, float) and kind(value) == "finite":
        return f"{value:.9g}"
    return str(named(value))


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _rounded(excess: float) -> float | None:
    """Round to four digits; JSON has no infinity."""
    return float(f"{excess:.4g}") if math.isfinite(excess) else None
