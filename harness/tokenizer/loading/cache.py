"""The cache of snapshots as a whole: what it holds, whether it still is that, and making room.

Everything here may run beside loads and fetches. What is taken away first loses its name, what
somebody builds from is passed over, and what is damaged is put aside and not destroyed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.forms.strict_json import strict_json
from harness.tokenizer.loading.locks import exclusive, hold_lock
from harness.tokenizer.loading.manifest import SnapshotManifest
from harness.tokenizer.loading.snapshot import (
    ASIDE,
    Damaged,
    SnapshotStore,
    abandoned_partials,
    manifest_of,
    verified,
)
from harness.tokenizer.loading.source import HubRepository, SourceLimits, promises, resolve
from harness.tokenizer.loading.transfer import writing
from harness.tokenizer.loading.wire import HubClient
from harness.tokenizer.problem import CacheFailed, LoadError, LockTimeout


@dataclass(frozen=True, kw_only=True)
class CachedSnapshot:
    """A snapshot in the cache.

    Attributes:
        place: its folder.
        manifest: what it says that it holds; None where that cannot be read.
        harm: why not, in words.
        since: when it was fetched, in seconds since 1970.
    """

    place: Path
    manifest: SnapshotManifest | None
    harm: str | None
    since: float

    @property
    def size(self) -> int:
        """Bytes of its files, as its manifest says."""
        return sum(file.size for file in self.manifest.files) if self.manifest is not None else 0

    @property
    def words(self) -> str:
        """Repository and commit, or the folder where the manifest cannot be read."""
        if self.manifest is None:
            return f"{self.place.parent.name}/{self.place.name}"
        return f"{self.manifest.repository}@{self.manifest.commit}"


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The outcome of removing a snapshot, or another folder of the cache.

    Attributes:
        place: its folder.
        why_not: why it stays; None if it went.
    """

    place: Path
    why_not: str | None


def cached_snapshots(store: SnapshotStore) -> list[CachedSnapshot]:
    """Every snapshot of a cache, the newest first.

    Nothing but manifests is read, and no link is followed.

    Raises:
        CacheFailed: the cache cannot be read.
    """
    try:
        return sorted(
            _cached_snapshots(store.root),
            key=lambda snapshot: (-snapshot.since, str(snapshot.place)),
        )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CacheFailed(
            f"cannot read {error.filename or store.root}: {error.strerror}"
        ) from error


def _cached_snapshots(root: Path) -> Iterator[CachedSnapshot]:
    for repository in root.iterdir():
        if repository.name.startswith(".") or repository.is_symlink() or not repository.is_dir():
            continue
        for place in repository.iterdir():
            if place.is_symlink() or not place.is_dir():
                continue
            manifest = None
            harm = None
            try:
                manifest = manifest_of(place)
            except (Damaged, CacheFailed) as error:
                harm = str(error)
            try:
                since = (place / "manifest.json").lstat().st_mtime
            except OSError:
                since = place.lstat().st_mtime
            yield CachedSnapshot(place=place, manifest=manifest, harm=harm, since=since)


def snapshot_harm(
    store: SnapshotStore, snapshot: CachedSnapshot, *, wire: HubClient | None = None
) -> str | None:
    """Say what is wrong with a snapshot; None if every byte is as its manifest says.

    Args:
        store: the cache.
        snapshot: the snapshot.
        wire: to its hub, to compare it with what the hub lists too; None to ask nobody.

    Raises:
        LoadError: that could not be found out.
    """
    if snapshot.manifest is None:
        return snapshot.harm
    manifest = snapshot.manifest
    repository = HubRepository(endpoint=manifest.endpoint, name=manifest.repository)
    names = tuple(file.path for file in manifest.files)
    if snapshot.place.parent.parent != store.root:
        return f"{snapshot.place} is not in the cache {store.root}"
    try:
        verified(snapshot.place)
    except Damaged as damage:
        return str(damage)
    if wire is None:
        return None
    chosen = () if snapshot.place.name == manifest.commit else names
    listed = promises(
        wire,
        repository,
        resolve(wire, repository, manifest.commit),
        limits=SourceLimits(),
        names=chosen,
    )
    if odd := sorted(set(names) ^ {promise.path for promise in listed}):
        return f"{snapshot.place}: its files differ from the hub's listing: {', '.join(odd[:3])}"
    for promise in listed:
        said = promise.broken_by_file(snapshot.place / "files" / promise.path)
        if said is not None:
            return f"{snapshot.place}: {promise.path} differs from the hub's listing: {said}"
    return None


def put_aside(store: SnapshotStore, snapshot: CachedSnapshot, why: str) -> Removed:
    """Move a snapshot where nothing is loaded from, with the reason beside it.

    Raises:
        CacheFailed: the cache cannot be written.
    """
    return _alone(store, snapshot.place, partial(store.put_aside, snapshot.place, why))


def set_aside(store: SnapshotStore) -> list[tuple[Path, str]]:
    """List what was put aside, with its reason, the oldest first."""
    aside: list[tuple[Path, str]] = []
    for place in sorted(
        (store.root / ASIDE).glob("*"), key=lambda path: path.name.rpartition("-")[2]
    ):
        try:
            said = strict_json((place / "reason.json").read_bytes())
            aside.append((place, str(said["harm"])))
        except (OSError, ValueError, KeyError, TypeError):
            aside.append((place, "no reason was recorded"))
    return aside


def prune(
    store: SnapshotStore, *, older_than: float, keep_newest: int, dry: bool = False
) -> list[Removed]:
    """Remove snapshots that are old and not among the newest, parts that nobody goes on from, and
    what was put aside.

    Args:
        store: the cache.
        older_than: seconds since it was fetched.
        keep_newest: so many stay, however old.
        dry: only say what would go.

    Raises:
        CacheFailed: the cache cannot be written.
    """
    now = time.time()
    gone: list[Removed] = []
    for snapshot in cached_snapshots(store)[keep_newest:]:
        if now - snapshot.since > older_than:
            place = snapshot.place
            if dry:
                gone.append(Removed(place=place, why_not=None))
            else:
                gone.append(_alone(store, place, partial(store.take_away, place)))
    with writing(store.root):
        rest = (
            [*abandoned_partials(store.root), *(store.root / ASIDE).glob("*")]
            if store.root.exists()
            else []
        )
        for folder in rest:
            if now - folder.lstat().st_mtime > older_than:
                if not dry:
                    shutil.rmtree(folder, ignore_errors=True)
                gone.append(Removed(place=folder, why_not=None))
    return gone


def _alone(store: SnapshotStore, place: Path, take: Callable[[], None]) -> Removed:
    """Take a snapshot's name away while nobody fetches it, or builds from it."""
    try:
        with (
            hold_lock(store.lock(place), what=str(place), seconds=0.05),
            exclusive(place / "files" if (place / "files").is_dir() else place) as free,
        ):
            if not free:
                return Removed(place=place, why_not="a process is using it")
            with writing(place):
                take()
    except LockTimeout as error:
        return Removed(place=place, why_not=f"a process is fetching it: {error}")
    except FileNotFoundError:
        return Removed(place=place, why_not="it was already removed")
    except LoadError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Removed(place=place, why_not="it was already removed")
        raise
    return Removed(place=place, why_not=None)
