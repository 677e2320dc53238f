"""`rankproof tokenizer identity` and `rankproof tokenizer diff`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, give_up
from harness.cli.tokenizer import (
    TokenizerCommand,
    say_what_is_damaged,
    serialised_without_library,
    unreadable,
)
from harness.forms.text import visible

if TYPE_CHECKING:
    from harness.tokenizer import Difference

WIDEST = 100


def identity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="a folder with a tokenizer.json, or a file of any format",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON, for machines")


def identity_main(options: argparse.Namespace) -> int:
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


IDENTITY = TokenizerCommand(
    help="say what a tokenizer is: two digests and their parts",
    description=(
        "Says what a tokenizer is: two digests, and the parts they were made from. The "
        "fingerprint is equal where files of different formats describe one encoder. Exits 3 "
        "if it is not there, 5 if it is refused, 15 if it may not be read."
    ),
    arguments=identity_arguments,
    main=identity_main,
)


def diff_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "first",
        type=Path,
        metavar="A",
        help="a folder with a tokenizer.json, or a file of any format",
    )
    parser.add_argument("second", type=Path, metavar="B", help="another")
    parser.add_argument(
        "--semantic",
        action="store_true",
        help="only what can change ids, names of special tokens or chat templates",
    )
    parser.add_argument("--json", action="store_true", help="a list as JSON, for machines")


def diff_main(options: argparse.Namespace) -> int:
    """Print what differs."""
    from harness.tokenizer import NotComparable, Unreadable, difference

    if lacks := serialised_without_library(options.first, options.second):
        return give_up("tokenizer diff", lacks, INCONCLUSIVE)
    try:
        differences = difference(options.first, options.second)
    except NotComparable as error:
        return give_up("tokenizer diff", error, INCONCLUSIVE)
    except Unreadable as error:
        return unreadable("diff", error)
    say_what_is_damaged("diff", options.first, options.second)
    if options.semantic:
        differences = [item for item in differences if item.semantic]
    sorts = {item.sort for item in differences}
    code = INCONCLUSIVE if "undecided" in sorts else PASS
    if "difference" in sorts:
        code = FAIL
    if options.json:
        print(json.dumps([asdict(item) for item in differences]))
        return code
    for item in differences:
        _print_diff(item)
    if code == PASS:
        print(
            "the same"
            if not options.semantic
            else "the same ids for every text, the same names and chat templates"
        )
    elif code == INCONCLUSIVE:
        print("not decided: what both say is the same; `rankproof tokenizer parity` tries texts")
    return code


def _print_diff(difference: Difference) -> None:
    mark = {"undecided": "?", "remark": "note:"}.get(
        difference.sort, "*" if difference.semantic else " "
    )
    print(f"{mark} {visible(difference.words)}")
    if difference.example is not None:
        print(
            f"    {difference.example!r}\n      A  {difference.first}\n      B  {difference.second}"
        )


DIFF = TokenizerCommand(
    help="say what differs between two tokenizers, with a text that shows it",
    description=(
        "Says what differs between two tokenizers, in words, with a text that shows it. A "
        "star marks what can change ids, names of special tokens or chat templates. A and B "
        "may be of any format; a question mark marks what one of the formats cannot say. "
        "Exits 0 if nothing differs, 1 if something does, 2 if the two cannot be compared or "
        "that is not decided, 3 if one is not there, 5 if one cannot be read, 15 if it may "
        "not be."
    ),
    arguments=diff_arguments,
    main=diff_main,
)
