"""`rankproof tokenizer parity`.

Asks two engines for the ids of the same texts: fixed ones, generated ones, and the lines of a file.
A and B are files or folders (tokenizers, sentencepiece or llama.cpp run them) or the address of a
server that has /tokenize. Prints the shortest text that differs. Exits 0 if none does, 1 if one
does, 2 if an engine is missing or failed, 3 if a file is not there, 5 or 15 if it is refused.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, give_up
from harness.cli.tokenizer import unreadable
from harness.forms.text import plural, visible

if TYPE_CHECKING:
    from harness.tokenizer.engines.parity import EngineParity

HELP = "ask two engines for the ids of the same texts, and shorten what differs"
LIBRARIES = ()
MOST_CORPUS = 64 << 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "first",
        metavar="A",
        help="a tokenizer.json, its folder, a .model or .gguf file, or http://…",
    )
    parser.add_argument("second", metavar="B", help="another")
    parser.add_argument(
        "--corpus", type=Path, metavar="FILE", help="more texts: the lines of a file"
    )
    parser.add_argument(
        "--texts", type=int, default=2000, metavar="N", help="how many to generate (default: 2000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generated texts (default: 0)")
    parser.add_argument("--json", action="store_true", help="one object as JSON, for machines")


def main(options: argparse.Namespace) -> int:
    """Compare, print what differs."""
    from harness.forms.regular_file import read_regular
    from harness.tokenizer.engines import Engine, EngineFailed
    from harness.tokenizer.engines.parity import parity
    from harness.tokenizer.problem import Unreadable, refused

    try:
        lines: list[str] = []
        if options.corpus is not None:
            try:
                lines = read_regular(options.corpus, limit=MOST_CORPUS).decode().splitlines()
            except OSError as error:
                raise refused(options.corpus, error) from None
            except UnicodeDecodeError as error:
                raise Unreadable(f"{options.corpus}: is not UTF-8 at byte {error.start}") from None
        with Engine(options.first) as first, Engine(options.second) as second:
            found = parity(first, second, corpus=lines, count=options.texts, seed=options.seed)
    except Unreadable as error:
        return unreadable("parity", error)
    except EngineFailed as error:
        return give_up("tokenizer parity", error, INCONCLUSIVE)
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        _print(found)
    return PASS if found.mismatch is None else FAIL


def _print(found: EngineParity) -> None:
    print(f"A  {found.engines[0]}\nB  {found.engines[1]}")
    asked = (
        f"{plural(found.texts, 'text')} in the modes {', '.join(found.modes)} (seed {found.seed})"
    )
    if (one := found.mismatch) is None:
        print(f"the same ids for {asked}")
        return
    print(
        f"{found.differing} differ of {asked}; the shortest, mode {one.mode}, from id number"
        f" {one.at} on:"
    )
    print(f"    {visible(ascii(one.text) if not one.text.isprintable() else repr(one.text))}")
    for side, ids in (("A", one.first), ("B", one.second)):
        print(f"      {side}  {visible(str(ids))}")
