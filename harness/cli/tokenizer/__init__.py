"""`rankproof tokenizer …`: a group of commands, one module each.

A module of the group has `HELP`, `arguments(parser)` and `main(options) -> int`, and is named in `COMMANDS`. What is
heavy it imports inside `main`.
"""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType
from typing import Any

COMMANDS = ("identity", "diff", "lock", "verify")


def add(group: Any) -> None:
    """Add every command of the group to its parser."""
    commands = group.add_subparsers(dest="tokenizer_command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = _module(name)
        command.arguments(
            commands.add_parser(name, help=command.HELP, description=(command.__doc__ or "").partition("\n")[2])
        )


def main(options: argparse.Namespace) -> int:
    """Run the command of the group that was named."""
    return int(_module(options.tokenizer_command).main(options))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
