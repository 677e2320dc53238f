"""`rankproof tokenizer parity` and `rankproof tokenizer contract`."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.tokenizer import TokenizerCommand, unreadable
from harness.forms.text import plural, visible

if TYPE_CHECKING:
    from harness.tokenizer.engines.parity import EngineParity

MOST_CORPUS = 64 << 20


def parity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
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
                raise Unreadable(f"{options.corpus}: is not UTF-8 at byte {error.start}") from None
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
        f"{outcome.differing} differ of {asked}; the shortest, mode {mismatch.mode}, from id number"
        f" {mismatch.at} on:"
    )
    shown = repr(mismatch.text) if mismatch.text.isprintable() else ascii(mismatch.text)
    print(f"    {visible(shown)}")
    for side, ids in (("A", mismatch.first), ("B", mismatch.second)):
        print(f"      {side}  {visible(str(ids))}")


PARITY = TokenizerCommand(
    help="ask two engines for the ids of the same texts, and shorten what differs",
    description=(
        "Asks two engines for the ids of the same texts: fixed ones, generated ones, and the "
        "lines of a file. A and B are files or folders (tokenizers, sentencepiece or "
        "llama.cpp run them) or the address of a server that has /tokenize. Prints the "
        "shortest text that differs. Exits 0 if none does, 1 if one does, 2 if an engine is "
        "missing or failed, 3 if a file is not there, 5 or 15 if it is refused."
    ),
    arguments=parity_arguments,
    main=parity_main,
)


SHOWN = 5


def contract_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "tokenizer", metavar="TOKENIZER", help="as A of parity: files, folders, http://…"
    )
    parser.add_argument(
        "--golden", type=Path, required=True, metavar="FILE", help="the golden file"
    )
    parser.add_argument(
        "--record", action="store_true", help="write the golden file; it must not be there"
    )
    parser.add_argument(
        "--texts", type=int, default=500, metavar="N", help="how many to generate (default: 500)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generated texts (default: 0)")
    parser.add_argument(
        "--json", action="store_true", help="a list of what differs as JSON, for machines"
    )


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
            f"{options.golden}: is there already; remove it to make it anew",
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
        f"{len(rows)} of {plural(len(contract.texts), 'text')} have other ids than with"
        f" {contract.made_with}"
    )
    for row, now in sorted(rows, key=lambda item: len(item[0].text))[:SHOWN]:
        print(
            f"    {visible(ascii(row.text))} ({row.mode})\n      golden  {row.ids}\n      now    "
            f" {now}"
        )
    return FAIL


CONTRACT = TokenizerCommand(
    help="hold a tokenizer against a golden file of texts and ids, or make one",
    description=(
        "Holds a tokenizer against a golden file of texts and ids; --record makes the file. "
        "Exits 0 if every text still has its ids, 1 if one has others, 2 if the engine is "
        "missing or failed, 3 if a file is not there, 5 or 15 if it is refused."
    ),
    arguments=contract_arguments,
    main=contract_main,
)
