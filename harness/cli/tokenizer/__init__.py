"""`rankproof tokenizer …`: a group of commands, one module each.

A module of the group has `HELP`, `LIBRARIES`, `arguments(parser)` and `main(options) -> int`, and is named in
`COMMANDS`. What is heavy it imports inside `main`, which is called where its libraries are installed.
"""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

from harness.cli import INCONCLUSIVE, give_up
from harness.forms.extras import missing

COMMANDS = ("identity", "diff", "lock", "verify")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add every command of the group to its parser."""
    commands = parser.add_subparsers(dest="tokenizer_command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = _module(name)
        command.arguments(
            commands.add_parser(name, help=command.HELP, description=(command.__doc__ or "").partition("\n")[2])
        )


def main(options: argparse.Namespace) -> int:
    """Run the command of the group that was named."""
    command = _module(options.tokenizer_command)
    if lacks := missing(*command.LIBRARIES):
        return give_up(f"tokenizer {options.tokenizer_command}", lacks, INCONCLUSIVE)
    return int(command.main(options))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
