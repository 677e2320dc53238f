"""`torch-settings` inside a rank. Standard library only.

Torch is asked where the subject has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def inside(order: Mapping[str, Any], emit: Callable[[str, dict[str, Any]], None]) -> None:
    """Set what the order names, and tell what torch says of it before and after.

    Args:
        order: what `TorchSettingsFault.inside` gave, and the fault's id as `fault`.
        emit: emits an event.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        emit("fault.torch-set", {"fault": order["fault"], "before": None, "now": None})
        return
    before = _settings(torch)
    wanted = order["wanted"]
    if "threads" in wanted:
        torch.set_num_threads(wanted["threads"])
    if "dtype" in wanted:
        torch.set_default_dtype(getattr(torch, wanted["dtype"].removeprefix("torch.")))
    emit("fault.torch-set", {"fault": order["fault"], "before": before, "now": _settings(torch)})


def _settings(torch: Any) -> dict[str, Any]:
    return {"threads": torch.get_num_threads(), "dtype": str(torch.get_default_dtype())}
