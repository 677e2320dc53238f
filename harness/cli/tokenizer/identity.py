"""`rankproof tokenizer identity`.

Says what a tokenizer is: two digests, and the parts they were made from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import PASS, USAGE, give_up

HELP = "say what a tokenizer is: two digests and their parts"
LIBRARIES = ("tokenizers",)
WIDEST = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("path", type=Path, metavar="PATH", help="a folder that holds a tokenizer.json, or such a file")
    parser.add_argument("--json", action="store_true", help="one line of JSON, for machines")


def main(options: argparse.Namespace) -> int:
    """Print the identity; exit 64 where there is none."""
    from harness.tokenizer import Unreadable, identify_folder

    try:
        identity = identify_folder(options.path)
    except Unreadable as error:
        return give_up("tokenizer identity", error, USAGE)
    if options.json:
        print(identity.to_json())
        return PASS
    print(f"semantic  {identity.semantic}\nfull      {identity.full}\n")
    widest = max(len(name) for name in identity.parts)
    for name, value in identity.parts.items():
        shown = value if len(value) <= WIDEST else f"{value[:WIDEST]}… ({len(value)} characters)"
        print(f"{name:<{widest}}  {shown}")
    return PASS
