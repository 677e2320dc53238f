"""`rankproof tokenizer resolve` and `rankproof tokenizer doctor`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS
from harness.cli.tokenizer import ABSENT, STRICT, TokenizerCommand, failed, unreadable
from harness.cli.tokenizer.settings import Undecided, decided, refused
from harness.forms.text import visible

if TYPE_CHECKING:
    from harness.tokenizer.discovery import Candidate, Resolution
    from harness.tokenizer.model_files import Health


def resolve_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("model", type=Path, metavar="MODEL.gguf", help="the model file")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="PATH", help="the only candidate: a file or a folder"
    )
    parser.add_argument(
        "--explain", action="store_true", help="print every candidate with every reason"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="take only what is proven by another file (exit code 4)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="look here, not in the usual caches (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="one object as JSON, for machines")


def resolve_main(options: argparse.Namespace) -> int:
    """Print what was found."""
    from harness.tokenizer.discovery import resolve
    from harness.tokenizer.loading.intact import hub_cache
    from harness.tokenizer.problem import Unreadable

    try:
        decided(options)
        # What the environment names is our own cache alone: the hub's is asked beside it.
        caches = [options.cache, hub_cache()] if isinstance(options.cache, Path) else options.cache
        found = resolve(
            options.model, tokenizer=options.tokenizer, caches=caches, strict=options.strict
        )
    except Undecided as error:
        return refused("tokenizer resolve", error)
    except Unreadable as error:
        return unreadable("resolve", error)
    code = _code(found, strict=options.strict)
    if options.json:
        row = asdict(found) | {"code": code}
        print(json.dumps(row, default=str))
        return code
    if found.chosen is not None:
        how = "proven: " if found.proven else ""
        print(
            f"{visible(str(found.chosen.path))} ({found.chosen.origin}):"
            f" {how}{visible(found.chosen.reasons[0])}"
        )
        for reason in () if options.explain else found.chosen.reasons[1:]:
            print(f"    {visible(reason)}")
    else:
        print(_refusal(code, found))
    if found.fingerprint is not None:
        print(f"fingerprint {found.fingerprint}")
    if options.explain or found.chosen is None:
        for number, one in enumerate(found.candidates, start=1):
            print(f"{number}. {one.origin}: {visible(str(one.path))}: {one.standing}")
            for reason in one.reasons:
                print(f"     {visible(reason)}")
        for hint in found.hints:
            print(f"hint: {visible(hint)}")
    return code


def _code(found: Resolution, *, strict: bool) -> int:
    if found.chosen is not None:
        return PASS
    standings = [one.standing for one in found.candidates]
    named = any(one.origin == "named" for one in found.candidates)
    if named and "differs" in standings:
        return FAIL
    if strict and ("usable" in standings or "undecided" in standings):
        return STRICT
    if "undecided" in standings:
        return INCONCLUSIVE
    return ABSENT


def _refusal(code: int, found: Resolution) -> str:
    said = {
        FAIL: "the named tokenizer is not the model's",
        STRICT: "no candidate is proven to be the model's tokenizer (strict)",
        INCONCLUSIVE: "whether a candidate is the model's tokenizer is not decided",
        ABSENT: "no tokenizer of this model was found",
    }
    return f"{visible(str(found.model))}: {said[code]}; {_asked(found.candidates)}"


def _asked(candidates: tuple[Candidate, ...]) -> str:
    return f"{len(candidates)} {'place was' if len(candidates) == 1 else 'places were'} asked:"


RESOLVE = TokenizerCommand(
    help="say which tokenizer belongs to a GGUF model, and why",
    description=(
        "Says which tokenizer belongs to a GGUF model: every candidate (inside the model, "
        "beside it, in the caches) is compared with the one inside, id by id. Exits 0 if one "
        "is chosen, 1 if the named one differs, 2 if that could not be decided, 3 if none is "
        "there, 4 if --strict refuses what is not proven, 5 if the model is damaged, 15 if it "
        "may not be read."
    ),
    arguments=resolve_arguments,
    main=resolve_main,
)


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
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


def doctor_main(options: argparse.Namespace) -> int:
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
        _say_doctor(found, as_json=options.json)
    if "ill" in words or (options.strict and "not tried" in words):
        return FAIL
    return INCONCLUSIVE if "not tried" in words else PASS


def _say_doctor(found: Health, *, as_json: bool) -> None:
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


DOCTOR = TokenizerCommand(
    help="say of each GGUF model of a folder whether its tokenizer is there, loads, and keeps texts",
    description=(
        "For each GGUF model of a folder: looks for what is wrong in the file, finds its "
        "tokenizer, loads that in a process with limits and sends texts there and back. Exits "
        "0 if all are well, 1 if something is wrong, 2 if something could not be tried."
    ),
    arguments=doctor_arguments,
    main=doctor_main,
    libraries=("tokenizers",),
)
