"""Snapshots: one folder per repository and commit that is complete and verified before it gets its
name.

    CACHE/<repository>-<8 hex of the hub and name>/<commit>/manifest.json, files/…
    CACHE/.locks/…            who is fetching
    CACHE/.partial-…/         what is being fetched, or was by a process that has ended: the next
                              one goes on from it

One process at a time fetches a snapshot; the others wait for it, and say whom they waited for if it
never ends. The lock only saves requests. A snapshot is complete before it gets its name, so where a
file system's `flock` does nothing or is refused, processes fetch side by side and the first one
that is done wins.

A snapshot is never changed once it has its name. Nothing is remembered about files that do not
exist: the manifest lists what does, and everything else does not.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.model import parse_json
from harness.forms.regular_file import read_regular
from harness.tokenizer.loading.locks import hold_lock
from harness.tokenizer.loading.manifest import (
    FileRecord,
    SnapshotManifest,
    changes,
    examine,
    records,
)
from harness.tokenizer.loading.source import HubRepository, Promise
from harness.tokenizer.loading.transfer import Progress, Transfer, unwritable, writing
from harness.tokenizer.loading.wire import HubClient
from harness.tokenizer.problem import CacheFailed, HubFailed

# Beside the files of such a folder: which snapshot it is a part of.
SNAPSHOT_NAME = "of"
# Seconds after which nobody goes on from one.
ABANDONED_SECONDS = 24 * 3600.0
PARTIAL = ".partial-"
_NOBODY = "nobody"


def new_partial(root: Path) -> Path:
    """Return a new name for a folder of this process."""
    return root / f"{PARTIAL}{_pid_space()}-{os.getpid()}-{secrets.token_hex(4)}"


def claim_partial(root: Path, place: Path) -> Path:
    """Return a folder of this process's own to fetch into: one that was left behind for this
    snapshot, or a new one.

    A rename makes it this process's own, so that of two only one goes on from it, with locks or
    without.

    Args:
        root: of the cache.
        place: where the snapshot will lie.

    Raises:
        CacheFailed: the cache cannot be written.
    """
    claimed = new_partial(root)
    of = place.relative_to(root).as_posix()
    with writing(root):
        taken = False
        for folder in abandoned_partials(root):
            what = _snapshot_name(folder)
            if what == of and not taken:
                with contextlib.suppress(FileNotFoundError):
                    folder.rename(claimed)
                    taken = True
            elif what is None or what == of or _age(folder) > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        (claimed / "files").mkdir(parents=True, exist_ok=True)
        (claimed / SNAPSHOT_NAME).write_text(of, encoding="utf-8")
    return claimed


def abandon_partial(partial: Path) -> None:
    """Let whoever fetches this next go on from here, whether this process lives or not.

    Nothing is left of nothing.
    """
    if any(path.is_file() for path in (partial / "files").rglob("*")):
        with contextlib.suppress(OSError):
            partial.rename(partial.parent / f"{PARTIAL}{_NOBODY}-0-{secrets.token_hex(4)}")


def abandoned_partials(root: Path) -> list[Path]:
    """Return the folders in which nobody works any more.

    Raises:
        OSError: the cache cannot be read.
    """
    return sorted(
        path for path in root.iterdir() if path.name.startswith(PARTIAL) and _is_left(path)
    )


def _is_left(partial: Path) -> bool:
    """Tell whether nobody works in it: its process has ended.

    Another machine's, or container's, only after a day.
    """
    import psutil

    here, _, rest = partial.name.removeprefix(PARTIAL).partition("-")
    pid = rest.partition("-")[0]
    if here == _NOBODY:
        return True
    if here == _pid_space() and pid.isdecimal():
        return not psutil.pid_exists(int(pid))
    return _age(partial) > ABANDONED_SECONDS


def _age(folder: Path) -> float:
    """Seconds since anything in a folder was written; 0 where that cannot be said."""
    try:
        newest = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return 0.0
    return time.time() - newest


def _snapshot_name(partial: Path) -> str | None:
    """Return the snapshot that it is a part of; None where it does not say."""
    try:
        return read_regular(partial / SNAPSHOT_NAME, limit=4096, follow=False).decode()
    except (OSError, ValueError):
        return None


def remove_others(folder: Path, paths: set[str]) -> None:
    """Leave nothing in a folder but these files: what else an earlier process fetched there is not
    promised now.
    """
    with writing(folder):
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_symlink() or not path.is_dir():
                if path.relative_to(folder).as_posix() not in paths or path.is_symlink():
                    path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()


def _pid_space() -> str:
    """Names the pid space this process lives in: the same pid elsewhere, or after a restart, is
    somebody else.
    """
    parts = [socket.gethostname()]
    for where in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(where)
            parts.append(
                str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii")
            )
    return sha256("\n".join(parts).encode())[:12]


# Where damaged snapshots are put; nothing there is used.
ASIDE = ".quarantine"


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


def manifest_of(place: Path) -> SnapshotManifest | None:
    """Return the manifest of the snapshot at a place; None if there is none.

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
        return parse_json(SnapshotManifest, text)
    except ValueError as error:
        raise Damaged(f"{place}/manifest.json cannot be read: {error}") from error


def compare(place: Path, manifest: SnapshotManifest) -> None:
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
        raise Damaged(f"{place} was removed while it was being read: {failure}") from failure
    if said := changes(manifest.files, there):
        raise Damaged(f"{place}: {'; '.join(said[:3])}")


def _only_files(folder: Path, manifest: SnapshotManifest) -> None:
    """A snapshot is made of files in plain folders: what a link leads to can change, or hide a
    whole folder.
    """
    wanted = {folder}
    for file in manifest.files:
        wanted.update((folder / file.path).parents)
    if folder.is_symlink():
        raise Damaged(f"{folder} is a link, which a snapshot must not contain")
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            if path.is_symlink():
                raise Damaged(f"{path} is a link, which a snapshot must not contain")
            if name in folders and path not in wanted:
                raise Damaged(f"{path} is new")
            if name in names and not path.is_file():
                raise Damaged(f"{path} is not a regular file")


def verified(place: Path, *, by_name: bool = True) -> SnapshotManifest:
    """Return the manifest of the snapshot at a place, where the place and every byte are what it
    says.

    This is the one comparison: verifying the cache, loading, fetching and resolving all come
    through here.

    Args:
        place: the snapshot's folder.
        by_name: whether its name has to be that of the repository and commit in the manifest, as in
            a cache.

    Raises:
        Damaged: a file is missing, has other bytes or is one too many, or the place belongs to
            another snapshot.
        CacheFailed: it cannot be read.
    """
    manifest = manifest_of(place)
    if manifest is None:
        raise Damaged(f"{place} was removed")
    for path in (place, place / "manifest.json") if by_name else ():
        if path.is_symlink():
            raise Damaged(f"{path} is a link, which a snapshot must not contain")
    if by_name:
        repository = HubRepository(endpoint=manifest.endpoint, name=manifest.repository)
        names = tuple(file.path for file in manifest.files)
        store = SnapshotStore(place.parent.parent)
        # A few files that were asked for by name would otherwise pass for the whole tokenizer.
        if place != store.place(repository, manifest.commit, names if manifest.chosen else ()):
            raise Damaged(
                f"{place} contains commit {manifest.commit} of {manifest.repository} from"
                f" {manifest.endpoint}, which belongs in a different folder"
            )
    compare(place, manifest)
    return manifest


class SnapshotStore:
    """The cache of snapshots below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, repository: HubRepository, commit: str, names: tuple[str, ...] = ()) -> Path:
        """Return the folder of a snapshot, there or not.

        Two hubs never share one: each hub's word is verified for itself.

        Args:
            repository: whose.
            commit: 40 hex digits.
            names: the files it holds, where that is not the tokenizer: each choice has a folder of
                its own.
        """
        key = sha256(f"{repository.endpoint}\n{repository.name}".encode())[:8]
        chosen = f"-{sha256(chr(10).join(names).encode())[:8]}" if names else ""
        return self.root / f"{repository.name.replace('/', '--')}-{key}" / f"{commit}{chosen}"

    def find(
        self, repository: HubRepository, commit: str, names: tuple[str, ...] = ()
    ) -> Snapshot | None:
        """Return the snapshot, its bytes read and compared with its manifest; None if there is
        none.

        Raises:
            Damaged: a file is missing, has other bytes or is one too many, or the manifest cannot
                be read.
            CacheFailed: it cannot be read at all.
        """
        place = self.place(repository, commit, names)
        if manifest_of(place) is None:
            return None
        manifest = verified(place)
        if (manifest.endpoint, manifest.repository, manifest.commit) != (
            repository.endpoint,
            repository.name,
            commit,
        ):
            raise Damaged(
                f"{place} contains commit {manifest.commit} of {manifest.repository} from"
                f" {manifest.endpoint}"
            )
        if names and tuple(file.path for file in manifest.files) != names:
            raise Damaged(f"{place} must contain exactly {', '.join(names)}")
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
        return hold_lock(
            self.lock(self.place(repository, commit, names)), what=what, seconds=seconds
        )

    def lock(self, place: Path) -> Path:
        """Return the lock file of a snapshot; its folder is made.

        Raises:
            CacheFailed: the cache cannot be written.
        """
        locks = self.root / ".locks"
        with writing(locks):
            locks.mkdir(parents=True, exist_ok=True)
        return locks / f"{place.parent.name}-{place.name}.lock"

    # What the snapshot is called, what it must hold, and the two ways to its bytes: seven decisions
    # of one caller.
    def fill(
        self,
        repository: HubRepository,
        commit: str,
        promises: Sequence[Promise],
        *,
        wire: HubClient,
        names: tuple[str, ...] = (),
        elsewhere: Callable[[Transfer], bool] | None = None,
        seen: Progress | None = None,
    ) -> Snapshot:
        """Fetch every promised file into a folder of its own, verify it, and give it the snapshot's
        name.

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
        partial = claim_partial(self.root, place)
        kept = False
        try:
            transfers = [
                Transfer(
                    promise,
                    target=partial / "files" / promise.path,
                    tags=partial / "tags",
                    seen=seen,
                )
                for promise in promises
            ]
            remove_others(partial / "files", {promise.path for promise in promises})
            self._has_room(sum(each.promise.size - each.position for each in transfers))
            files = tuple(
                (
                    each.record()
                    if each.whole or (elsewhere is not None and elsewhere(each))
                    else each.fetch(wire, repository, commit)
                )
                for each in transfers
            )
            # Once, here: bytes that are compared with the manifest at every load need no second
            # look.
            examine(partial / "files", (file.path for file in files))
            manifest = SnapshotManifest(
                schema=1,
                endpoint=repository.endpoint,
                repository=repository.name,
                commit=commit,
                files=files,
                chosen=bool(names),
            )
            with writing(partial):
                shutil.rmtree(partial / "tags", ignore_errors=True)
                (partial / SNAPSHOT_NAME).unlink()
                with (partial / "manifest.json").open("xb") as stream:
                    stream.write(manifest.model_dump_json(by_alias=True, indent=1).encode() + b"\n")
                    stream.flush()
                    # Before the rename: after a crash the name must not lead to an empty manifest.
                    os.fsync(stream.fileno())
            return self._publish(partial, repository, commit, files, names)
        except (HubFailed, KeyboardInterrupt):
            kept = True
            raise
        finally:
            if kept:
                abandon_partial(partial)
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
            # Somebody was faster, on a file system without locks, or a damaged snapshot is in the
            # way.
            why = "another process wrote a snapshot with different files to this place"
            try:
                there = self.find(repository, commit, names)
                if there is not None and there.files == files:
                    return there
            except Damaged as damage:
                why = str(damage)
            with contextlib.suppress(FileNotFoundError):
                self.put_aside(place, why)
        raise CacheFailed(
            f"another process keeps replacing {place}; use a separate cache for each process"
        )

    def put_aside(self, place: Path, why: str) -> None:
        """Move a snapshot where nothing is used, with the reason beside it: first its name, in one
        step.

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
        # Where the place was a file or a link there is no room beside it, and the name has to be
        # enough.
        with contextlib.suppress(OSError):
            if target.is_symlink():
                return
            (target / "reason.json").write_text(
                json.dumps({"snapshot": words, "harm": why}) + "\n", encoding="utf-8"
            )

    def take_away(self, place: Path) -> None:
        """Remove a snapshot: first its name, in one step, so that nobody finds half of it.

        Raises:
            OSError: it is gone already, or cannot be moved.
        """
        aside = new_partial(self.root)
        place.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _has_room(self, needed: int) -> None:
        with writing(self.root):
            free = shutil.disk_usage(self.root).free
            if needed > free:
                lacks = (
                    f"{os.strerror(errno.ENOSPC)}: {needed:,} bytes must be fetched, but only"
                    f" {free:,} are free"
                )
                raise OSError(errno.ENOSPC, lacks)


def _sync(folder: Path) -> None:
    # A rename is on disk only when its folder is; without that a crash costs one more fetch, so
    # errors are passed over.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
