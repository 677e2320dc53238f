"""What a fault makes the rank itself do at its gate: raise, or exit. The order comes with the answer to the gate.

An order is one JSON object: `{"fault": ID, "raise": TYPE, "message": TEXT}` or `{"fault": ID, "exit": CODE}`. So
nothing in a rank knows of a fault before it strikes.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable

# A subject may replace os._exit; the fault must end the rank all the same.
from os import _exit

from harness.forms.strict_json import JSON


def obey(order: bytes, tell: Callable[[str, dict[str, JSON]], None]) -> None:
    """Do what the order says, in the thread that emitted the event.

    Args:
        order: one JSON object.
        tell: emits an event. `fault.raised` goes out before the exception does: a subject may catch that.

    Raises:
        Exception: the built-in exception the order names.
    """
    found = json.loads(order)
    if "exit" in found:
        _exit(found["exit"])
    tell("fault.raised", {"fault": found["fault"], "error": found["raise"], "message": found["message"]})
    raise getattr(builtins, found["raise"])(found["message"])
