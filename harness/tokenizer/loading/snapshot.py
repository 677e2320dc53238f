"""Snapshots: one folder per repository and commit that is complete and verified before it gets its name.

    CACHE/<repository>-<8 hex of the hub and name>/<commit>/manifest.json, files/…
    CACHE/.locks/…            who is fetching
    CACHE/.partial-…/         what is being fetched; never read

One process at a time fetches a snapshot; the others wait for it, and say whom they waited for if it never ends. The
lock only saves requests. A snapshot is complete before it gets its name, so where a file system's `flock` does nothing
or is refused, processes fetch side by side and the first one that is done wins.

A snapshot is never changed once it has its name. Nothing is remembered about files that do not exist: the manifest
lists what does, and everything else does not.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import secrets
import shutil
import socket
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from harness.forms.digest import git_blob, sha256
from harness.forms.model import parse_json
from harness.forms.strict_json import strict_json
from harness.tokenizer.loading.failure import CacheFailed, LoadError, LockTimeout
from harness.tokenizer.loading.listing import Promise
from harness.tokenizer.loading.manifest import FileRecord, Manifest, changes, examine, records
from harness.tokenizer.loading.source import HubRepository
from harness.tokenizer.loading.wire import LYING_ATTEMPTS, Body, Passing, Wire

# What file systems without locks answer (Lustre without -o flock, some NFS and FUSE).
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_ABANDONED = 24 * 3600.0
_PARTIAL = ".partial-"


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


class Store:
    """The cache of snapshots below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, repository: HubRepository, commit: str) -> Path:
        """Where the snapshot lies, or would lie. Two hubs never share one: only each one's own word is verified."""
        key = sha256(f"{repository.endpoint}\n{repository.name}".encode())[:8]
        return self.root / f"{repository.name.replace('/', '--')}-{key}" / commit

    def find(self, repository: HubRepository, commit: str) -> Snapshot | None:
        """The snapshot, its bytes read and compared with its manifest; None if there is none.

        Raises:
            Damaged: a file is missing, has other bytes or is one too many, or the manifest cannot be read.
            CacheFailed: it cannot be read at all.
        """
        place = self.place(repository, commit)
        try:
            text = (place / "manifest.json").read_bytes()
        except FileNotFoundError:
            if not place.exists():
                return None
            raise Damaged(f"{place} has no manifest.json") from None
        except OSError as error:
            raise CacheFailed(f"cannot read {place}/manifest.json: {error.strerror}") from error
        try:
            manifest = parse_json(Manifest, text)
        except ValueError as error:
            raise Damaged(f"{place}/manifest.json cannot be read: {error}") from error
        if (manifest.endpoint, manifest.repository, manifest.commit) != (repository.endpoint, repository.name, commit):
            raise Damaged(f"{place} holds commit {manifest.commit} of {manifest.repository} from {manifest.endpoint}")
        try:
            there = records(place / "files", only_tokenizer_files=False)
        except CacheFailed as failure:
            if not isinstance(failure.__cause__, FileNotFoundError):
                raise
            # Listed and gone: another process that found it damaged moves it aside just now.
            raise Damaged(f"{place} was taken away while it was read: {failure}") from failure
        if said := changes(manifest.files, there):
            raise Damaged(f"{place}: {'; '.join(said[:3])}")
        return Snapshot(folder=place / "files", files=manifest.files)

    def fetching(
        self, repository: HubRepository, commit: str, *, seconds: float
    ) -> contextlib.AbstractContextManager[bool]:
        """Be the only one who fetches this snapshot, where the file system has locks.

        Raises:
            LockTimeout: another process holds it and does not finish.
            CacheFailed: the cache cannot be written.
        """
        place = self.place(repository, commit)
        locks = self.root / ".locks"
        with _writing(locks):
            locks.mkdir(parents=True, exist_ok=True)
        what = f"commit {commit} of {repository.name}"
        return held(locks / f"{place.parent.name}-{commit}.lock", what=what, seconds=seconds)

    def fill(self, repository: HubRepository, commit: str, promises: Sequence[Promise], *, wire: Wire) -> Snapshot:
        """Fetch every promised file into a folder of its own, verify it, and give it the snapshot's name.

        Raises:
            HubFailed: a file did not come, or came with other bytes.
            BuildFailed: a file is not JSON with one meaning.
            CacheFailed: it cannot be written.
        """
        self._sweep()
        partial = self.root / f"{_PARTIAL}{_here()}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            with _writing(partial):
                (partial / "files").mkdir(parents=True)
            files = tuple(_fetch(wire, repository, commit, promise, into=partial / "files") for promise in promises)
            # Once, here: bytes that are compared with the manifest at every load need no second look.
            examine(partial / "files", (file.path for file in files))
            manifest = Manifest(
                schema=1, endpoint=repository.endpoint, repository=repository.name, commit=commit, files=files
            )
            text = manifest.model_dump_json(by_alias=True, indent=1).encode() + b"\n"
            with _new_file(partial / "manifest.json") as descriptor:
                _put(descriptor, text, partial / "manifest.json")
            return self._publish(partial, repository, commit, files)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _publish(
        self, partial: Path, repository: HubRepository, commit: str, files: tuple[FileRecord, ...]
    ) -> Snapshot:
        place = self.place(repository, commit)
        for _ in range(3):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                partial.rename(place)
                _sync(place.parent)
                return Snapshot(folder=place / "files", files=files)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise _unwritable(place, error) from error
            # Somebody was faster, on a file system without locks, or a damaged snapshot is in the way.
            with contextlib.suppress(Damaged):
                there = self.find(repository, commit)
                if there is not None and there.files == files:
                    return there
            with contextlib.suppress(FileNotFoundError):
                aside = self.root / f"{_PARTIAL}{_here()}-{os.getpid()}-{secrets.token_hex(4)}"
                place.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
        raise CacheFailed(f"{place} is replaced by another process again and again: give each its own cache")

    def _sweep(self) -> None:
        """Remove what killed processes left. Another machine's, or another container's, only after a day."""
        import psutil

        with _writing(self.root):
            partials = [path for path in self.root.iterdir() if path.name.startswith(_PARTIAL)]
        for path in partials:
            here, _, rest = path.name.removeprefix(_PARTIAL).partition("-")
            pid = rest.partition("-")[0]
            with contextlib.suppress(OSError):
                if here == _here() and pid.isdecimal():
                    gone = not psutil.pid_exists(int(pid))
                else:
                    gone = time.time() - path.stat().st_mtime > _ABANDONED
                if gone:
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def held(path: Path, *, what: str, seconds: float) -> Iterator[bool]:
    """Hold the lock at `path`; yields False where the file system has no locks.

    Args:
        path: the lock file; its folder exists.
        what: what is being fetched, for the message.
        seconds: how long to wait for another holder.

    Raises:
        LockTimeout: another process held it all the time; names its pid.
        CacheFailed: the lock file cannot be made.
    """
    holder = path.with_suffix(".holder")
    # A marker file instead of flock would outlive a killed holder and make everybody wait for a dead process.
    lock = FileLock(path, timeout=seconds, poll_interval=0.02, fallback_to_soft=False)
    begun = time.monotonic()
    works = True
    try:
        lock.acquire()
    except Timeout:
        pid, words = _holder(holder)
        raise LockTimeout(
            f"{what} is being fetched by {words}; waited {time.monotonic() - begun:.1f} s for the lock {path}", pid=pid
        ) from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise CacheFailed(
                f"cannot lock {path}: {error.strerror}. Pass cache= a folder that can be written"
            ) from error
        works = False
    try:
        if works:
            _sign(holder)
        yield works
    finally:
        if works:
            with contextlib.suppress(OSError):
                holder.unlink()
            lock.release()


def _sign(holder: Path) -> None:
    """Leave word who holds the lock; without it the message only says less, so no error is worth stopping for."""
    signed = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    draft = holder.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(signed), encoding="utf-8")
        draft.replace(holder)


def _holder(holder: Path) -> tuple[int | None, str]:
    try:
        signed = strict_json(holder.read_bytes())
        pid, host, since = int(signed["pid"]), str(signed["host"]), float(signed["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, "a process that did not leave its pid"
    words = f"process {pid} on {host} for {max(0.0, time.time() - since):.0f} s"
    if host == socket.gethostname():
        words += _state(pid)
    return pid, words


def _state(pid: int) -> str:
    import psutil

    try:
        status = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return " (it has ended: a process that it forked still holds the lock)"
    except psutil.Error:
        return ""
    if status == psutil.STATUS_STOPPED:
        return f" (it is stopped: continue it with kill -CONT {pid}, or end it)"
    return f" (it is {status})"


def _fetch(wire: Wire, repository: HubRepository, commit: str, promise: Promise, *, into: Path) -> FileRecord:
    target = into / promise.path
    path = f"/{repository.name}/resolve/{commit}/{urllib.parse.quote(promise.path)}"

    def take(body: Body, _headers: http.client.HTTPMessage) -> FileRecord:
        sha256, blob = hashlib.sha256(), git_blob(promise.size)
        size = 0
        # Streamed and counted: memory stays at one piece, and a body without end stops at the promised size.
        with _new_file(target) as descriptor:
            for piece in body.pieces():
                size += len(piece)
                if size > promise.size:
                    raise _differs(f"it sends more than the {promise.size:,} bytes of its listing")
                sha256.update(piece)
                blob.update(piece)
                _put(descriptor, piece, target)
        if size != promise.size:
            raise _differs(f"it sent {size:,} bytes, its listing says {promise.size:,}")
        broken = promise.broken_by(sha256=sha256.hexdigest(), blob=blob.hexdigest())
        if broken:
            raise _differs(broken)
        return FileRecord(path=promise.path, size=size, sha256=sha256.hexdigest())

    return wire.get(path, take)


def _differs(what: str) -> Passing:
    return Passing(what, status=200, most=LYING_ATTEMPTS, differs=True)


@contextlib.contextmanager
def _new_file(target: Path) -> Iterator[int]:
    """A descriptor of a new, empty file that is on disk when the block ends well."""
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
        with _writing(target):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(descriptor: int, piece: bytes, target: Path) -> None:
    rest = memoryview(piece)
    with _writing(target):
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _writing(where: Path) -> Iterator[None]:
    """Say of an error of the file system what to do. What waits for the hub stays outside of it."""
    try:
        yield
    except OSError as error:
        raise _unwritable(where, error) from error


def _unwritable(where: Path, error: OSError) -> LoadError:
    return CacheFailed(
        f"cannot write {where}: {error.strerror}. Make room or pass cache= a folder that can be written; "
        "what was there before is unharmed"
    )


def _here() -> str:
    """Names the pid space this process lives in: the same pid elsewhere, or after a restart, is somebody else."""
    parts = [socket.gethostname()]
    for where in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(where)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii"))
    return sha256("\n".join(parts).encode())[:12]
