"""`rankproof tokenizer verify`.

Says whether a folder, or a repository at the locked commit, still is the locked tokenizer, and in
words what differs. Exits 0 if it is the same, 1 if it differs, 2 if that could not be decided, 64
if the lock or the source may not be used. Code beside the tokenizer is run only if its bytes are
the locked ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import FAIL, PASS
from harness.cli.tokenizer.lock import DEFAULT, sources, undecided
from harness.cli.tokenizer.settings import Undecided, decided, refused

HELP = "say whether a tokenizer is the locked one, and what differs"
LIBRARIES = ("huggingface_hub", "tokenizers", "transformers")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a folder (./, / or ~ first), or org/model as in the lock"
    )
    parser.add_argument(
        "--lock",
        type=Path,
        default=Path(DEFAULT),
        metavar="FILE",
        help=f"the lock file (default: {DEFAULT})",
    )
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a model file that the lock must hold",
    )
    sources(parser)


def main(options: argparse.Namespace) -> int:
    """Load under the lock, say what differs."""
    from harness.tokenizer.loading import LoadError, read_lock, verify
    from harness.tokenizer.model_files import model_difference

    try:
        decided(options)
        lock = read_lock(options.lock)
        models = [said for path in options.model if (said := model_difference(lock, path))]
        answer = verify(
            options.source,
            lock=lock,
            cache=options.cache,
            deadline=options.deadline,
            trust_remote_code=options.trust_remote_code,
            endpoint=options.endpoint,
            offline=options.offline,
        )
    except Undecided as error:
        return refused("tokenizer verify", error)
    except LoadError as error:
        return undecided("verify", error)
    for remark in answer.remarks:
        print(f"note: {remark}")
    differences = (*answer.differences, *models)
    for said in differences:
        print(said)
    print("different" if differences else "the same")
    return FAIL if differences else PASS
