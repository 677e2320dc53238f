"""`rankproof faults`, `checks` and `backends`: the lists of kinds, those of plug-ins too."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from harness.backends import KINDS as BACKENDS
from harness.checks import KINDS as CHECKS
from harness.cli import PASS
from harness.faults import KINDS as FAULTS
from harness.forms.text import visible
from harness.plugins import PluginFailed, Registry

# What is printed of a kind, by the command that lists it.
LISTS: dict[str, tuple[Registry[Any], Callable[[Any], Iterable[str]]]] = {
    "faults": (
        FAULTS,
        lambda kind: (kind.does, f"needs: {kind.needs}", f"as in: {kind.example}", _here(kind.refusal())),
    ),
    "checks": (CHECKS, lambda kind: (f"{inspect.getdoc(kind)}".partition("\n")[0], f"as in: {kind.example}")),
    "backends": (BACKENDS, lambda kind: (kind.description, _here(kind.refusal(size=2)))),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The commands take nothing."""
    del parser


def main(options: argparse.Namespace) -> int:
    """List the kinds: what each does or demands, and whether it can be used on this machine."""
    return print_kinds(*LISTS[options.command])


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


def _here(refusal: object) -> str:
    return f"here:  {f'no: {refusal}' if refusal else 'yes'}"
