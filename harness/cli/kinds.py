"""The lists of kinds that `rankproof faults`, `checks` and `backends` print."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from harness.cli import PASS
from harness.forms.text import visible
from harness.plugins import PluginFailed, Registry


def print_kinds(
    registry: Registry[Any], lines: Callable[[Any], Iterable[str]], *, about: Callable[[Any], str] = lambda _: ""
) -> int:
    """Print every kind with what its lines say, where it is from another distribution, and what cannot be used.

    Args:
        registry: of the kinds.
        lines: makes those of one kind.
        about: what follows its name.
    """
    for name, kind in registry.items():
        print(f"{name}{about(kind)}")
        try:
            with registry.guarded(name):
                found = list(lines(kind))
        except PluginFailed as error:
            found = [visible(str(error), 400)]
        for line in found:
            print(f"    {line}")
        if name in registry.plugins:
            plugin = registry.plugins[name]
            print(f"    from:  {plugin.distribution} {plugin.version}, sha256 {plugin.sha256}")
    for name, reason in registry.broken.items():
        print(f"{name}\n    {visible(reason, 400)}")
    return PASS


def on_this_machine(refusal: object) -> str:
    """The line that says whether a kind can be used here."""
    return f"here:  {f'no: {refusal}' if refusal else 'yes'}"
