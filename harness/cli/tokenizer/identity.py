"""`rankproof tokenizer identity`.

Says what a tokenizer is: two digests, and the parts they were made from. The fingerprint is equal
where files of different formats describe one encoder. Exits 3 if it is not there, 5 if it is
refused, 15 if it may not be read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import INCONCLUSIVE, PASS, give_up
from harness.cli.tokenizer import say_what_is_damaged, serialised_without_library, unreadable

HELP = "say what a tokenizer is: two digests and their parts"
LIBRARIES = ()
WIDEST = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="a folder with a tokenizer.json, or a file of any format",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON, for machines")


def main(options: argparse.Namespace) -> int:
    """Print the identity; exit 3, 5 or 15 where there is none."""
    from harness.tokenizer import Unreadable, identify_folder

    if lacks := serialised_without_library(options.path):
        return give_up("tokenizer identity", lacks, INCONCLUSIVE)
    try:
        identity = identify_folder(options.path)
    except Unreadable as error:
        return unreadable("identity", error)
    say_what_is_damaged("identity", options.path)
    if options.json:
        print(identity.to_json())
        return PASS
    print(f"semantic  {identity.semantic}\nfull      {identity.full}\n")
    widest = max(len(name) for name in identity.parts)
    for name, value in identity.parts.items():
        shown = value if len(value) <= WIDEST else f"{value[:WIDEST]}… ({len(value)} characters)"
        print(f"{name:<{widest}}  {shown}")
    return PASS
