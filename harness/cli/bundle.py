"""`rankproof bundle`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.cli import INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.arguments import inputs
from harness.forms.source import expanded
from harness.reproduce.bundle import BundleError, Leaks, bundle, usual_name

SHOWN = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("run", type=Path, help="a run's folder, such as results/latest")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="(default: SCENARIO-RUN.rankproof.tar.xz)"
    )
    inputs(parser)
    parser.add_argument(
        "--inputs-limit",
        type=int,
        default=64,
        metavar="MIB",
        help="most bytes of inputs to carry (default: 64 MiB)",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=["home", "host", "secret", "user"],
        help="let this leave although it names this machine or its user",
    )


def main(options: argparse.Namespace) -> int:
    """Write a bundle; exit 2 where something in it must not leave this machine."""
    try:
        inputs = paths(options.input, what="--input")
        out = options.out or Path(usual_name(options.run))
        done = bundle(
            options.run,
            out,
            inputs=inputs,
            inputs_limit=options.inputs_limit * 2**20,
            allowed=options.allow,
        )
    except Leaks as error:
        for leak in error.leaks[:SHOWN]:
            print(f"{leak.path}:{leak.line}: {leak.what} ({leak.kind})", file=sys.stderr)
        more = f", {len(error.leaks) - SHOWN} not shown" if len(error.leaks) > SHOWN else ""
        print(
            f"rankproof bundle: {error}{more}. The run is signed as it is: make it again without",
            file=sys.stderr,
        )
        print(
            "them, or let a kind out by name, as in --allow user. Nothing was written",
            file=sys.stderr,
        )
        return INCONCLUSIVE
    except (BundleError, ValueError) as error:
        return give_up("bundle", error, USAGE)
    for one in done.index.inputs:
        if not one.carried:
            print(f"input {one.name} is named by its digest only: {one.why_not}")
    total = sum(member.size for member in done.index.members)
    print(
        f"{done.path}: {len(done.index.members)} files, {total} bytes, packed"
        f" {done.path.stat().st_size}"
    )
    print(f"sha256 {done.sha256}")
    return PASS


def paths(given: list[str], *, what: str) -> dict[str, Path]:
    """`NAME=PATH` by name.

    Raises:
        ValueError: something is not of this form.
    """
    places = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ValueError(f"{what} {text}: must be NAME=PATH")
        places[name] = expanded(path)
    return places
