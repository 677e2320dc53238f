"""`rankproof tokenizer doctor`.

For each GGUF model of a folder: looks for what is wrong in the file, finds its tokenizer, loads
that in a process with limits and sends texts there and back. Exits 0 if all are well, 1 if
something is wrong, 2 if something could not be tried.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS
from harness.cli.tokenizer.failed import failed
from harness.cli.tokenizer.settings import Undecided, decided, refused

if TYPE_CHECKING:
    from harness.tokenizer.model_files import Health

HELP = "say of each GGUF model of a folder whether its tokenizer is there, loads, and keeps texts"
LIBRARIES = ("tokenizers",)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--models", type=Path, required=True, metavar="PATH", help="a folder of GGUF files, or one"
    )
    parser.add_argument(
        "--tokenizer", type=Path, metavar="PATH", help="the tokenizer of all of them"
    )
    parser.add_argument(
        "--strict", action="store_true", help="what could not be tried is a finding too"
    )
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON for each model, for machines"
    )


def main(options: argparse.Namespace) -> int:
    """Look at each, say what was found."""
    from harness.tokenizer.loading import LoadError, SourceRefused
    from harness.tokenizer.model_files import health, models_below

    try:
        decided(options)
        models = [options.models] if options.models.is_file() else models_below(options.models)
        if not models:
            raise SourceRefused(f"{options.models} holds no GGUF file")
    except Undecided as error:
        return refused("tokenizer doctor", error)
    except LoadError as error:
        return failed("doctor", error)
    words = []
    for model in models:
        found = health(model, tokenizer=options.tokenizer)
        words.append(found.word)
        _say(found, as_json=options.json)
    if "ill" in words or (options.strict and "not tried" in words):
        return FAIL
    return INCONCLUSIVE if "not tried" in words else PASS


def _say(found: Health, *, as_json: bool) -> None:
    if as_json:
        row = {
            "model": str(found.model),
            "word": found.word,
            "tokenizer": str(found.tokenizer or ""),
            "said": found.said,
        }
        print(json.dumps(row))
        return
    print(f"{found.model}: {found.word}{f': {found.tokenizer}' if found.tokenizer else ''}")
    for one in found.said:
        print(f"    {one}")
