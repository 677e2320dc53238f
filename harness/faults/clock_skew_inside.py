"""`clock-skew` inside a rank: Python's functions tell another time.

Standard library only.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

Right = dt.datetime


def inside(order: Mapping[str, Any], emit: Callable[[str, dict[str, Any]], None]) -> None:
    """Replace them for the rest of this process' life, and tell which.

    Args:
        order: what `ClockSkewFault.inside` gave, `offset` in nanoseconds, and the fault's id as
            `fault`.
        emit: emits an event.
    """
    offset: int = order["offset"]
    before = time.time_ns()
    functions = skew(offset)
    after = time.time_ns()
    emit(
        "fault.skewed",
        {"fault": order["fault"], "functions": functions, "before": before, "after": after},
    )


def skew(offset: int) -> list[str]:
    """Put other functions in the place of the standard library's.

    Their names, as modules are asked for them.
    """
    seconds = offset / 1e9
    right = {
        name: getattr(time, name) for name in ("time", "time_ns", "localtime", "gmtime", "ctime")
    }

    def of_now(name: str) -> Callable[..., Any]:
        # Given a moment, these convert it; given none, they ask for the time.
        def function(moment: float | None = None) -> Any:
            return right[name](right["time"]() + seconds if moment is None else moment)

        return function

    replaced: dict[str, Callable[..., Any]] = {
        "time": lambda: right["time"]() + seconds,
        "time_ns": lambda: right["time_ns"]() + offset,
        **{name: of_now(name) for name in ("localtime", "gmtime", "ctime")},
    }
    for name, function in replaced.items():
        setattr(time, name, function)
    return [
        *(f"time.{name}" for name in replaced),
        *_datetimes(dt.timedelta(microseconds=offset / 1000)),
    ]


class Skewed(Right):
    """`datetime.datetime` of a wall clock that is wrong."""

    off = dt.timedelta()

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Self:
        return cls._of(Right.now(tz))

    @classmethod
    def utcnow(cls) -> Self:
        return cls._of(Right.now(dt.UTC).replace(tzinfo=None))

    @classmethod
    def today(cls) -> Self:
        return cls.now()

    @classmethod
    def _of(cls, moment: dt.datetime) -> Self:
        moved = moment + Skewed.off
        return cls.combine(moved.date(), moved.timetz())


def _datetimes(delta: dt.timedelta) -> list[str]:
    """Put it wherever a module has the right one by its name."""
    Skewed.off = delta
    Skewed.__name__ = Skewed.__qualname__ = "datetime"
    Skewed.__module__ = "datetime"
    replaced = []
    for name, module in list(sys.modules.items()):
        if getattr(module, "__dict__", {}).get("datetime") is Right:
            vars(module)["datetime"] = Skewed
            replaced.append(f"{name}.datetime")
    return sorted(replaced)[:20]
