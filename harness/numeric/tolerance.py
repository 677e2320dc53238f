"""How far two numbers may lie apart.

Exact: the answer at the limit depends on no rounding of ours.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple

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
        """Whether a number is within the tolerance, in exact arithmetic.

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
        """The distance in units of what is allowed: 1.0 lies at the limit, infinity beyond any.

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
    """The place of a float among all of its dtype, by size; both zeros have the same."""
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
