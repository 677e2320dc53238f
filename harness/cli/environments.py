"""`rankproof environments`."""

from __future__ import annotations

import argparse
import sys

from harness.cli import INCONCLUSIVE, PASS, USAGE, give_up
from harness.run.environments.cache import cached, remove


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("what", nargs="?", choices=("list", "remove"), default="list")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="with remove: how its name in the list begins")
    parser.add_argument("--all", action="store_true", help="with remove: all of them")


def main(options: argparse.Namespace) -> int:
    """List the environments in the cache, or remove those that are named; no scenario needs them to be there."""
    environments = cached()
    if options.what == "list":
        for one in environments:
            print(f"{one.key[:8]}  {one.bytes / 2**20:8.1f} MiB  {one.description or 'never finished'}")
        return PASS
    if not options.keys and not options.all:
        return give_up("environments remove", "name environments by their first characters, or --all", USAGE)
    chosen = [one for one in environments if options.all or one.key.startswith(tuple(options.keys))]
    if unknown := [key for key in options.keys if not any(one.key.startswith(key) for one in environments)]:
        return give_up("environments remove", f"not in the cache: {', '.join(unknown)}", USAGE)
    busy = [one for one in chosen if not remove(one)]
    print(f"{len(chosen) - len(busy)} removed")
    for one in busy:
        print(f"{one.key[:8]} is being made by another process", file=sys.stderr)
    return INCONCLUSIVE if busy else PASS
