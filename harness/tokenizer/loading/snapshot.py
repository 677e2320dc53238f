"""Snapshots: one folder per repository and commit that is complete and verified before it gets its name.

    CACHE/<repository>-<8 hex of the hub and name>/<commit>/manifest.json, files/…
    CACHE/.locks/…            who is fetching
    CACHE/.partial-…/         what is being fetched, or was by a process that has ended; the next one goes on from it

One process at a time fetches a snapshot; the others wait for it, and say whom they waited for if it never ends. The
lock only saves requests. A snapshot is complete before it gets its name, so where a file system's `flock` does nothing
or is refused, processes fetch side by side and the first one that is done wins.

A snapshot is never changed once it has its name. Nothing is remembered about files that do not exist: the manifest
lists what does, and everything else does not.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.model import parse_json
from harness.tokenizer.loading import partials
from harness.tokenizer.loading.failure import CacheFailed, HubFailed
from harness.tokenizer.loading.held import held
from harness.tokenizer.loading.listing import Promise
from harness.tokenizer.loading.manifest import FileRecord, Manifest, changes, examine, records
from harness.tokenizer.loading.source import HubRepository
from harness.tokenizer.loading.transfer import Progress, Transfer, unwritable, writing
from harness.tokenizer.loading.wire import Wire

ASIDE = ".quarantine"
"""Where damaged snapshots are put; nothing there is used."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A verified folder of tokenizer files.

    Attributes:
        folder: where the files lie, and nothing else.
        files: what was verified.
    """

    folder: Path
    files: tuple[FileRecord, ...]


class Damaged(Exception):
    """A snapshot in the cache is not what its manifest says."""


def manifest_of(place: Path) -> Manifest | None:
    """The manifest of the snapshot at a place; None if there is none.

    Raises:
        Damaged: there is something else.
        CacheFailed: it cannot be read.
    """
    try:
        text = (place / "manifest.json").read_bytes()
    except FileNotFoundError:
        if not place.exists():
            return None
        raise Damaged(f"{place} has no manifest.json") from None
    except OSError as error:
        raise CacheFailed(f"cannot read {place}/manifest.json: {error.strerror}") from error
    try:
        return parse_json(Manifest, text)
    except ValueError as error:
        raise Damaged(f"{place}/manifest.json cannot be read: {error}") from error


def compare(place: Path, manifest: Manifest) -> None:
    """Read every file of a snapshot and compare it with the manifest.

    Raises:
        Damaged: a file is missing, has other bytes or is one too many.
        CacheFailed: it cannot be read.
    """
    try:
        _only_files(place / "files", manifest)
        there = records(place / "files", only_tokenizer_files=False)
    except CacheFailed as failure:
        cause = failure.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.ELOOP:
            raise Damaged(f"{place}: {failure}") from failure
        if not isinstance(cause, FileNotFoundError):
            raise
        # Listed and gone: another process that found it damaged moves it aside just now.
        raise Damaged(f"{place} was taken away while it was read: {failure}") from failure
    if said := changes(manifest.files, there):
        raise Damaged(f"{place}: {'; '.join(said[:3])}")


def _only_files(folder: Path, manifest: Manifest) -> None:
    """A snapshot is made of files in plain folders: what a link leads to can change, or hide a whole folder."""
    wanted = {folder, *(above for file in manifest.files for above in (folder / file.path).parents)}
    if folder.is_symlink():
        raise Damaged(f"{folder} is a link, and a snapshot has none")
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            if path.is_symlink():
                raise Damaged(f"{path} is a link, and a snapshot has none")
            if name in folders and path not in wanted:
                raise Damaged(f"{path} was not there")
            if name in names and not path.is_file():
                raise Damaged(f"{path} is not a regular file")


def verified(place: Path, *, by_name: bool = True) -> Manifest:
    """The manifest of the snapshot at a place, where the place and every byte are what it says.

    This is the one comparison: verifying the cache, loading, fetching and resolving all come through here.

    Args:
        place: the snapshot's folder.
        by_name: whether its name has to be that of the repository and commit in the manifest, as in a cache.

    Raises:
        Damaged: a file is missing, has other bytes or is one too many, or the place belongs to another snapshot.
        CacheFailed: it cannot be read.
    """
    manifest = manifest_of(place)
    if manifest is None:
        raise Damaged(f"{place} was taken away")
    for one in (place, place / "manifest.json") if by_name else ():
        if one.is_symlink():
            raise Damaged(f"{one} is a link, and a snapshot has none")
    if by_name:
        repository = HubRepository(endpoint=manifest.endpoint, name=manifest.repository)
        names = tuple(file.path for file in manifest.files)
        store = Store(place.parent.parent)
        # A few files that were asked for by name would otherwise pass for the whole tokenizer.
        if place != store.place(repository, manifest.commit, names if manifest.chosen else ()):
            raise Damaged(
                f"{place} holds commit {manifest.commit} of {manifest.repository} from {manifest.endpoint}, "
                "which does not belong there"
            )
    compare(place, manifest)
    return manifest


class Store:
    """The cache of snapshots below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, repository: HubRepository, commit: str, names: tuple[str, ...] = ()) -> Path:
        """Where the snapshot lies, or would lie. Two hubs never share one: only each one's own word is verified.

        Args:
            repository: whose.
            commit: 40 hex digits.
            names: the files it holds, where that is not the tokenizer: each choice has a folder of its own.
        """
        key = sha256(f"{repository.endpoint}\n{repository.name}".encode())[:8]
        chosen = f"-{sha256(chr(10).join(names).encode())[:8]}" if names else ""
        return self.root / f"{repository.name.replace('/', '--')}-{key}" / f"{commit}{chosen}"

    def find(self, repository: HubRepository, commit: str, names: tuple[str, ...] = ()) -> Snapshot | None:
        """The snapshot, its bytes read and compared with its manifest; None if there is none.

        Raises:
            Damaged: a file is missing, has other bytes or is one too many, or the manifest cannot be read.
            CacheFailed: it cannot be read at all.
        """
        place = self.place(repository, commit, names)
        if manifest_of(place) is None:
            return None
        manifest = verified(place)
        if (manifest.endpoint, manifest.repository, manifest.commit) != (repository.endpoint, repository.name, commit):
            raise Damaged(f"{place} holds commit {manifest.commit} of {manifest.repository} from {manifest.endpoint}")
        if names and tuple(file.path for file in manifest.files) != names:
            raise Damaged(f"{place} holds other files than {', '.join(names)}")
        return Snapshot(folder=place / "files", files=manifest.files)

    def fetching(
        self, repository: HubRepository, commit: str, *, seconds: float, names: tuple[str, ...] = ()
    ) -> contextlib.AbstractContextManager[bool]:
        """Be the only one who fetches this snapshot, where the file system has locks.

        Raises:
            LockTimeout: another process holds it and does not finish.
            CacheFailed: the cache cannot be written.
        """
        what = f"commit {commit} of {repository.name}"
        return held(self.lock(self.place(repository, commit, names)), what=what, seconds=seconds)

    def lock(self, place: Path) -> Path:
        """The lock file of a snapshot; its folder is made.

        Raises:
            CacheFailed: the cache cannot be written.
        """
        locks = self.root / ".locks"
        with writing(locks):
            locks.mkdir(parents=True, exist_ok=True)
        return locks / f"{place.parent.name}-{place.name}.lock"

    def fill(
        self,
        repository: HubRepository,
        commit: str,
        promises: Sequence[Promise],
        *,
        wire: Wire,
        names: tuple[str, ...] = (),
        elsewhere: Callable[[Transfer], bool] | None = None,
        seen: Progress | None = None,
    ) -> Snapshot:
        """Fetch every promised file into a folder of its own, verify it, and give it the snapshot's name.

        Args:
            repository: whose files.
            commit: 40 hex digits.
            promises: the files.
            wire: to the hub.
            names: see `place`.
            elsewhere: takes a file from another place on this machine; says whether it did.
            seen: is told how far each file is.

        Raises:
            HubFailed: a file did not come, or came with other bytes.
            BuildFailed: a file is not JSON with one meaning.
            CacheFailed: it cannot be written.
        """
        place = self.place(repository, commit, names)
        partial = partials.own(self.root, place)
        kept = False
        try:
            transfers = [
                Transfer(promise, target=partial / "files" / promise.path, tags=partial / "tags", seen=seen)
                for promise in promises
            ]
            partials.remove_others(partial / "files", {promise.path for promise in promises})
            self._has_room(sum(each.promise.size - each.position for each in transfers))
            files = tuple(
                each.record()
                if each.whole or (elsewhere is not None and elsewhere(each))
                else each.fetch(wire, repository, commit)
                for each in transfers
            )
            # Once, here: bytes that are compared with the manifest at every load need no second look.
            examine(partial / "files", (file.path for file in files))
            manifest = Manifest(
                schema=1,
                endpoint=repository.endpoint,
                repository=repository.name,
                commit=commit,
                files=files,
                chosen=bool(names),
            )
            with writing(partial):
                shutil.rmtree(partial / "tags", ignore_errors=True)
                (partial / partials.OF).unlink()
                with (partial / "manifest.json").open("xb") as stream:
                    stream.write(manifest.model_dump_json(by_alias=True, indent=1).encode() + b"\n")
                    stream.flush()
                    os.fsync(stream.fileno())
            return self._publish(partial, repository, commit, files, names)
        except (HubFailed, KeyboardInterrupt):
            kept = True
            raise
        finally:
            if kept:
                partials.leave(partial)
            shutil.rmtree(partial, ignore_errors=True)

    def _publish(
        self,
        partial: Path,
        repository: HubRepository,
        commit: str,
        files: tuple[FileRecord, ...],
        names: tuple[str, ...],
    ) -> Snapshot:
        place = self.place(repository, commit, names)
        for _ in range(3):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                partial.rename(place)
                _sync(place.parent)
                return Snapshot(folder=place / "files", files=files)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise unwritable(place, error) from error
            # Somebody was faster, on a file system without locks, or a damaged snapshot is in the way.
            why = "another process put a snapshot with other files there"
            try:
                there = self.find(repository, commit, names)
                if there is not None and there.files == files:
                    return there
            except Damaged as damage:
                why = str(damage)
            with contextlib.suppress(FileNotFoundError):
                self.put_aside(place, why)
        raise CacheFailed(f"{place} is replaced by another process again and again: give each its own cache")

    def put_aside(self, place: Path, why: str) -> None:
        """Move a snapshot where nothing is used, with the reason beside it: first its name, in one step.

        Raises:
            OSError: it is gone already, or cannot be moved.
        """
        target = self.root / ASIDE / f"{place.parent.name}-{place.name}-{time.time_ns():x}"
        target.parent.mkdir(parents=True, exist_ok=True)
        words = f"{place.parent.name}/{place.name}"
        with contextlib.suppress(Damaged, CacheFailed):
            manifest = manifest_of(place)
            words = f"{manifest.repository}@{manifest.commit}" if manifest is not None else words
        place.rename(target)
        # Where the place was a file or a link there is no room beside it, and the name has to be enough.
        with contextlib.suppress(OSError):
            if target.is_symlink():
                return
            (target / "reason.json").write_text(json.dumps({"snapshot": words, "harm": why}) + "\n", encoding="utf-8")

    def take_away(self, place: Path) -> None:
        """Remove a snapshot: first its name, in one step, so that nobody finds half of it.

        Raises:
            OSError: it is gone already, or cannot be moved.
        """
        aside = partials.name(self.root)
        place.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _has_room(self, needed: int) -> None:
        with writing(self.root):
            free = shutil.disk_usage(self.root).free
            if needed > free:
                lacks = f"{os.strerror(errno.ENOSPC)}: {needed:,} bytes are to be fetched, and {free:,} are free"
                raise OSError(errno.ENOSPC, lacks)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
