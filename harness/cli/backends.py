"""`rankproof backends`."""

from __future__ import annotations

import argparse

from harness.backends import KINDS
from harness.cli.kinds import on_this_machine, print_kinds


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""
    del parser


def main(options: argparse.Namespace) -> int:
    """List the backends: what joins the ranks of each, and whether it can run on this machine."""
    del options
    return print_kinds(KINDS, lambda kind: (kind.description, on_this_machine(kind.refusal(size=2))))
