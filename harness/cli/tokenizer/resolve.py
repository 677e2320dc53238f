"""`rankproof tokenizer resolve` and `rankproof tokenizer doctor`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS
from harness.cli.tokenizer import (
    ABSENT,
    STRICT,
    TokenizerCommand,
    Undecided,
    decided,
    failed,
    refused,
    unreadable,
)
from harness.forms.text import visible

if TYPE_CHECKING:
    from harness.tokenizer.discovery import Candidate, Resolution
    from harness.tokenizer.model_files import Health


def resolve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL.gguf", help="the model file")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="PATH", help="file or folder to use as the only candidate"
    )
    parser.add_argument(
        "--explain", action="store_true", help="print every candidate with every reason"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="accept only a tokenizer that is proven by another file (exit code 4)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="search this cache instead of the usual ones (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def resolve_main(options: argparse.Namespace) -> int:
    """Print what was found."""
    from harness.tokenizer.discovery import resolve
    from harness.tokenizer.loading.intact import hub_cache
    from harness.tokenizer.problem import Unreadable

    try:
        decided(options)
        # What the environment names is our own cache alone: the hub's is asked beside it.
        caches = [options.cache, hub_cache()] if isinstance(options.cache, Path) else options.cache
        resolution = resolve(
            options.model, tokenizer=options.tokenizer, caches=caches, strict=options.strict
        )
    except Undecided as error:
        return refused("tokenizer resolve", error)
    except Unreadable as error:
        return unreadable("resolve", error)
    code = _code(resolution, strict=options.strict)
    if options.json:
        row = asdict(resolution) | {"code": code}
        print(json.dumps(row, default=str))
        return code
    if resolution.chosen is not None:
        how = "proven: " if resolution.proven else ""
        print(
            f"{visible(str(resolution.chosen.path))} ({resolution.chosen.origin}):"
            f" {how}{visible(resolution.chosen.reasons[0])}"
        )
        for reason in () if options.explain else resolution.chosen.reasons[1:]:
            print(f"    {visible(reason)}")
    else:
        print(_refusal(code, resolution))
    if resolution.fingerprint is not None:
        print(f"fingerprint {resolution.fingerprint}")
    if options.explain or resolution.chosen is None:
        for number, candidate in enumerate(resolution.candidates, start=1):
            print(
                f"{number}. {candidate.origin}: {visible(str(candidate.path))}:"
                f" {candidate.standing}"
            )
            for reason in candidate.reasons:
                print(f"     {visible(reason)}")
        for hint in resolution.hints:
            print(f"hint: {visible(hint)}")
    return code


def _code(resolution: Resolution, *, strict: bool) -> int:
    if resolution.chosen is not None:
        return PASS
    standings = [candidate.standing for candidate in resolution.candidates]
    named = any(candidate.origin == "named" for candidate in resolution.candidates)
    if named and "differs" in standings:
        return FAIL
    if strict and ("usable" in standings or "undecided" in standings):
        return STRICT
    if "undecided" in standings:
        return INCONCLUSIVE
    return ABSENT


def _refusal(code: int, resolution: Resolution) -> str:
    said = {
        FAIL: "the given tokenizer is not the model's",
        STRICT: "no candidate is proven to be the model's tokenizer (strict)",
        INCONCLUSIVE: "undecided whether a candidate is the model's tokenizer",
        ABSENT: "no tokenizer found for this model",
    }
    return f"{visible(str(resolution.model))}: {said[code]}; {_asked(resolution.candidates)}"


def _asked(candidates: tuple[Candidate, ...]) -> str:
    return f"searched {len(candidates)} {'place' if len(candidates) == 1 else 'places'}:"


RESOLVE = TokenizerCommand(
    help="find the tokenizer that belongs to a GGUF model, and explain the choice",
    description=(
        "Finds the tokenizer that belongs to a GGUF model: compares every candidate (inside the"
        " model, next to it, in the caches) with the one inside, id by id. Exits 0 if one is"
        " chosen, 1 if the given one differs, 2 if undecided, 3 if none is found, 4 if --strict"
        " refuses an unproven one, 5 if the model is damaged, 15 if it is not readable."
    ),
    arguments=resolve_arguments,
    main=resolve_main,
)


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--models",
        type=Path,
        required=True,
        metavar="PATH",
        help="a GGUF file, or a folder of them",
    )
    parser.add_argument(
        "--tokenizer", type=Path, metavar="PATH", help="use this tokenizer for all of them"
    )
    parser.add_argument(
        "--strict", action="store_true", help="count a model that could not be tested as a finding"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON per model")


def doctor_main(options: argparse.Namespace) -> int:
    """Look at each, say what was found."""
    from harness.tokenizer.loading import LoadError, SourceRefused
    from harness.tokenizer.model_files import health, models_below

    try:
        decided(options)
        models = [options.models] if options.models.is_file() else models_below(options.models)
        if not models:
            raise SourceRefused(f"{options.models} contains no GGUF files")
    except Undecided as error:
        return refused("tokenizer doctor", error)
    except LoadError as error:
        return failed("doctor", error)
    words = []
    for model in models:
        state = health(model, tokenizer=options.tokenizer)
        words.append(state.word)
        _say_doctor(state, as_json=options.json)
    if "ill" in words or (options.strict and "not tried" in words):
        return FAIL
    return INCONCLUSIVE if "not tried" in words else PASS


def _say_doctor(state: Health, *, as_json: bool) -> None:
    if as_json:
        row = {
            "model": str(state.model),
            "word": state.word,
            "tokenizer": str(state.tokenizer or ""),
            "said": state.said,
        }
        print(json.dumps(row))
        return
    print(f"{state.model}: {state.word}{f': {state.tokenizer}' if state.tokenizer else ''}")
    for line in state.said:
        print(f"    {line}")


DOCTOR = TokenizerCommand(
    help="check that each GGUF model in a folder has a tokenizer that loads and round-trips text",
    description=(
        "For each GGUF model in a folder: checks the file, finds its tokenizer, loads the"
        " tokenizer in a process with limits, and encodes and decodes text. Exits 0 if all is"
        " well, 1 if something is wrong, 2 if something could not be tried."
    ),
    arguments=doctor_arguments,
    main=doctor_main,
    libraries=("tokenizers",),
)
