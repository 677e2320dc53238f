"""`rankproof doctor` and `rankproof environments`: what this machine can run, and what was made on
it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.cli import INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.arguments import folder


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes; its name is the last word of the parser's."""
    if parser.prog.endswith("doctor"):
        parser.add_argument(
            "--results",
            type=folder,
            default="results",
            metavar="FOLDER",
            help="where runs would be kept",
        )
        parser.add_argument(
            "--quick", action="store_true", help="start no rank, and do not measure what one costs"
        )
        return
    parser.add_argument("what", nargs="?", choices=("list", "remove"), default="list")
    parser.add_argument(
        "keys", nargs="*", metavar="KEY", help="with remove: how its name in the list begins"
    )
    parser.add_argument("--all", action="store_true", help="with remove: all of them")


def main(options: argparse.Namespace) -> int:
    """Examine the machine, or list or remove environments."""
    return _examine(options) if options.command == "doctor" else _environments(options)


def _examine(options: argparse.Namespace) -> int:
    """Say what this machine can run; exit 2 where something is missing."""
    from harness.run.doctor import examine

    answers = examine(results=Path(options.results), measure=not options.quick)
    width = max(len(answer.what) for answer in answers)
    topic = ""
    for answer in answers:
        if answer.topic != topic:
            topic = answer.topic
            print(f"\n{topic}")
        print(f"  {answer.word:<4}  {answer.what:<{width}}  {answer.detail}")
        if answer.remedy:
            print(f"        {'':<{width}}  -> {answer.remedy}")
    missing = [answer for answer in answers if answer.word == "no"]
    names = ", ".join(answer.what for answer in missing)
    print(f"\n{len(missing)} missing: {names}" if missing else "\nnothing is missing")
    # Backends and faults are for the scenarios that ask for them; those are SKIPPED.
    return (
        INCONCLUSIVE
        if any(answer.topic not in ("backend", "fault") for answer in missing)
        else PASS
    )


def _environments(options: argparse.Namespace) -> int:
    """List the environments in the cache, or remove those that are named.

    No scenario needs them to be there.
    """
    from harness.run.environments.cache import cached, remove

    environments = cached()
    if options.what == "list":
        for environment in environments:
            size = f"{environment.bytes / 2**20:8.1f} MiB"
            print(f"{environment.key[:8]}  {size}  {environment.description or 'never finished'}")
        return PASS
    if not options.keys and not options.all:
        return give_up(
            "environments remove", "name environments by their first characters, or --all", USAGE
        )
    if unknown := [
        key for key in options.keys if not any(known.key.startswith(key) for known in environments)
    ]:
        return give_up("environments remove", f"not in the cache: {', '.join(unknown)}", USAGE)
    chosen = [
        known for known in environments if options.all or known.key.startswith(tuple(options.keys))
    ]
    busy = [environment for environment in chosen if not remove(environment)]
    print(f"{len(chosen) - len(busy)} removed")
    for environment in busy:
        print(f"{environment.key[:8]} is being made by another process", file=sys.stderr)
    return INCONCLUSIVE if busy else PASS
