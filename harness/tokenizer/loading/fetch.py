"""Fetch files of a repository at one commit into a verified snapshot, without building anything
from them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.forms.variables import cache_folder, switch
from harness.tokenizer.loading.intact import HubCache
from harness.tokenizer.loading.locks import Lease
from harness.tokenizer.loading.manifest import FileRecord, Lock
from harness.tokenizer.loading.snapshot import Damaged, Snapshot, SnapshotStore
from harness.tokenizer.loading.source import (
    COMMIT,
    HubRepository,
    Promise,
    ResolvedRevision,
    SourceLimits,
    check_limits,
    checked_endpoint,
    checked_name,
    checked_repository,
    checked_revision,
    promises,
    resolve,
)
from harness.tokenizer.loading.transfer import Progress, Transfer
from harness.tokenizer.loading.wire import Deadline, HubClient
from harness.tokenizer.problem import CacheFailed, HubFailed, LoadError, LoadRequest, SourceRefused

LONGEST = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A snapshot, and how it came to be.

    Attributes:
        repository: whose.
        commit: 40 hex digits.
        folder: the folder of verified files.
        files: those files.
        requests: every request made, in order; empty where everything was here.
        remarks: what a reader should know, such as a damaged snapshot that was fetched again.
        lease: keeps the snapshot from being pruned while this object lives.
    """

    repository: HubRepository
    commit: str
    folder: Path
    files: tuple[FileRecord, ...]
    requests: tuple[LoadRequest, ...]
    remarks: tuple[str, ...]
    lease: Lease = field(repr=False, compare=False)


# Options of the public API, by keyword: each is one decision of the caller.
def fetch(
    source: str,
    *,
    revision: str | None = None,
    names: Sequence[str] = (),
    lock: Lock | None = None,
    model: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    deadline: float = 120.0,
    lock_timeout: float = 60.0,
    endpoint: str | None = None,
    token: str | bool | None = None,
    limits: SourceLimits | None = None,
    offline: bool = False,
    hub_cache: HubCache | None = None,
    seen: Progress | None = None,
) -> Fetched:
    """Fetch the tokenizer of a repository, or files of it by name.

    What an earlier fetch left behind is gone on from.

    Args:
        source: `org/model`.
        revision: branch, tag or commit; default: the lock's commit, else `main`.
        names: paths in the repository; default: all that belong to its tokenizer.
        lock: its commit and files bind; with `model`, those of that model file.
        model: the model file of the lock that is wanted, by its path.
        cache: where snapshots are kept; see `load`.
        deadline: seconds for everything that waits for the hub or for another process.
        lock_timeout: seconds to wait for another process that fetches the same; never beyond the
            deadline.
        endpoint: the hub; default: HF_ENDPOINT, else the public one.
        token: see `load`.
        limits: how large files may be; default: `SourceLimits()`.
        offline: make no request; HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE say so too.
        hub_cache: huggingface_hub's cache, from which files that have the promised digest are
            copied.
        seen: is told how far each file is.

    Raises:
        SourceRefused: the source, a name or a size may not be used.
        HubFailed: the hub did not give what it has (DeadlineExceeded, BytesDiffer).
        CacheFailed: the cache cannot be written or read (LockTimeout).
        BuildFailed: a file of a tokenizer is not JSON with one meaning.
    """
    until = checked_deadline(deadline, lock_timeout)
    repository = HubRepository(endpoint=checked_endpoint(endpoint), name=checked_repository(source))
    forbidden = "offline" if offline else forbidden_by()
    wire = HubClient(
        endpoint=repository.endpoint, token=stored_token(token), deadline=until, forbidden=forbidden
    )
    pinned, promised, wanted = _of_lock(lock, model, revision, source)
    way = Fetch(
        repository=repository,
        store=SnapshotStore(Path(cache) if cache else snapshots()),
        wire=wire,
        limits=limits or SourceLimits(),
        remarks=[],
        names=wanted or tuple(sorted({checked_name(name) for name in names})),
        hub_cache=hub_cache,
        seen=seen,
    )
    try:
        commit = pinned or way.commit(revision, None, trust=False)
        snapshot, lease = way.leased(commit, promised, seconds=lock_timeout)
    except LoadError as error:
        error.requests = tuple(wire.account)
        raise
    return Fetched(
        repository=repository,
        commit=commit,
        folder=snapshot.folder,
        files=snapshot.files,
        requests=tuple(wire.account),
        remarks=tuple(way.remarks),
        lease=lease,
    )


def _of_lock(
    lock: Lock | None, model: str | None, revision: str | None, source: str
) -> tuple[str | None, tuple[Promise, ...] | None, tuple[str, ...]]:
    """Commit, files and names that a lock binds."""
    if lock is None:
        return None, None, ()
    files = lock.files
    repository = lock.repository
    commit = lock.commit
    names: tuple[str, ...] = ()
    if model is not None:
        record = next((locked for locked in lock.models if locked.path == model), None)
        if record is None:
            known = ", ".join(locked.path for locked in lock.models) or "none"
            raise SourceRefused(f"the lock file has no model file {model!r}; it contains {known}")
        files = (record.file(),)
        repository = record.repository
        commit = record.commit
        names = (record.path,)
    return _pinned(repository, commit, source=source, revision=revision), promised_by(files), names


def _pinned(
    repository: str | None, commit: str | None, *, source: str, revision: str | None
) -> str:
    """Return the commit that a lock pins for a source."""
    if repository != source or commit is None:
        raise SourceRefused(f"the lock file is for {repository or 'a folder'}, not for {source}")
    if revision not in {None, commit}:
        raise SourceRefused(
            f"the lock file pins commit {commit}, not {revision}; do not pass a revision"
        )
    return commit


def promised_by(files: Sequence[FileRecord]) -> tuple[Promise, ...]:
    """Promises that the files of a lock make."""
    return tuple(Promise(path=file.path, size=file.size, sha256=file.sha256) for file in files)


def snapshots() -> Path:
    """Return the default folder of snapshots."""
    return cache_folder("tokenizers", variable="RANKPROOF_TOKENIZERS")


def checked_deadline(deadline: float, lock_timeout: float) -> Deadline:
    """Return the one deadline.

    Raises:
        SourceRefused: one of the two is not a time.
    """
    for name, seconds in {"deadline": deadline, "lock_timeout": lock_timeout}.items():
        if not 0 < seconds <= LONGEST:
            raise SourceRefused(
                f"{name} must be more than 0 and at most {LONGEST:g} seconds, not {seconds}"
            )
    return Deadline(deadline)


def forbidden_by() -> str | None:
    """Return the variable that forbids requests; None if none does.

    Raises:
        SourceRefused: one of them is neither on nor off.
    """
    try:
        return next(
            (name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if switch(name)), None
        )
    except ValueError as error:
        raise SourceRefused(str(error)) from None


@dataclass(kw_only=True)
class Fetch:
    """The way from a revision to a snapshot; asks the hub at most once for each thing.

    Attributes:
        repository: whose.
        store: where snapshots are kept.
        wire: to the hub.
        limits: how much may be taken.
        remarks: gets what a reader should know.
        names: the files that are wanted, sorted, where that is not the tokenizer.
        hub_cache: huggingface_hub's cache, from which files with the promised digest are copied.
        seen: is told how far each file is.
    """

    repository: HubRepository
    store: SnapshotStore
    wire: HubClient
    limits: SourceLimits
    remarks: list[str]
    names: tuple[str, ...] = ()
    hub_cache: HubCache | None = None
    seen: Progress | None = None
    resolved: ResolvedRevision | None = None

    def commit(self, revision: str | None, lock: Lock | None, *, trust: bool) -> str:
        """Return the commit to load: the lock's, the one given, or the one the branch points to
        now.
        """
        if lock is not None:
            return _pinned(
                lock.repository, lock.commit, source=self.repository.name, revision=revision
            )
        wanted = checked_revision(revision or "main")
        if COMMIT.fullmatch(wanted):
            return wanted
        if trust:
            raise SourceRefused(
                f"trust_remote_code would run any code that {wanted!r} points to; pass a commit as"
                " the revision, or pass a lock file"
            )
        self._may_ask(f"revision {wanted!r}")
        self.resolved = resolve(self.wire, self.repository, wanted)
        return self.resolved.commit

    def leased(
        self, commit: str, promised: tuple[Promise, ...] | None, *, seconds: float
    ) -> tuple[Snapshot, Lease]:
        """`snapshot`, and a hold on it, so that pruning passes over it.

        Raises:
            CacheFailed: other processes take it away again and again.
        """
        for _ in range(3):
            snapshot = self.snapshot(
                commit, promised, seconds=min(seconds, self.wire.deadline.left())
            )
            with contextlib.suppress(FileNotFoundError):
                return snapshot, Lease(snapshot.folder)
        raise CacheFailed(
            f"another process keeps removing {snapshot.folder}; use a separate cache for each process"
        )

    def snapshot(
        self, commit: str, promised: tuple[Promise, ...] | None, *, seconds: float
    ) -> Snapshot:
        """Return the verified snapshot of a commit: from the cache, from another process, or from
        the hub.

        Args:
            commit: 40 hex digits.
            promised: the files, where a lock says what they are; else the hub is asked.
            seconds: to wait for another process.
        """
        there = self._look(commit)
        if there is not None:
            return there
        if self.hub_cache is None or promised is None:
            # With a lock the files may be in the other cache, and nobody has to be asked.
            self._may_ask(f"commit {commit}")
        with self.store.fetching(self.repository, commit, seconds=seconds, names=self.names):
            there = self._look(commit)
            if there is not None:
                return there
            if promised is None:
                promised = self._listed(commit)
            check_limits(((promise.path, promise.size) for promise in promised), limits=self.limits)
            return self.store.fill(
                self.repository,
                commit,
                promised,
                wire=self.wire,
                names=self.names,
                elsewhere=partial(self._copied, commit) if self.hub_cache is not None else None,
                seen=self.seen,
            )

    def _copied(self, commit: str, transfer: Transfer) -> bool:
        assert self.hub_cache is not None
        blob = self.hub_cache.blob(self.repository, commit, transfer.promise)
        if blob is None or transfer.position:
            return False
        if transfer.copy(blob):
            self.remarks.append(f"{transfer.promise.path} was copied from {blob}")
            return True
        self.remarks.append(
            f"{blob} does not have the bytes that its name states, and was not used:"
            f" {transfer.promise.path}"
        )
        return False

    def _look(self, commit: str) -> Snapshot | None:
        try:
            return self.store.find(self.repository, commit, self.names)
        except Damaged as damage:
            said = f"the snapshot was damaged and must be fetched again: {damage}"
            if said not in self.remarks:
                self.remarks.append(said)
            return None

    def _listed(self, commit: str) -> tuple[Promise, ...]:
        if self.resolved is None:
            self.resolved = resolve(self.wire, self.repository, commit)
        return promises(
            self.wire, self.repository, self.resolved, limits=self.limits, names=self.names
        )

    def _may_ask(self, what: str) -> None:
        if self.wire.forbidden is not None:
            raise HubFailed(
                f"{self.wire.forbidden} forbids requests, and the cache {self.store.root} does not"
                f" contain {what} of {self.repository.name}; load it once with access to the hub,"
                " or pass a commit or a lock file whose files are cached"
                + "".join(f" ({remark})" for remark in self.remarks)
            )


def stored_token(given: str | bool | None) -> str | None:
    """Return the token to send: what was given, else HF_TOKEN or the stored one; None for none.

    Raises:
        SourceRefused: one was asked for, and there is none.
    """
    if isinstance(given, str):
        return given
    if given is False:
        return None
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if not token:
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        stored = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
        try:
            token = stored.read_text(encoding="utf-8")
        except (OSError, ValueError):
            token = None
    token = token.strip() if token else None
    if given is True and not token:
        raise SourceRefused(
            "token=True needs HF_TOKEN or a stored token, but both are missing; log in, or pass a"
            " token"
        )
    return token or None
