"""What a fault makes the rank itself do at its gate. The order comes with the answer to the gate.

An order is one JSON object: the fault's id and kind, and what the kind's `inside` gave. So nothing in a rank knows of a
fault before it strikes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from harness.forms.strict_json import JSON
from harness.rank.inside import load


def obey(order: bytes, *, files: Mapping[str, str], emit: Callable[[str, dict[str, JSON]], None]) -> None:
    """Do what the order says, in the thread that emitted the event.

    Args:
        order: one JSON object.
        files: kind of fault to the file whose function `inside` carries out its orders.
        emit: emits an event.

    Raises:
        Exception: what the fault raises.
    """
    values = json.loads(order)
    load(files[values["kind"]]).inside(values, emit)
