"""Quantities with units, as every file and the command line write them: one grammar for all."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import GetPydanticSchema, WithJsonSchema
from pydantic_core import core_schema

from harness.forms.problem import complaint
from harness.forms.strict_json import JSON

SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MEANT = {"m": "min", "day": "d", "days": "d"}
NUMBER = r"(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,9})?"
"""As the reader of YAML knows numbers: no leading zero, and digits behind a full stop."""

DURATION_PATTERN = rf"^{NUMBER}(ms|s|min|h|d)$"
SIZE_PATTERN = rf"^{NUMBER}(B|KiB|MiB|GiB|TiB)$"
PERCENT_PATTERN = rf"^{NUMBER}%$"

T = TypeVar("T")


def written(
    parse: Callable[[Any], T], schema: dict[str, JSON]
) -> tuple[GetPydanticSchema, WithJsonSchema]:
    """Make a field read by ``parse`` alone, with a JSON Schema of its own."""

    def validator(_source: Any, _handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(parse)

    return GetPydanticSchema(validator), WithJsonSchema(schema)


def _quantity(value: Any, units: dict[str, JSON], wanted: str, example: str) -> tuple[Decimal, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise complaint(
            f"must have a unit {wanted}", suggestion=None if value < 0 else f"{value}{example}"
        )
    match = re.fullmatch(rf"({NUMBER}) ?([A-Za-z%]*)", value) if isinstance(value, str) else None
    if match is None:
        bare = re.fullmatch(rf"0+({NUMBER}[A-Za-z%]+)", value) if isinstance(value, str) else None
        raise complaint(f"must be a number with a unit {wanted}", suggestion=bare and bare[1])
    number = match[1]
    unit = match[2]
    if unit in units and " " not in match[0]:
        return Decimal(number), unit
    if not unit:
        raise complaint(f"must have a unit {wanted}", suggestion=f"{number}{example}")
    near = _near_unit(unit, list(units))
    raise complaint(f"must be a number with a unit {wanted}", suggestion=near and f"{number}{near}")


def _near_unit(unit: str, units: list[str]) -> str | None:
    if "KiB" in units:
        letter = unit[0].upper()
        return next((name for name in units if name[0] == letter), None)
    lowered = unit.lower()
    if lowered in units:
        return lowered
    begun = (name for name in ("ms", "min", "h", "s") if lowered.startswith(name))
    near = next(begun, _MEANT.get(lowered))
    return near if near in units else None


def duration(value: Any) -> float:
    """Read "200ms", "60s", "2min", "1h" or "7d" as seconds; a bare number is refused."""
    return _seconds(value, "60s")


def age(value: Any) -> float:
    """Read a duration that is more than nothing, as seconds; most are days."""
    if not (seconds := _seconds(value, "7d")):
        raise complaint("must be more than 0")
    return seconds


def _seconds(value: Any, example: str) -> float:
    number, unit = _quantity(
        value, SECONDS, f"(ms, s, min, h or d), for example {example}", example[-1]
    )
    return float(number * SECONDS[unit])


def size(value: Any) -> int:
    """Read "100B", "512KiB", "20MiB" or "2GiB" as bytes; a bare number is refused."""
    number, unit = _quantity(value, BYTES, "(B, KiB, MiB, GiB or TiB), for example 2GiB", "B")
    count = number * BYTES[unit]
    if count != int(count):
        raise complaint("must be a whole number of bytes")
    return int(count)


def percent_of(number: float) -> str:
    """Return what a number without a unit means in percent: a part of one up to 1, percent above.
    0.3 and 30 are 30.
    """
    percent = Decimal(str(number)) * (100 if number <= 1 else 1)
    return f"{percent.normalize():f}"


def percent(value: Any) -> float:
    """Read "5%" as 0.05; more than 0% and less than 100%."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 100:
        raise complaint("must have a unit (%), for example 5%", suggestion=f"{percent_of(value)}%")
    number, _ = _quantity(value, {"%": None}, "(%), for example 5%", "%")
    if not 0 < number < 100:
        raise complaint("must be more than 0% and less than 100%")
    return float(number / 100)


Duration = Annotated[float, *written(duration, {"type": "string", "pattern": DURATION_PATTERN})]
Age = Annotated[float, *written(age, {"type": "string", "pattern": DURATION_PATTERN})]
Size = Annotated[int, *written(size, {"type": "string", "pattern": SIZE_PATTERN})]
Percent = Annotated[float, *written(percent, {"type": "string", "pattern": PERCENT_PATTERN})]
