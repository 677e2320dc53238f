"""`rankproof models`."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import PASS, USAGE, give_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

RANKS = (1, 2, 3, 4)
EVERY = 5.0
"""Seconds between two lines about something that takes long."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="list the models that this command can make")
    make = actions.add_parser(
        "make", help="write a model to a folder that transformers and mlx-lm can load"
    )
    make.add_argument("model", metavar="NAME", help="a name from `rankproof models list`")
    make.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder to write the model to"
    )
    describe = actions.add_parser(
        "describe", help="describe a model, and list the engines and world sizes that can run it"
    )
    describe.add_argument(
        "model",
        metavar="NAME|FOLDER",
        help="a name from `rankproof models list`, or a model folder",
    )
    describe.add_argument("--json", action="store_true", help="print JSON")
    engines = actions.add_parser(
        "engines",
        help="list the models and world sizes each engine can run, and why it cannot run others",
    )
    engines.add_argument(
        "--json", action="store_true", help="print JSON with every architecture of every library"
    )


def main(options: argparse.Namespace) -> int:
    """List, make or describe models."""
    from harness.engines.models import ModelError

    actions: Mapping[str, Callable[[argparse.Namespace], None]] = {
        "list": _list,
        "make": _make,
        "describe": _describe,
        "engines": _engines,
    }
    try:
        actions[options.action](options)
    except (ModelError, OSError) as error:
        return give_up("models", error, USAGE)
    return PASS


def _list(_options: argparse.Namespace) -> None:
    from harness.engines.models import MODELS

    width = max(map(len, MODELS))
    for name, recipe in MODELS.items():
        print(f"{name:{width}}  {recipe.does}")


def _make(options: argparse.Namespace) -> None:
    from harness.engines.models import write

    print(write(options.model, options.out))


def _describe(options: argparse.Namespace) -> None:
    from harness.engines.models import MODELS, cached, describe

    folder = Path(options.model)
    with _said(f"reading the files of {folder.name}"):
        if options.model in MODELS:
            folder = cached(options.model)
        description = describe(folder)
    offered: dict[str, dict[int, str]] = {}
    if not options.json:
        for key, value in description.items():
            if key != "config":
                print(f"{key:13} {value}", flush=True)
    engines = _all_engines()
    for number, engine in enumerate(engines, start=1):
        # Each engine is tried in a process that imports it: seconds, or minutes the first time.
        with _said(
            f"trying {engine} with the files of {folder.name} (engine {number} of {len(engines)})"
        ):
            offered[engine] = _ranks(engine, description["config"], folder)
        if not options.json:
            print(f"{engine:13} {_words(offered[engine])}", flush=True)
    if options.json:
        print(json.dumps(description | {"engines": offered}, indent=2))


@contextmanager
def _said(words: str) -> Iterator[None]:
    """Say on standard error what is being done, at once and again every few seconds while it
    takes.
    """
    print(f"rankproof models: {words}", file=sys.stderr, flush=True)
    begun = time.monotonic()
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(EVERY):
            print(
                f"rankproof models: {words}: {time.monotonic() - begun:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    # A daemon: an interrupted command ends although somebody still speaks of it.
    speaker = threading.Thread(target=repeat, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()


def _engines(options: argparse.Namespace) -> None:
    from harness.engines.models import MODELS
    from harness.engines.offers import LIBRARIES, installed, offers

    if options.json:
        table = {
            f"{LIBRARIES[library]} {installed(library)}": {
                kind: {"tensor": offer.tensor or offer.head, "pipeline": offer.pipeline}
                for kind, offer in sorted(offers(library).items())
            }
            for library in LIBRARIES
        }
        print(json.dumps(table, indent=2))
        return
    for name, recipe in MODELS.items():
        print(f"{name}: {recipe.does}")
        for engine in _all_engines():
            print(f"  {engine:13} {_words(_ranks(engine, recipe.config()))}")


def _all_engines() -> tuple[str, ...]:
    from harness.engines.offers import ENGINES

    return ENGINES


def _ranks(engine: str, config: Mapping[str, Any], folder: Path | None = None) -> dict[int, str]:
    """World size to why it is refused, by its checkpoint too where one is given.

    Empty where it is offered.
    """
    from harness.engines import rehearsal
    from harness.engines.models import ModelError
    from harness.engines.offers import refusal

    def why(size: int) -> str:
        refused = refusal(engine, config, ranks=size)
        if refused or folder is None:
            return refused
        return rehearsal.refusal(engine, folder, ranks=size, dtype="float32")

    try:
        return {size: why(size) for size in RANKS}
    # A library that is not here, or files that engines read differently.
    except (ModelError, ValueError) as error:
        return dict.fromkeys(RANKS, str(error))


def _words(offered: Mapping[int, str]) -> str:
    runs = [str(size) for size, why in offered.items() if not why]
    refused = {
        why: [size for size, other in offered.items() if other == why]
        for why in offered.values()
        if why
    }
    parts = [f"runs over {', '.join(runs)}"] if runs else []
    parts += [f"REFUSED over {', '.join(map(str, sizes))}: {why}" for why, sizes in refused.items()]
    return "; ".join(parts)
