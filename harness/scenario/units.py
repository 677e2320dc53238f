"""Quantities with units, shares, and sets of ranks, as a scenario writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

from pydantic import GetPydanticSchema, WithJsonSchema
from pydantic_core import core_schema

from harness.scenario.closed import complaint
from harness.scenario.problem import closest

SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600)}
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MEANT = {"sec": "s", "m": "min", "mins": "min", "hr": "h", "k": "KiB", "m_": "MiB"}
_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"

DURATION_PATTERN = rf"^{_NUMBER}(ms|s|min|h)$"
AGE_PATTERN = rf"^{_NUMBER}(ms|s|min|h|d)$"
SIZE_PATTERN = rf"^{_NUMBER}(B|KiB|MiB|GiB|TiB)$"
PERCENT_PATTERN = rf"^{_NUMBER}%$"
SHARE_PATTERN = rf"^(every|>={_NUMBER}%)$"

T = TypeVar("T")


def _written(parse: Callable[[Any], T], schema: dict[str, Any]) -> tuple[GetPydanticSchema, WithJsonSchema]:
    """Make a field read by ``parse`` alone, with a JSON Schema of its own."""

    def validator(_source: Any, _handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(parse)

    return GetPydanticSchema(validator), WithJsonSchema(schema)


def _quantity(value: Any, units: dict[str, Any], wanted: str, example: str) -> tuple[Decimal, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise complaint(f"must carry a unit ({wanted})", suggestion=None if value < 0 else f"{value}{example}")
    match = re.fullmatch(rf"({_NUMBER}) ?([A-Za-z%]*)", value) if isinstance(value, str) else None
    if match is None:
        raise complaint(f"must be a number with a unit ({wanted})")
    number, unit = match[1], match[3]
    if unit in units and " " not in match[0]:
        return Decimal(number), unit
    if not unit:
        raise complaint(f"must carry a unit ({wanted})", suggestion=f"{number}{example}")
    near = _near_unit(unit, list(units))
    raise complaint(f"must be a number with a unit ({wanted})", suggestion=near and f"{number}{near}")


def _near_unit(unit: str, units: list[str]) -> str | None:
    if "KiB" in units:
        letter = unit[0].upper()
        return next((name for name in units if name[0] == letter), None)
    lowered = unit.lower()
    if lowered in units:
        return lowered
    return next((name for name in ("ms", "min", "h", "s") if lowered.startswith(name)), None) or _MEANT.get(lowered)


def duration(value: Any) -> float:
    """Read "200ms", "60s", "2min" or "1h" as seconds; a bare number is refused."""
    number, unit = _quantity(value, SECONDS, "ms, s, min or h, like 60s", "s")
    return float(number * SECONDS[unit])


def age(value: Any) -> float:
    """Read a duration that may also be days, like "7d", as seconds."""
    units = {**SECONDS, "d": Decimal(86400)}
    number, unit = _quantity(value, units, "min, h or d, like 7d", "d")
    if not number:
        raise complaint("must be more than 0")
    return float(number * units[unit])


def size(value: Any) -> int:
    """Read "100B", "512KiB", "20MiB" or "2GiB" as bytes; a bare number is refused."""
    number, unit = _quantity(value, BYTES, "B, KiB, MiB, GiB or TiB, like 2GiB", "B")
    count = number * BYTES[unit]
    if count != int(count):
        raise complaint("must come to a whole number of bytes")
    return int(count)


def percent(value: Any) -> float:
    """Read "5%" as 0.05; more than 0% and less than 100%."""
    number, _ = _quantity(value, {"%": None}, "%, like 5%", "%")
    if not 0 < number < 100:
        raise complaint("must be more than 0% and less than 100%")
    return float(number / 100)


@dataclass(frozen=True, slots=True)
class Share:
    """In how many of its trials the control must fail: all of them, or at least a share (for a race)."""

    every: bool
    at_least: float
    """0 < at_least <= 1; 1.0 where ``every``."""

    def __str__(self) -> str:
        return "every" if self.every else f">={self.at_least * 100:.10g}%"


EVERY_TRIAL = Share(every=True, at_least=1.0)


def share(value: Any) -> Share:
    """Read "every" or ">=20%"."""
    if value == "every":
        return EVERY_TRIAL
    if isinstance(value, str) and (match := re.fullmatch(rf">=({_NUMBER})%", value)):
        number = Decimal(match[1])
        if 0 < number <= 100:
            return Share(every=False, at_least=float(number / 100))
    bare = re.fullmatch(rf"[>= ]*({_NUMBER}) ?%", value) if isinstance(value, str) else None
    hint = f">={bare[1]}%" if bare else closest(value, ["every"])
    raise complaint('must be every, or a share of more than 0% and at most 100% like ">=20%"', suggestion=hint)


@dataclass(frozen=True, slots=True)
class RankSet:
    """A set of ranks that is known before the trial: every rank, every rank but 0, or a list."""

    which: Literal["every", "nonzero"] | tuple[int, ...]

    def of(self, size: int) -> tuple[int, ...]:
        """Return the ranks of a world of ``size``, ascending. Raises ValueError for a rank that this world lacks."""
        if self.which == "every":
            return tuple(range(size))
        if self.which == "nonzero":
            return tuple(range(1, size))
        ranks = sorted(self.which)
        if ranks[-1] >= size:
            raise ValueError(f"a world of {size} has no rank {ranks[-1]}")
        return tuple(ranks)

    def __str__(self) -> str:
        return self.which if isinstance(self.which, str) else f"[{', '.join(map(str, self.which))}]"


EVERY_RANK = RankSet("every")


def rank_set(value: Any) -> RankSet:
    """Read "every", "nonzero" or a list of distinct ranks from 0."""
    if value == "every":
        return EVERY_RANK
    if value == "nonzero":
        return RankSet("nonzero")
    wanted = "must be every, nonzero, or a list of ranks like [0, 2]"
    if not isinstance(value, list | tuple):
        hint = f"[{value}]" if type(value) is int and value >= 0 else closest(value, ["every", "nonzero"])
        raise complaint(wanted, suggestion=hint)
    if not value:
        raise complaint(f"is an empty list, so nothing would be asked of any rank; it {wanted}")
    seen: set[int] = set()
    for index, rank in enumerate(value):
        if type(rank) is not int or rank < 0:
            raise complaint("must be a rank: a whole number from 0", at=index)
        if rank in seen:
            raise complaint("is in the list twice; keep one", at=index)
        seen.add(rank)
    return RankSet(tuple(value))


_duration = _written(duration, {"type": "string", "pattern": DURATION_PATTERN})
_age = _written(age, {"type": "string", "pattern": AGE_PATTERN})
_size = _written(size, {"type": "string", "pattern": SIZE_PATTERN})
_percent = _written(percent, {"type": "string", "pattern": PERCENT_PATTERN})
_share = _written(share, {"type": "string", "pattern": SHARE_PATTERN})
_ranks = _written(
    rank_set,
    {
        "anyOf": [
            {"enum": ["every", "nonzero"]},
            {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True},
        ]
    },
)

Duration = Annotated[float, *_duration]
Age = Annotated[float, *_age]
Size = Annotated[int, *_size]
Percent = Annotated[float, *_percent]
ShareField = Annotated[Share, *_share]
Ranks = Annotated[RankSet, *_ranks]
