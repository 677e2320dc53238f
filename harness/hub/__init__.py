"""Model hub on this machine: the hub's protocol, fault rules as data, and a log of every request.

Usable alone: of the harness nothing but its ground floor, `harness.forms`, is imported. See
docs/hub.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.forms.problem import Problem
    from harness.hub.access import Access, count, read_log
    from harness.hub.hub import Hub
    from harness.hub.request import Limits
    from harness.hub.rules import Rules, load_rules, parse_rules

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


class HubError(Exception):
    """Refusal to start, or the reason why the hub had to stop; the message says what, where and
    what to do.
    """


class RulesError(HubError):
    """Refusal of a rules file.

    ``problems`` holds one line for each mistake, ``file:line:column: key: message``, in the order
    of the file.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(map(str, problems))
        super().__init__("\n".join(self.problems))


class LogLost(HubError):
    """Failure to write the access log.

    The hub stopped, because an answer without its line is not evidence.
    """


# Taken from their modules when asked for: a scenario is read without a server's libraries.
_HOMES = {
    "access": ("Access", "count", "read_log"),
    "hub": ("Hub",),
    "request": ("Limits",),
    "rules": ("Rules", "load_rules", "parse_rules"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"harness.hub.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
