"""`rankproof tokenizer cache`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, PASS
from harness.cli.tokenizer import (
    TokenizerCommand,
    Undecided,
    asking,
    cache_argument,
    decided,
    duration,
    failed,
    refused,
)

if TYPE_CHECKING:
    from harness.tokenizer.loading.snapshot import SnapshotStore

DAY = 86_400


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    cache_argument(actions.add_parser("path", help="print the path of the cache"))
    ls = actions.add_parser("ls", help="list the snapshots, newest first")
    check = actions.add_parser(
        "verify", help="check every byte against the manifests; exit 1 if any byte differs"
    )
    check.add_argument(
        "--huggingface", action="store_true", help="also check the blobs of huggingface_hub's cache"
    )
    prune = actions.add_parser(
        "prune", help="remove old snapshots, but keep the newest and those in use"
    )
    prune.add_argument(
        "--older-than",
        type=duration,
        default=30.0 * DAY,
        metavar="TIME",
        help="remove only snapshots fetched longer ago than this (default: 30d)",
    )
    prune.add_argument(
        "--keep-newest",
        type=_count,
        default=10,
        metavar="N",
        help="number of newest snapshots to keep (default: 10)",
    )
    prune.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    aside = actions.add_parser(
        "quarantine", help="move damaged snapshots aside, so that nothing is loaded from them"
    )
    for action in (ls, prune, aside):
        cache_argument(action)
    asking(check)
    for action in (ls, check):
        action.add_argument(
            "--json", action="store_true", help="print one line of JSON per snapshot"
        )


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError("must be a whole number, 0 or more")
    return int(text)


def main(options: argparse.Namespace) -> int:
    """Do what the action says."""
    from harness.tokenizer.loading import LoadError
    from harness.tokenizer.loading.fetch import snapshots
    from harness.tokenizer.loading.snapshot import SnapshotStore

    actions: dict[str, Callable[[SnapshotStore, argparse.Namespace], int]] = {
        "path": _path,
        "ls": _ls,
        "verify": _verify,
        "prune": _prune,
        "quarantine": _quarantine,
    }
    try:
        decided(options)
        return actions[options.action](
            SnapshotStore(Path(options.cache) if options.cache else snapshots()), options
        )
    except Undecided as error:
        return refused("tokenizer cache", error)
    except LoadError as error:
        return failed("cache", error)


def _path(store: SnapshotStore, _options: argparse.Namespace) -> int:
    print(store.root)
    return PASS


def _ls(store: SnapshotStore, options: argparse.Namespace) -> int:
    from harness.tokenizer.loading.cache import cached_snapshots, set_aside

    now = time.time()
    for snapshot in cached_snapshots(store):
        days = int((now - snapshot.since) // DAY)
        if options.json:
            hub = snapshot.manifest.endpoint if snapshot.manifest else None
            files = len(snapshot.manifest.files) if snapshot.manifest else None
            row = {
                "snapshot": snapshot.words,
                "hub": hub,
                "folder": str(snapshot.place),
                "files": files,
                "bytes": snapshot.size,
            }
            print(json.dumps({**row, "days": days, "harm": snapshot.harm}))
            continue
        what = (
            f"{len(snapshot.manifest.files)} files, {snapshot.size:,} bytes"
            if snapshot.manifest
            else f"unreadable: {snapshot.harm}"
        )
        print(f"{snapshot.words}\n    {what}, fetched {days} days ago\n    {snapshot.place}")
    for place, why in set_aside(store):
        print(f"put aside: {place}\n    {why}", file=sys.stderr)
    return PASS


def _verify(store: SnapshotStore, options: argparse.Namespace) -> int:
    from harness.tokenizer.loading import HubCache
    from harness.tokenizer.loading.cache import cached_snapshots, snapshot_harm
    from harness.tokenizer.loading.fetch import checked_deadline, forbidden_by, stored_token
    from harness.tokenizer.loading.intact import DIGESTS
    from harness.tokenizer.loading.intact import blob_harm as harm_of_blob
    from harness.tokenizer.loading.source import checked_endpoint
    from harness.tokenizer.loading.wire import HubClient

    worst = PASS

    def say(what: str, harmed: str | None, known: str) -> None:
        nonlocal worst
        worst = FAIL if harmed else worst
        if options.json:
            print(json.dumps({"what": what, "harm": harmed}))
        else:
            print(f"{what}: {harmed or known}")

    asks = not options.offline and forbidden_by() is None
    until = checked_deadline(options.deadline, options.deadline)
    endpoint = checked_endpoint(options.endpoint) if asks else None
    for snapshot in cached_snapshots(store):
        # Another hub than the one that is asked cannot vouch for it.
        is_asked = snapshot.manifest is not None and snapshot.manifest.endpoint == endpoint
        wire = (
            HubClient(endpoint=endpoint, token=stored_token(None), deadline=until)
            if endpoint and is_asked
            else None
        )
        known = (
            "every byte matches the hub's listing" if wire else "every byte matches its manifest"
        )
        say(snapshot.words, snapshot_harm(store, snapshot, wire=wire), known)
    if options.huggingface:
        for blob in HubCache.of_user().blobs():
            known = (
                "every byte matches its name"
                if len(blob.name) in DIGESTS
                else "not compared, because its name is not a digest"
            )
            say(str(blob), harm_of_blob(blob), known)
    return worst


def _prune(store: SnapshotStore, options: argparse.Namespace) -> int:
    from harness.tokenizer.loading.cache import prune

    went = prune(
        store, older_than=options.older_than, keep_newest=options.keep_newest, dry=options.dry_run
    )
    outcome = "would be removed" if options.dry_run else "removed"
    for snapshot in went:
        print(f"{snapshot.place}: {f'kept: {snapshot.why_not}' if snapshot.why_not else outcome}")
    if not went:
        print("nothing to prune")
    return PASS


def _quarantine(store: SnapshotStore, _options: argparse.Namespace) -> int:
    from harness.tokenizer.loading.cache import cached_snapshots, put_aside, snapshot_harm

    count = 0
    for snapshot in cached_snapshots(store):
        why = snapshot_harm(store, snapshot)
        if why is None:
            continue
        count += 1
        done = put_aside(store, snapshot, why)
        print(
            f"{snapshot.words}: {'kept: ' + done.why_not if done.why_not else 'put aside'}: {why}"
        )
    if not count:
        print("nothing is damaged")
    return PASS


CACHE = TokenizerCommand(
    help="list, check, prune or repair the cache of fetched files",
    description=(
        "Lists the cache of fetched files, checks every byte against its manifest, and frees"
        " space. It can run during loads and fetches: it skips snapshots in use, and moves"
        " damaged ones aside."
    ),
    arguments=arguments,
    main=main,
)
