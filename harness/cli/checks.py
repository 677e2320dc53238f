"""`rankproof checks`."""

from __future__ import annotations

import argparse
import inspect

from harness.checks import KINDS
from harness.cli.kinds import print_kinds


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""
    del parser


def main(options: argparse.Namespace) -> int:
    """List the kinds of checks: what each demands, and how a scenario writes it."""
    del options
    return print_kinds(KINDS, lambda kind: (f"{inspect.getdoc(kind)}".partition("\n")[0], f"as in: {kind.example}"))
