"""`rankproof tokenizer diff`.

Says what differs between two tokenizers, in words, with a text that shows it. A star marks what can change ids, names
of special tokens or chat templates. Exits 0 if nothing differs, 1 if something does, 2 if the two cannot be compared,
64 if one cannot be read.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, give_up

if TYPE_CHECKING:
    from harness.tokenizer import Difference

HELP = "say what differs between two tokenizers, with a text that shows it"
LIBRARIES = ("tokenizers",)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("first", type=Path, metavar="A", help="a folder that holds a tokenizer.json, or such a file")
    parser.add_argument("second", type=Path, metavar="B", help="another")
    parser.add_argument(
        "--semantic", action="store_true", help="only what can change ids, names of special tokens or chat templates"
    )
    parser.add_argument("--json", action="store_true", help="a list as JSON, for machines")


def main(options: argparse.Namespace) -> int:
    """Print what differs."""
    from harness.tokenizer import NotComparable, TokenizerError, difference

    try:
        differences = difference(options.first, options.second)
    except NotComparable as error:
        return give_up("tokenizer diff", error, INCONCLUSIVE)
    except TokenizerError as error:
        return give_up("tokenizer diff", error, USAGE)
    if options.semantic:
        differences = [one for one in differences if one.semantic]
    if options.json:
        print(json.dumps([asdict(one) for one in differences]))
        return FAIL if differences else PASS
    for one in differences:
        _print(one)
    if not differences:
        print("the same" if not options.semantic else "the same ids for every text, the same names and chat templates")
    return FAIL if differences else PASS


def _print(one: Difference) -> None:
    print(f"{'*' if one.semantic else ' '} {one.words}")
    if one.example is not None:
        print(f"    {one.example!r}\n      A  {one.first}\n      B  {one.second}")
