"""`rankproof tokenizer …`: a group of commands, one module each.

A module of the group has `HELP`, `LIBRARIES`, `arguments(parser)` and `main(options) -> int`, and
is named in `COMMANDS`. What is heavy it imports inside `main`, which is called where its libraries
are installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from harness.cli import INCONCLUSIVE, give_up
from harness.forms.distribution import missing
from harness.forms.text import visible

if TYPE_CHECKING:
    from harness.tokenizer.problem import Unreadable

COMMANDS = (
    "identity",
    "diff",
    "parity",
    "contract",
    "resolve",
    "fetch",
    "lock",
    "verify",
    "cache",
    "doctor",
)
ABSENT = 3
STRICT = 4
DAMAGED = 5
FORBIDDEN = 15


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add every command of the group to its parser."""
    commands = parser.add_subparsers(dest="tokenizer_command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = _module(name)
        command.arguments(
            commands.add_parser(
                name, help=command.HELP, description=(command.__doc__ or "").partition("\n")[2]
            )
        )


def main(options: argparse.Namespace) -> int:
    """Run the command of the group that was named."""
    command = _module(options.tokenizer_command)
    if lacks := missing(*command.LIBRARIES):
        return give_up(f"tokenizer {options.tokenizer_command}", lacks, INCONCLUSIVE)
    return int(command.main(options))


def unreadable(command: str, error: Unreadable) -> int:
    """Say why a file was refused; the exit code of its class."""
    from harness.tokenizer.problem import Absent, Forbidden

    code = FORBIDDEN if isinstance(error, Forbidden) else DAMAGED
    if isinstance(error, Absent):
        code = ABSENT
    return give_up(f"tokenizer {command}", error, code)


def say_what_is_damaged(command: str, *paths: Path) -> None:
    """Say on standard error which of these files is a damaged one of a cache: it is described, and
    not used.
    """
    from harness.tokenizer.loading.intact import damage

    for path in paths:
        if (said := damage(path)) is not None:
            print(
                f"rankproof tokenizer {command}: warning: {visible(f'{path}: {said}')}",
                file=sys.stderr,
            )


def serialised_without_library(*paths: Path) -> str | None:
    """What is missing to read these, if one of them is a tokenizer.json.

    Every other format needs no library.
    """
    return (
        missing("tokenizers")
        if any(path.is_dir() or path.suffix == ".json" for path in paths)
        else None
    )


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
