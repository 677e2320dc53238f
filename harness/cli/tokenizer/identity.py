"""What a tokenizer is, and what differs between two or from a golden file: `rankproof tokenizer
identity`, `diff`, `parity` and `contract`.
"""

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
from contextlib import ExitStack
from typing import TYPE_CHECKING

from harness.cli import USAGE
from harness.forms.text import plural

if TYPE_CHECKING:
    from harness.tokenizer.engines.parity import EngineParity


WIDEST = 100
MOST_CORPUS = 64 << 20
SHOWN = 5


def identity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="a folder with a tokenizer.json, or a file of any format",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


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
    help="print a tokenizer's identity: two digests, and what each of them covers",
    description=(
        "Prints the identity of a tokenizer: two digests, and the parts they are made from. Files"
        " of different formats that describe the same encoder have the same fingerprint. Exits 3"
        " if the file is not found, 5 if it is refused, 15 if it is not readable."
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
    parser.add_argument("second", type=Path, metavar="B", help="the tokenizer to compare it with")
    parser.add_argument(
        "--semantic",
        action="store_true",
        help="show only what can change ids, special token names or chat templates",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list")


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
        print(
            "undecided: everything that both formats contain is the same; try texts with"
            " `rankproof tokenizer parity`"
        )
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
    help="show how two tokenizers differ, with an example text for each difference",
    description=(
        "Shows how two tokenizers differ, in words, with example texts. A star marks what can"
        " change ids, names of special tokens or chat templates. A and B may be of any format; a"
        " question mark marks what one of the formats cannot express. Exits 0 if nothing differs,"
        " 1 if something does, 2 if the two cannot be compared or the result is undecided, 3 if"
        " one is not found, 5 if one is damaged, 15 if one is not readable."
    ),
    arguments=diff_arguments,
    main=diff_main,
)


def parity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "first",
        metavar="A",
        help="a tokenizer.json, its folder, a .model or .gguf file, or http://…",
    )
    parser.add_argument("second", metavar="B", help="the tokenizer to compare it with")
    parser.add_argument(
        "--corpus", type=Path, metavar="FILE", help="also use the lines of this file as texts"
    )
    parser.add_argument(
        "--texts",
        type=int,
        default=2000,
        metavar="N",
        help="number of texts to generate (default: 2000)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed for the generated texts (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def parity_main(options: argparse.Namespace) -> int:
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
                raise Unreadable(f"{options.corpus}: invalid UTF-8 at byte {error.start}") from None
        with Engine(options.first) as first, Engine(options.second) as second:
            outcome = parity(first, second, corpus=lines, count=options.texts, seed=options.seed)
    except Unreadable as error:
        return unreadable("parity", error)
    except EngineFailed as error:
        return give_up("tokenizer parity", error, INCONCLUSIVE)
    if options.json:
        print(json.dumps(asdict(outcome)))
    else:
        _print_parity(outcome)
    return PASS if outcome.mismatch is None else FAIL


def _print_parity(outcome: EngineParity) -> None:
    print(f"A  {outcome.engines[0]}\nB  {outcome.engines[1]}")
    asked = (
        f"{plural(outcome.texts, 'text')} in the modes {', '.join(outcome.modes)} (seed"
        f" {outcome.seed})"
    )
    if (mismatch := outcome.mismatch) is None:
        print(f"the same ids for {asked}")
        return
    print(
        f"{outcome.differing} of {asked} differ; the shortest one, in mode {mismatch.mode},"
        f" differs from id number {mismatch.at}:"
    )
    shown = repr(mismatch.text) if mismatch.text.isprintable() else ascii(mismatch.text)
    print(f"    {visible(shown)}")
    for side, ids in (("A", mismatch.first), ("B", mismatch.second)):
        print(f"      {side}  {visible(str(ids))}")


PARITY = TokenizerCommand(
    help="compare the token ids that two engines produce for the same texts, and minimize a text"
    " on which they differ",
    description=(
        "Compares the ids of two engines on the same texts: fixed ones, generated ones, and the"
        " lines of a file. A and B are files or folders (run by tokenizers, sentencepiece or"
        " llama.cpp), or the URL of a server with /tokenize. Prints the shortest text with"
        " different ids. Exits 0 if no text differs, 1 if one does, 2 if an engine is missing or"
        " failed, 3 if a file is not found, 5 or 15 if it is refused."
    ),
    arguments=parity_arguments,
    main=parity_main,
)


def contract_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "tokenizer",
        metavar="TOKENIZER",
        help="a file, a folder or http://…, as for `tokenizer parity`",
    )
    parser.add_argument(
        "--golden", type=Path, required=True, metavar="FILE", help="the golden file"
    )
    parser.add_argument(
        "--record", action="store_true", help="write the golden file, which must not exist yet"
    )
    parser.add_argument(
        "--texts",
        type=int,
        default=500,
        metavar="N",
        help="number of texts to generate (default: 500)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed for the generated texts (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of the differences")


def contract_main(options: argparse.Namespace) -> int:
    """Record, or compare and print what differs."""
    from harness.tokenizer.discovery import admit
    from harness.tokenizer.engines import Engine, EngineFailed
    from harness.tokenizer.engines.parity import (
        changed_ids,
        read_golden,
        record_golden,
        write_golden,
    )
    from harness.tokenizer.loading.intact import unchanged
    from harness.tokenizer.problem import Unreadable

    if options.record and options.golden.exists():
        return give_up(
            "tokenizer contract",
            f"{options.golden} already exists; remove it to write a new one",
            USAGE,
        )
    try:
        if not options.record:
            contract = read_golden(options.golden)
        with ExitStack() as stack:
            if not options.tokenizer.startswith(("http://", "https://")):
                # What is looked at here, loaded by the engine and asked has to be the same file all
                # along.
                stack.enter_context(unchanged(Path(options.tokenizer)))
                admit(Path(options.tokenizer))
            engine = stack.enter_context(Engine(options.tokenizer))
            if options.record:
                golden = record_golden(engine, count=options.texts, seed=options.seed)
            else:
                rows = changed_ids(engine, contract)
        if options.record:
            write_golden(golden, options.golden)
            print(
                f"{options.golden}: {plural(len(golden.texts), 'text')} with ids from"
                f" {golden.made_with}"
            )
            return PASS
    except Unreadable as error:
        return unreadable("contract", error)
    except EngineFailed as error:
        return give_up("tokenizer contract", error, INCONCLUSIVE)
    except OSError as error:
        return give_up("tokenizer contract", f"{options.golden}: {error.strerror}", USAGE)
    if options.json:
        print(json.dumps([row.model_dump() | {"now": now} for row, now in rows]))
        return FAIL if rows else PASS
    if not rows:
        print(f"{plural(len(contract.texts), 'text')}: the ids are those of {contract.made_with}")
        return PASS
    print(
        f"{len(rows)} of {plural(len(contract.texts), 'text')} have ids that differ from those of"
        f" {contract.made_with}"
    )
    for row, now in sorted(rows, key=lambda item: len(item[0].text))[:SHOWN]:
        print(
            f"    {visible(ascii(row.text))} ({row.mode})\n      golden  {row.ids}\n      now    "
            f" {now}"
        )
    return FAIL


CONTRACT = TokenizerCommand(
    help="check a tokenizer against a golden file of texts and ids, or write one",
    description=(
        "Checks a tokenizer against a golden file of texts and ids; --record writes the file."
        " Exits 0 if every text still has its ids, 1 if one has different ids, 2 if the engine is"
        " missing or failed, 3 if a file is not found, 5 or 15 if it is refused."
    ),
    arguments=contract_arguments,
    main=contract_main,
)
