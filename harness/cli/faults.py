"""`rankproof faults`."""

from __future__ import annotations

import argparse

from harness.cli.kinds import on_this_machine, print_kinds
from harness.faults import KINDS


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""
    del parser


def main(options: argparse.Namespace) -> int:
    """List the kinds of faults: what each does and needs, and whether it can run on this machine."""
    del options
    return print_kinds(
        KINDS,
        lambda kind: (kind.does, f"needs: {kind.needs}", f"as in: {kind.example}", on_this_machine(kind.refusal())),
    )
