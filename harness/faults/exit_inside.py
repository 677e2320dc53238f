"""`exit` inside a rank: the process ends at once. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

# A subject may replace os._exit; the fault must end the rank all the same.
from os import _exit
from typing import Any


def inside(order: Mapping[str, Any], emit: Callable[[str, dict[str, Any]], None]) -> None:
    """Exit with the code of the order, without cleaning up; never returns.

    Args:
        order: what `ExitFault.inside` gave, and the fault's id as `fault`.
        emit: emits an event; there is nothing to say.
    """
    del emit
    _exit(order["code"])
