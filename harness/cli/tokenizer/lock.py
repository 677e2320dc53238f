"""`rankproof tokenizer lock`.

Loads a tokenizer and writes down exactly what it is: commit, sha256 of every file, identity, and the versions it was
made with. Exits 0 when the file is written, 2 if the hub, the cache or transformers failed, 64 if the source may not be
used.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import INCONCLUSIVE, PASS, USAGE

if TYPE_CHECKING:
    from harness.tokenizer.loading import LoadError

HELP = "write a lock file that pins a tokenizer by commit, file digests and identity"
LIBRARIES = ("huggingface_hub", "tokenizers", "transformers")
DEFAULT = "tokenizer.lock.json"
LAST_LINES = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="SOURCE", help="org/model on the hub, or a folder (./, / or ~ first)")
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit (default: main)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(DEFAULT), metavar="FILE", help=f"the lock file (default: {DEFAULT})"
    )
    sources(parser)


def sources(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads."""
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code beside the tokenizer; a hub's only at a commit"
    )
    parser.add_argument("--endpoint", metavar="URL", help="the hub (default: HF_ENDPOINT, else the public one)")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where snapshots are kept")
    parser.add_argument(
        "--deadline", type=_duration, default=120.0, metavar="TIME", help="for everything that waits (default: 2min)"
    )


def _duration(text: str) -> float:
    from pydantic_core import PydanticCustomError

    from harness.forms.units import duration

    try:
        return duration(text)
    except PydanticCustomError as error:
        meant = (error.context or {}).get("suggestion")
        raise argparse.ArgumentTypeError(f"{error}{f'; did you mean {meant}?' if meant else ''}") from None


def main(options: argparse.Namespace) -> int:
    """Load, write, say what was written."""
    from harness.tokenizer.loading import LoadError, load, write_lock

    try:
        loaded = load(
            options.source,
            revision=options.revision,
            cache=options.cache,
            deadline=options.deadline,
            trust_remote_code=options.trust_remote_code,
            endpoint=options.endpoint,
        )
        lock = loaded.lock()
        write_lock(lock, options.output)
    except LoadError as error:
        return failed("lock", error)
    for remark in loaded.remarks:
        print(f"rankproof tokenizer lock: {remark}", file=sys.stderr)
    commit = f" at {loaded.commit}" if loaded.commit else ""
    print(f"{options.output}: {options.source}{commit}, {len(lock.files)} files")
    print(f"semantic  {loaded.identity.semantic}\nfull      {loaded.identity.full}")
    return PASS


def failed(command: str, error: LoadError) -> int:
    """Say on standard error why a load failed: the error, its causes, the requests that failed, what libraries said.

    Returns:
        The exit code.
    """
    from harness.tokenizer.loading import SourceRefused
    from harness.tokenizer.problem import first_line

    print(f"rankproof tokenizer {command}: {error}", file=sys.stderr)
    cause = error.__cause__
    while cause is not None:
        print(f"  because of {type(cause).__name__}: {first_line(cause)}", file=sys.stderr)
        cause = cause.__cause__
    for request in error.requests:
        if request.problem:
            print(f"  {request.method} {request.path}, attempt {request.attempt}: {request.problem}", file=sys.stderr)
    for line in error.logs[-LAST_LINES:]:
        seen = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
        print(f"  {seen}", file=sys.stderr)
    return USAGE if isinstance(error, SourceRefused) else INCONCLUSIVE
