"""Ranks that number their steps."""

from typing import Any


def count(context: Any, *, resets: bool) -> None:
    """Three steps; the broken code begins anew at the last one."""
    context.emit("steps.begin")
    for number in (0, 1, 0 if resets else 2):
        context.emit("step", number=number)
