"""`rankproof tokenizer lock` and `rankproof tokenizer verify`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE
from harness.cli.tokenizer import (
    LOCK_FILE,
    TokenizerCommand,
    Undecided,
    asking,
    decided,
    refused,
    tell,
)

if TYPE_CHECKING:
    from harness.tokenizer.loading import LoadError, ModelRecord

OF_REPOSITORY = re.compile(r"(?P<repository>[^@:]+)@(?P<commit>[0-9a-f]{40}):(?P<file>.+)")
MODEL_BYTES = 1 << 42
"""The most that a model file may have."""


def lock_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="org/model on the hub, or a folder (starting with ./, / or ~)",
    )
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit (default: main)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(LOCK_FILE),
        metavar="FILE",
        help=f"the lock file (default: {LOCK_FILE})",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="FILE",
        help="model file that uses the tokenizer: FILE, or org/model@COMMIT:FILE if it was fetched"
        " (repeatable)",
    )
    sources(parser)


def sources(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads."""
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the tokenizer's own code (from a hub, only at a given commit)",
    )
    asking(parser)


def lock_main(options: argparse.Namespace) -> int:
    """Load, write, say what was written."""
    from harness.tokenizer.loading import LoadError, load, write_lock

    try:
        decided(options)
        loaded = load(
            options.source,
            revision=options.revision,
            cache=options.cache,
            deadline=options.deadline,
            trust_remote_code=options.trust_remote_code,
            endpoint=options.endpoint,
            offline=options.offline,
        )
        lock = loaded.lock(models=_models(options, loaded.snapshot))
        write_lock(lock, options.output)
    except Undecided as error:
        return refused("tokenizer lock", error)
    except LoadError as error:
        return undecided("lock", error)
    for remark in loaded.remarks:
        print(f"rankproof tokenizer lock: {remark}", file=sys.stderr)
    commit = f" at {loaded.commit}" if loaded.commit else ""
    models_too = f", {len(lock.models)} model files" if lock.models else ""
    print(f"{options.output}: {options.source}{commit}, {len(lock.files)} files{models_too}")
    print(f"semantic  {loaded.identity.semantic}\nfull      {loaded.identity.full}")
    return PASS


def _models(options: argparse.Namespace, tokenizer: Path) -> tuple[ModelRecord, ...]:
    """Model files that are named, from this machine or from a repository.

    Each is one of this tokenizer.

    Raises:
        LoadError: one cannot be read or fetched, or holds another tokenizer.
    """
    from harness.tokenizer.loading import fetch
    from harness.tokenizer.loading.source import SourceLimits
    from harness.tokenizer.model_files import (
        record_of_file,
        records_of_fetched,
        require_tokenizer,
        sorted_records,
    )

    records: list[ModelRecord] = []
    for text in options.model:
        named = OF_REPOSITORY.fullmatch(text)
        if named is None or Path(text).exists():
            require_tokenizer(Path(text), tokenizer)
            records.append(record_of_file(Path(text)))
            continue
        snapshot = fetch(
            named["repository"],
            revision=named["commit"],
            names=[named["file"]],
            cache=options.cache,
            deadline=options.deadline,
            endpoint=options.endpoint,
            offline=options.offline,
            limits=SourceLimits(file_bytes=MODEL_BYTES, total_bytes=MODEL_BYTES),
        )
        require_tokenizer(snapshot.folder / named["file"], tokenizer)
        records += records_of_fetched(snapshot)
    return sorted_records(records)


def undecided(command: str, error: LoadError) -> int:
    """Say why; these commands decide whether something is the same, so what failed decides
    nothing.
    """
    from harness.tokenizer.loading import IdentityDiffers, SourceRefused

    tell(command, error)
    if isinstance(error, IdentityDiffers):
        return FAIL
    return USAGE if isinstance(error, SourceRefused) else INCONCLUSIVE


LOCK = TokenizerCommand(
    help="write a lock file that pins a tokenizer by commit, file digests and identity",
    description=(
        "Loads a tokenizer and records exactly what it is: commit, sha256 of every file,"
        " identity, and the library versions. Exits 0 when the file is written, 1 if a --model"
        " has a different tokenizer, 2 if the hub, the cache or transformers failed, 64 if the"
        " source may not be used."
    ),
    arguments=lock_arguments,
    main=lock_main,
    libraries=("huggingface_hub", "tokenizers", "transformers"),
)


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder (starting with ./, / or ~), or org/model as in the lock file",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        default=Path(LOCK_FILE),
        metavar="FILE",
        help=f"the lock file (default: {LOCK_FILE})",
    )
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="model file that the lock file must contain",
    )
    sources(parser)


def verify_main(options: argparse.Namespace) -> int:
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


VERIFY = TokenizerCommand(
    help="check that a tokenizer is the locked one, and show what differs",
    description=(
        "Checks whether a folder, or a repository at the locked commit, is still the locked"
        " tokenizer, and shows what differs. Exits 0 if it is the same, 1 if it differs, 2 if"
        " undecided, 64 if the lock file or the source may not be used. The tokenizer's own code is"
        " run only if it matches the lock file."
    ),
    arguments=verify_arguments,
    main=verify_main,
    libraries=("huggingface_hub", "tokenizers", "transformers"),
)
