"""`rankproof faults`."""

from __future__ import annotations

import argparse

from harness.cli import PASS
from harness.faults import KINDS


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""
    del parser


def main(options: argparse.Namespace) -> int:
    """List the kinds of faults: what each does and needs, and whether it can run on this machine."""
    del options
    for name, kind in KINDS.items():
        why = kind.refusal()
        print(name)
        print(f"    {kind.does}")
        print(f"    needs: {kind.needs}")
        print(f"    here:  {'no: ' + why if why else 'yes'}")
    return PASS
