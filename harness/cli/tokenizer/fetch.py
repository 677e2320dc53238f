"""`rankproof tokenizer fetch`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from harness.cli import PASS, USAGE, give_up
from harness.cli.streams import is_watched
from harness.cli.tokenizer import (
    ABSENT,
    LOCK_FILE,
    STRICT,
    TokenizerCommand,
    Undecided,
    bytes_,
    decided,
    failed,
    hub,
    refused,
    unreadable,
)

if TYPE_CHECKING:
    from harness.tokenizer.loading import Fetched, Lock
    from harness.tokenizer.loading.transfer import Progress
    from harness.tokenizer.model_files import ServedModelFiles


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source", nargs="?", metavar="SOURCE", help="org/model or org/model@REVISION on the hub"
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        dest="files",
        metavar="NAME",
        help=("file to fetch, such as a model file (repeatable; default: all tokenizer files)"),
    )
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit (default: main)")
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="fetch exactly the files of a lock file, including models",
    )
    parser.add_argument(
        "--for-models",
        type=Path,
        metavar="FOLDER",
        help="find the tokenizer of each GGUF model in this folder, and fetch the missing ones",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="reject a tokenizer that exists only inside the model (exit code 4)",
    )
    parser.add_argument(
        "--max-bytes", type=bytes_, metavar="SIZE", help="maximum download size (default: 1GiB)"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON per snapshot")
    hub(parser)


def main(options: argparse.Namespace) -> int:
    """Fetch, say where it lies."""
    from harness.tokenizer.loading import LoadError, SourceRefused, read_lock

    try:
        decided(options)
        lock = read_lock(options.lock) if options.lock else None
        if options.for_models is not None:
            return _for_models(options, lock)
        for source, revision, names, model in _wanted(options, lock):
            with progress(sys.stderr) as seen:
                snapshot = get(
                    options,
                    source,
                    revision=revision,
                    names=names,
                    lock=lock,
                    model=model,
                    seen=seen,
                )
            say(snapshot, as_json=options.json)
    except Undecided as error:
        return refused("tokenizer fetch", error)
    except SourceRefused as error:
        return give_up("tokenizer fetch", error, USAGE)
    except LoadError as error:
        return failed("fetch", error)
    return PASS


def _wanted(
    options: argparse.Namespace, lock: Lock | None
) -> Iterator[tuple[str, str | None, list[str], str | None]]:
    """Source, revision, names and model file of every snapshot that is asked for."""
    from harness.tokenizer.loading import SourceRefused

    if lock is None:
        if options.source is None:
            raise SourceRefused("give a SOURCE, such as org/model, or --lock")
        source, _, revision = options.source.partition("@")
        if revision and options.revision:
            raise SourceRefused(
                f"{options.source} and --revision name different revisions; give one"
            )
        yield source, revision or options.revision, options.files, None
        return
    if options.files or options.revision or options.source not in {None, lock.repository}:
        raise SourceRefused(
            "--lock already says what to fetch; leave out SOURCE, --file and --revision"
        )
    if lock.repository is None:
        raise SourceRefused(
            f"{options.lock} was made from a local folder, so its files cannot be fetched from a"
            " hub; copy that folder, or pass a lock file that was made from a repository"
        )
    yield lock.repository, None, [], None
    for record in lock.models:
        if record.repository is None:
            print(
                f"{record.path}: the lock file has its digest, but no repository to fetch it from",
                file=sys.stderr,
            )
        else:
            yield record.repository, None, [], record.path


def _for_models(options: argparse.Namespace, lock: Lock | None) -> int:
    """Find, fetch and prove the tokenizer of each model.

    The lock of the folder is used where none is named.
    """
    from harness.tokenizer.loading import SourceRefused, read_lock
    from harness.tokenizer.model_files import models_below, serve
    from harness.tokenizer.problem import Unreadable

    if options.source is not None or options.files or options.revision:
        raise SourceRefused(
            "--for-models decides what to fetch; leave out SOURCE, --file and --revision"
        )
    models = models_below(options.for_models)
    if not models:
        raise SourceRefused(f"{options.for_models} contains no GGUF files")
    if lock is None and (lock_file := options.for_models / LOCK_FILE).is_file():
        lock = read_lock(lock_file)
    worst = PASS
    for model in models:
        try:
            with progress(sys.stderr) as seen:
                served = serve(model, get=getter(options, seen), lock=lock)
        except Unreadable as error:
            worst = max(worst, unreadable("fetch", error))
            continue
        for snapshot in served.fetched:
            say(snapshot, as_json=options.json)
        worst = max(worst, _served(model, served, strict=options.strict, as_json=options.json))
    return worst


def getter(
    options: argparse.Namespace, seen: Progress | None
) -> Callable[[str, Lock | None], Fetched]:
    """Return what fetches a tokenizer with what the command line says."""

    def fetched(source: str, bound: Lock | None) -> Fetched:
        name, _, revision = source.partition("@")
        return get(options, name, revision=revision or None, names=[], lock=bound, seen=seen)

    return fetched


def _served(model: Path, served: ServedModelFiles, *, strict: bool, as_json: bool) -> int:
    chosen = served.resolution.chosen
    code = STRICT if strict and not served.resolution.proven else PASS
    if chosen is None:
        code = ABSENT
    if as_json:
        place = str(chosen.path) if chosen else None
        row = {
            "model": str(model),
            "tokenizer": place,
            "proven": served.resolution.proven,
            "said": served.said,
        }
        print(json.dumps(row))
        return code
    for said in served.said:
        print(f"rankproof tokenizer fetch: {model}: {said}", file=sys.stderr)
    if chosen is None:
        print(f"{model}: no tokenizer found; `rankproof tokenizer resolve --explain` shows why")
    elif served.resolution.proven:
        print(f"{model}: {chosen.path}: {chosen.reasons[0]}")
    else:
        print(f"{model}: found only the tokenizer inside it: {chosen.reasons[0]}")
    return code


# What differs from call to call, by name; the rest is in the options.
def get(
    options: argparse.Namespace,
    source: str,
    *,
    revision: str | None = None,
    names: list[str],
    lock: Lock | None = None,
    model: str | None = None,
    seen: Progress | None = None,
) -> Fetched:
    """Fetch with what the command line says.

    Raises:
        LoadError: it could not be fetched.
    """
    from harness.tokenizer.loading import HubCache, SourceLimits, fetch

    most = options.max_bytes
    return fetch(
        source,
        revision=revision,
        names=names,
        lock=lock,
        model=model,
        cache=options.cache,
        deadline=options.deadline,
        lock_timeout=min(options.lock_timeout, options.deadline),
        endpoint=options.endpoint,
        limits=SourceLimits(file_bytes=most, total_bytes=most) if most else None,
        offline=options.offline,
        hub_cache=HubCache.of_user() if options.hub_cache else None,
        seen=seen,
    )


def say(snapshot: Fetched, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Print what was fetched, and on standard error what a reader should know."""
    for remark in snapshot.remarks:
        print(f"rankproof tokenizer fetch: {remark}", file=sys.stderr)
    received = sum(request.received for request in snapshot.requests)
    if as_json:
        files = [file.model_dump() for file in snapshot.files]
        row = {
            "repository": snapshot.repository.name,
            "commit": snapshot.commit,
            "folder": str(snapshot.folder),
            "files": files,
            "requests": len(snapshot.requests),
            "received": received,
        }
        print(json.dumps(row))
        return
    total = sum(file.size for file in snapshot.files)
    how = (
        f"{received:,} bytes in {len(snapshot.requests)} requests"
        if snapshot.requests
        else "all of it was cached"
    )
    print(
        f"{snapshot.repository.name}@{snapshot.commit}: {len(snapshot.files)} files, {total:,}"
        f" bytes; {how}",
        file=stream,
    )
    print(snapshot.folder, file=stream)


@contextmanager
def progress(stream: TextIO) -> Iterator[Progress | None]:
    """Bar for each file where somebody watches; nothing elsewhere."""
    if not is_watched(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    from harness.forms.text import visible

    console = Console(file=getattr(stream, "bare", stream))
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console, transient=True) as bars:

        def seen(path: str, have: int, size: int) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(visible(path, 60), total=size)
            bars.update(tasks[path], completed=have)

        yield seen


FETCH = TokenizerCommand(
    help="fetch tokenizer or model files into the cache; resume an interrupted fetch",
    description=(
        "Fetches the files of a tokenizer, or named files such as a model's, into a verified"
        " snapshot, and prints its path. An interrupted fetch resumes where it stopped. Nothing"
        " is loaded from the files, and no library is needed."
    ),
    arguments=arguments,
    main=main,
)
