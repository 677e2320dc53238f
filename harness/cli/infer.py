"""`rankproof tokenizer infer`.

Continues a prompt with a GGUF model: finds its tokenizer, proves that it is the model's, and runs
the model's own weights. Whatever stands in the way is an error; nothing ever stands in for a
tokenizer or for a model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, PASS, USAGE, give_up
from harness.cli.arguments import positive
from harness.cli.tokenizer import (
    ABSENT,
    DAMAGED,
    FORCE_CPU,
    STRICT,
    Undecided,
    bytes_,
    decided,
    failed,
    hub,
    refused,
)
from harness.cli.tokenizer.fetch import getter, progress, say

if TYPE_CHECKING:
    from harness.tokenizer.discovery import Candidate, Resolution
    from harness.tokenizer.model_files import ServedModelFiles

ENGINE = 16
INSIDE = "inside"
"""What `--tokenizer` is given to use the tokenizer inside the model.

A folder of that name is ./inside.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="a GGUF file")
    parser.add_argument("--prompt", required=True, help="text to continue")
    parser.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="tokenizer.json, its folder, org/model@REV, or `inside` for the model's own tokenizer",
    )
    parser.add_argument(
        "--auto-download",
        action="store_true",
        help="fetch the tokenizer that the model names",
    )
    parser.add_argument(
        "--max-new-tokens",
        "--max-tokens",
        type=positive,
        default=16,
        metavar="N",
        help="maximum number of new tokens (default: 16)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="device to run on (default: auto)",
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "transformers", "llama.cpp"),
        default="auto",
        help=(
            "engine to use (default: auto, which is transformers, or llama.cpp if transformers"
            " refuses the model)"
        ),
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="accepted for compatibility with BitNet; has no effect",
    )
    parser.add_argument(
        "--allow-mock", action="store_true", help="not supported: rankproof has no mock models"
    )
    parser.add_argument(
        "--max-bytes", type=bytes_, metavar="SIZE", help="maximum download size (default: 1GiB)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    hub(parser)


def main(options: argparse.Namespace) -> int:
    """Resolve, prove, run, say."""
    from harness.tokenizer.engines.generation import EngineRefused
    from harness.tokenizer.loading import LoadError
    from harness.tokenizer.loading.intact import unchanged
    from harness.tokenizer.problem import Absent, Unreadable

    if options.allow_mock:
        return give_up(
            "tokenizer infer",
            "--allow-mock: not supported, because a mock answers any prompt; remove this option",
            USAGE,
        )
    try:
        options.force_cpu = False
        decided(options)
        with ExitStack() as held:
            scratch = held.enter_context(tempfile.TemporaryDirectory(prefix="rankproof-"))
            # What is resolved, and what then runs, has to be the same file.
            held.enter_context(unchanged(options.model))
            served = (
                _inner(options, Path(scratch)) if options.tokenizer == INSIDE else _served(options)
            )
            return _answered(options, served, held)
    except Undecided as error:
        return refused("infer", error)
    except LoadError as error:
        return failed("infer", error)
    except EngineRefused as error:
        return give_up("tokenizer infer", error, ENGINE)
    except Unreadable as error:
        return give_up("tokenizer infer", error, ABSENT if isinstance(error, Absent) else DAMAGED)


def _answered(options: argparse.Namespace, served: ServedModelFiles, held: ExitStack) -> int:
    """Run the model with its tokenizer, or say why none is proven to be that.

    Nothing is said if the file changed.
    """
    from harness.tokenizer.engines.generation import continued

    code, tokenizer = _proven(served.resolution)
    if tokenizer is None:
        for said in (*_against(served.resolution), *served.said):
            print(f"    {said}", file=sys.stderr)
        if any(
            (candidate.origin, candidate.standing) == ("inside", "usable")
            for candidate in served.resolution.candidates
        ):
            _offer(options.model)
        return give_up(
            "tokenizer infer",
            f"{options.model}: no tokenizer is proven to belong to the model; see above",
            code,
        )
    forced = options.force_cpu and options.device in {"auto", "cpu"}
    if options.force_cpu and not forced:
        return give_up(
            "tokenizer infer",
            f"{FORCE_CPU} and --device {options.device} contradict each other; unset one",
            USAGE,
        )
    continuation = continued(
        options.model,
        tokenizer=tokenizer.path,
        read=tokenizer.read,
        prompt=options.prompt,
        most=options.max_new_tokens,
        device="cpu" if forced else options.device,
        reason=f"{FORCE_CPU}={os.environ[FORCE_CPU]}" if forced else "",
        engine=options.engine,
    )
    held.close()
    if options.json:
        print(
            json.dumps(
                asdict(continuation)
                | {
                    "model": str(options.model),
                    "tokenizer": _shown(options, tokenizer),
                }
            )
        )
        return PASS
    print(
        f"tokenizer  {_shown(options, tokenizer)}: proven to belong to the model", file=sys.stderr
    )
    print(f"engine     {continuation.engine}", file=sys.stderr)
    print(
        f"device     requested {continuation.asked}, used {continuation.device}:"
        f" {continuation.why}",
        file=sys.stderr,
    )
    spent = (
        f"{continuation.load_seconds:.2f} s to load, {continuation.run_seconds:.2f} s for"
        f" {len(continuation.ids)} tokens"
    )
    print(f"time       {spent}", file=sys.stderr)
    for remark in continuation.remarks:
        print(f"note       {remark}", file=sys.stderr)
    print(f"ids        {' '.join(map(str, continuation.ids))}", file=sys.stderr)
    print(continuation.text)
    return PASS


def _shown(options: argparse.Namespace, tokenizer: Candidate) -> str:
    """Where the tokenizer is from; the folder that it was written out to is gone by then."""
    return "from inside the model" if options.tokenizer == INSIDE else str(tokenizer.path)


def _offer(model: Path) -> None:
    """Say how to use the tokenizer inside a model, where it can be written out."""
    from harness.tokenizer.formats.gguf import written_out
    from harness.tokenizer.problem import Unreadable

    try:
        written_out(model)
    except Unreadable as error:
        print(f"    {error}", file=sys.stderr)
        return
    print(f"    the model contains a tokenizer; --tokenizer {INSIDE} uses it", file=sys.stderr)


def _inner(options: argparse.Namespace, scratch: Path) -> ServedModelFiles:
    """Tokenizer inside the model, written out as a tokenizer.json and held against the model
    like any other.
    """
    from harness.tokenizer.discovery import admit, resolve
    from harness.tokenizer.formats.gguf import written_out
    from harness.tokenizer.model_files import ServedModelFiles

    admit(options.model)
    file = scratch / "tokenizer.json"
    file.write_bytes(written_out(options.model))
    return ServedModelFiles(resolution=resolve(options.model, tokenizer=file), fetched=(), said=())


def _served(options: argparse.Namespace) -> ServedModelFiles:
    """Tokenizer that is named, or the one that is found, or fetched where that is allowed."""
    from harness.tokenizer.discovery import resolve
    from harness.tokenizer.loading import SourceRefused
    from harness.tokenizer.model_files import ServedModelFiles, serve

    with progress(sys.stderr) as seen:
        get = getter(options, seen)
        if options.tokenizer is not None:
            place = Path(options.tokenizer).expanduser()
            if not place.exists() and "@" in options.tokenizer:
                fetched = get(options.tokenizer, None)
                return ServedModelFiles(
                    resolution=resolve(options.model, tokenizer=fetched.folder),
                    fetched=(fetched,),
                    said=(),
                )
            if "://" in options.tokenizer:
                raise SourceRefused(
                    f"{options.tokenizer}: a URL does not pin a version; give org/model@REVISION,"
                    " or a file"
                )
            return ServedModelFiles(
                resolution=resolve(options.model, tokenizer=place), fetched=(), said=()
            )
        if options.auto_download:
            served = serve(options.model, get=get)
        else:
            served = ServedModelFiles(
                resolution=resolve(options.model),
                fetched=(),
                said=("--auto-download fetches it, if the model names one",),
            )
    for snapshot in served.fetched:
        say(snapshot, as_json=False, stream=sys.stderr)
    return served


def _proven(resolution: Resolution) -> tuple[int, Candidate | None]:
    """Exit code, and the tokenizer to use.

    A tokenizer that only the GGUF file holds no engine here can be given.
    """
    if resolution.proven and resolution.chosen is not None:
        return PASS, resolution.chosen
    if any(
        candidate.origin == "named" and candidate.standing == "differs"
        for candidate in resolution.candidates
    ):
        return FAIL, None
    return (
        (STRICT, None)
        if any(candidate.standing == "usable" for candidate in resolution.candidates)
        else (ABSENT, None)
    )


def _against(resolution: Resolution) -> tuple[str, ...]:
    return (
        tuple(
            f"{candidate.origin} {candidate.path}: {candidate.standing}: {candidate.reasons[0]}"
            for candidate in resolution.candidates
        )
        + resolution.hints
    )
