"""`raise` inside a rank: it reports what it raises, and raises it. Standard library only."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any


def inside(order: Mapping[str, Any], emit: Callable[[str, dict[str, Any]], None]) -> None:
    """Raise, in the thread that emitted the event.

    Args:
        order: what `RaiseFault.inside` gave, and the fault's id as `fault`.
        emit: emits an event. `fault.raised` goes out before the exception does: a subject may catch
            that.

    Raises:
        Exception: the built-in exception that the order names.
    """
    emit(
        "fault.raised",
        {"fault": order["fault"], "error": order["error"], "message": order["message"]},
    )
    raise getattr(builtins, order["error"])(order["message"])
