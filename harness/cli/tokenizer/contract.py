"""`rankproof tokenizer contract`.

Holds a tokenizer against a golden file of texts and ids; --record makes the file. Exits 0 if every
text still has its ids, 1 if one has others, 2 if the engine is missing or failed, 3 if a file is
not there, 5 or 15 if it is refused.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.tokenizer import unreadable
from harness.forms.text import plural, visible

HELP = "hold a tokenizer against a golden file of texts and ids, or make one"
LIBRARIES = ()
SHOWN = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
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


def main(options: argparse.Namespace) -> int:
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
                made = record_golden(engine, count=options.texts, seed=options.seed)
            else:
                rows = changed_ids(engine, contract)
        if options.record:
            write_golden(made, options.golden)
            print(
                f"{options.golden}: {plural(len(made.texts), 'text')} with ids from"
                f" {made.made_with}"
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
    for row, now in sorted(rows, key=lambda one: len(one[0].text))[:SHOWN]:
        print(
            f"    {visible(ascii(row.text))} ({row.mode})\n      golden  {row.ids}\n      now    "
            f" {now}"
        )
    return FAIL
