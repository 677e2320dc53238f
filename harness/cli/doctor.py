"""`rankproof doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import INCONCLUSIVE, PASS
from harness.cli.arguments import folder
from harness.run.doctor import examine


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--results", type=folder, default="results", metavar="FOLDER", help="where runs would be kept")
    parser.add_argument("--quick", action="store_true", help="start no rank, and do not measure what one costs")


def main(options: argparse.Namespace) -> int:
    """Say what this machine can run; exit 2 where something is missing."""
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
    count = len(missing)
    print(f"\n{'nothing is missing' if not count else f'{count} missing: ' + ', '.join(a.what for a in missing)}")
    # Backends and faults are for the scenarios that ask for them; those are SKIPPED.
    return INCONCLUSIVE if any(answer.topic not in ("backend", "fault") for answer in missing) else PASS
