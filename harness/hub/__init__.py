"""A model hub on this machine: the hub's protocol, fault rules as data, and a log of every request.

Usable alone: of the harness nothing but its ground floor, `harness.forms`, is imported. See
docs/hub.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.hub.access import Access, count, read_log
    from harness.hub.hub import Hub
    from harness.hub.problem import HubError, LogLost, RulesError
    from harness.hub.rules import Rules, load_rules, parse_rules
    from harness.hub.wire import Limits

__all__ = [
    "Access",
    "Hub",
    "HubError",
    "Limits",
    "LogLost",
    "Rules",
    "RulesError",
    "count",
    "load_rules",
    "parse_rules",
    "read_log",
]

# Taken from their modules when asked for: a scenario is read without a server's libraries.
_HOMES = {
    "access": ("Access", "count", "read_log"),
    "hub": ("Hub",),
    "problem": ("HubError", "LogLost", "RulesError"),
    "rules": ("Rules", "load_rules", "parse_rules"),
    "wire": ("Limits",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"harness.hub.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
