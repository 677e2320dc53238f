"""`rankproof tokenizer verify`.

Says whether a folder, or a repository at the locked commit, still is the locked tokenizer, and in words what differs.
Exits 0 if it is the same, 1 if it differs, 2 if that could not be decided, 64 if the lock or the source may not be
used. Code beside the tokenizer is run only if its bytes are the locked ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import FAIL, PASS
from harness.cli.tokenizer.lock import DEFAULT, failed, sources

HELP = "say whether a tokenizer is the locked one, and what differs"
LIBRARIES = ("huggingface_hub", "tokenizers", "transformers")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="SOURCE", help="a folder (./, / or ~ first), or org/model as in the lock")
    parser.add_argument(
        "--lock", type=Path, default=Path(DEFAULT), metavar="FILE", help=f"the lock file (default: {DEFAULT})"
    )
    sources(parser)


def main(options: argparse.Namespace) -> int:
    """Load under the lock, say what differs."""
    from harness.tokenizer.loading import LoadError, read_lock, verify

    try:
        answer = verify(
            options.source,
            lock=read_lock(options.lock),
            cache=options.cache,
            deadline=options.deadline,
            trust_remote_code=options.trust_remote_code,
            endpoint=options.endpoint,
        )
    except LoadError as error:
        return failed("verify", error)
    for remark in answer.remarks:
        print(f"note: {remark}")
    for said in answer.differences:
        print(said)
    print("different" if answer.differences else "the same")
    return FAIL if answer.differences else PASS
