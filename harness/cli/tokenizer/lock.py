"""`rankproof tokenizer lock`.

Loads a tokenizer and writes down exactly what it is: commit, sha256 of every file, identity, and the versions it was
made with. Exits 0 when the file is written, 2 if the hub, the cache or transformers failed, 64 if the source may not be
used.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.cli import PASS

HELP = "write a lock file that pins a tokenizer by commit, file digests and identity"
LIBRARIES = ("huggingface_hub", "tokenizers", "transformers")
DEFAULT = "tokenizer.lock.json"


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
    from harness.cli.tokenizer.failed import failed
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
