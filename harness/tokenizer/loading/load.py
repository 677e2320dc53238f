"""Load a tokenizer, or say why not: never a different one.

Verify that something still is the locked tokenizer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness.tokenizer import difference, identify
from harness.tokenizer.identity import Identity
from harness.tokenizer.loading.fetch import (
    Fetch,
    checked_deadline,
    forbidden_by,
    promised_by,
    snapshots,
    stored_token,
)
from harness.tokenizer.loading.intact import damage, unchanged
from harness.tokenizer.loading.library import build, versions
from harness.tokenizer.loading.locks import Lease
from harness.tokenizer.loading.manifest import (
    FileRecord,
    Lock,
    ModelRecord,
    changes,
    examine,
    lockable,
    read_lock,
    records,
    sizes,
)
from harness.tokenizer.loading.snapshot import Snapshot, SnapshotStore
from harness.tokenizer.loading.source import HubRepository, SourceLimits, check_limits, parse
from harness.tokenizer.loading.wire import HubClient
from harness.tokenizer.problem import (
    BuildFailed,
    BytesDiffer,
    CacheFailed,
    IdentityDiffers,
    LoadError,
    LoadRequest,
    SourceRefused,
    TokenizerError,
    Unreadable,
)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A tokenizer, and how it came to be.

    Attributes:
        tokenizer: the transformers tokenizer.
        identity: what it is.
        source: the repository, or the folder.
        commit: the commit it is from; None for a folder.
        snapshot: the folder of verified files it was built from.
        files: those files.
        options: what was passed to `from_pretrained` beside the folder.
        requests: every request made, in order; empty for a warm load of a pinned commit.
        remarks: what a reader should know, such as a damaged snapshot that was fetched again.
        logs: what transformers and huggingface_hub logged while it was built, from DEBUG up.
        lease: keeps the snapshot from being pruned while this object lives; None for a folder.
    """

    tokenizer: Any
    identity: Identity
    source: HubRepository | Path
    commit: str | None
    snapshot: Path
    files: tuple[FileRecord, ...]
    options: Mapping[str, object]
    requests: tuple[LoadRequest, ...]
    remarks: tuple[str, ...]
    logs: tuple[str, ...]
    lease: Lease | None = field(repr=False, compare=False)

    def lock(self, *, models: tuple[ModelRecord, ...] = ()) -> Lock:
        """Make the lock that pins exactly this tokenizer, and model files that it is for.

        Raises:
            SourceRefused: an option cannot stand in a file.
        """
        kind = type(self.tokenizer)
        return Lock(
            schema=1,
            repository=self.source.name if isinstance(self.source, HubRepository) else None,
            commit=self.commit,
            files=self.files,
            **{"class": f"{kind.__module__}.{kind.__qualname__}"},
            options=lockable(dict(self.options)),
            made_with=versions(),
            identity=json.loads(self.identity.to_json()),
            models=models,
        )


# Options of the public API, by keyword: each is one decision of the caller.
def load(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    expected: Identity | str | None = None,
    lock: Lock | os.PathLike[str] | str | None = None,
    cache: str | os.PathLike[str] | None = None,
    deadline: float = 120.0,
    lock_timeout: float = 60.0,
    trust_remote_code: bool = False,
    endpoint: str | None = None,
    token: str | bool | None = None,
    limits: SourceLimits | None = None,
    options: Mapping[str, object] | None = None,
    offline: bool = False,
) -> Loaded:
    """Load the tokenizer of a repository or a folder; hand back exactly that one or raise.

    Requests: a warm load with a commit as `revision`, or with a lock, makes none. A branch or tag
    costs one per load, which asks what it points to now. A cold load makes two, plus one per
    tokenizer file; with a lock only the files'.

    Args:
        source: `org/model`, or a folder (a path, or text that starts with `.`, `/` or `~`).
        revision: branch, tag or commit; default: the lock's commit, else `main`.
        expected: an identity, compared as a whole, or one 64-digit digest, semantic or full.
        lock: a lock, or the path of a lock file: its commit, files, options and identity bind.
        cache: where snapshots are kept; default: RANKPROOF_TOKENIZERS, else `rankproof/tokenizers`
            in the user's cache.
        deadline: seconds for everything that waits for the hub or for another process.
        lock_timeout: seconds to wait for another process that fetches the same snapshot; never
            beyond the deadline.
        trust_remote_code: run Python code that lies beside the tokenizer. From a hub, only of a
            pinned commit.
        endpoint: the hub; default: HF_ENDPOINT, else the public one.
        token: bearer token; None takes HF_TOKEN or the stored one, False none.
        limits: how large files may be; default: `SourceLimits()`.
        options: passed on to `from_pretrained`; default: the lock's.
        offline: make no request; HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE say so too.

    Raises:
        SourceRefused: the source, or something it asks for, may not be used.
        HubFailed: the hub did not give what it has (DeadlineExceeded, BytesDiffer).
        CacheFailed: the cache cannot be written or read (LockTimeout).
        BuildFailed: transformers cannot build a tokenizer from the verified files.
        IdentityDiffers: it built another one than expected.
    """
    until = checked_deadline(deadline, lock_timeout)
    pinned = lock if isinstance(lock, Lock) or lock is None else read_lock(Path(lock))
    where = parse(source, endpoint=endpoint)
    limits = limits or SourceLimits()
    if options is None:
        options = pinned.options if pinned else {}
    wanted = _wanted(expected)
    remarks: list[str] = []
    account: list[LoadRequest] = []
    lease: Lease | None = None
    try:
        if isinstance(where, Path):
            if revision is not None:
                raise SourceRefused(f"a folder has no revision; load {where} without {revision!r}")
            commit = None
            snapshot = _folder(where, limits=limits)
        else:
            wire = HubClient(
                endpoint=where.endpoint,
                token=stored_token(token),
                deadline=until,
                forbidden="offline" if offline else forbidden_by(),
            )
            account = wire.account
            fetched = Fetch(
                repository=where,
                store=SnapshotStore(Path(cache) if cache else snapshots()),
                wire=wire,
                limits=limits,
                remarks=remarks,
            )
            commit = fetched.commit(revision, pinned, trust=trust_remote_code)
            promised = promised_by(pinned.files) if pinned is not None else None
            snapshot, lease = fetched.leased(commit, promised, seconds=lock_timeout)
        if pinned is not None:
            _same_files(pinned, snapshot)
        make = partial(build, trust_remote_code=trust_remote_code, options=options)
        try:
            # What is built from was compared with its manifest above, and is compared again when it
            # is built.
            with unchanged(snapshot.folder):
                if lease is None:
                    tokenizer, logs = make(snapshot.folder, snapshot.files)
                else:
                    tokenizer, logs = _build_undisturbed(make, snapshot, lease)
        except Unreadable as error:
            raise (SourceRefused if lease is None else CacheFailed)(str(error)) from error
        if isinstance(where, Path) and (
            said := changes(snapshot.files, records(where, only_tokenizer_files=True))
        ):
            raise SourceRefused(
                f"{where} changed while it was being loaded: {'; '.join(said[:3])}; load it again"
            )
        identity = _checked(tokenizer, wanted, pinned, remarks)
    except LoadError as error:
        error.requests = tuple(account)
        raise
    return Loaded(
        tokenizer=tokenizer,
        identity=identity,
        source=where,
        commit=commit,
        snapshot=snapshot.folder,
        files=snapshot.files,
        options=options,
        requests=tuple(account),
        remarks=tuple(remarks),
        logs=logs,
        lease=lease,
    )


def _build_undisturbed(
    make: Callable[[Path, Sequence[FileRecord]], tuple[Any, tuple[str, ...]]],
    snapshot: Snapshot,
    lease: Lease,
) -> tuple[Any, tuple[str, ...]]:
    """Build from a snapshot that nobody took away meanwhile: without one of its files it would be
    another tokenizer.
    """
    try:
        built = make(snapshot.folder, snapshot.files)
    except BuildFailed as failure:
        if lease.holds():
            raise
        raise CacheFailed(
            f"{snapshot.folder} was removed while it was being loaded; load it again"
        ) from failure
    if not lease.holds():
        raise CacheFailed(f"{snapshot.folder} was removed while it was being loaded; load it again")
    return built


def _folder(folder: Path, *, limits: SourceLimits) -> Snapshot:
    # Before its files are read: what a damaged one makes the reader say would not name the reason.
    if (said := damage(folder)) is not None:
        raise SourceRefused(f"{folder}: {said}")
    check_limits(sizes(folder, only_tokenizer_files=True), limits=limits)
    files = records(folder, only_tokenizer_files=True)
    examine(folder, (file.path for file in files))
    return Snapshot(folder=folder, files=files)


def _same_files(lock: Lock, snapshot: Snapshot) -> None:
    said = changes(lock.files, snapshot.files)
    if said:
        raise IdentityDiffers(
            f"the files in {snapshot.folder} differ from the lock file: {'; '.join(said[:5])}"
            + (f" and {len(said) - 5} more" if len(said) > 5 else "")
        )


def _wanted(expected: Identity | str | None) -> Identity | str | None:
    if isinstance(expected, str):
        digest = expected.removeprefix("sha256:")
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise SourceRefused(
                f"the expected digest must be 64 lower-case hex digits, not {expected[:80]!r}"
            )
        return digest
    return expected


def _checked(
    tokenizer: object, expected: Identity | str | None, lock: Lock | None, remarks: list[str]
) -> Identity:
    """Return the identity of what was built, compared with everything it has to be."""
    try:
        identity = identify(
            tokenizer, depth=expected.depth if isinstance(expected, Identity) else "cheap"
        )
        if isinstance(expected, Identity) and identity.full != expected.full:
            raise IdentityDiffers(
                f"this is not the expected tokenizer: {in_words(expected, identity)}"
            )
        if isinstance(expected, str) and expected not in {identity.semantic, identity.full}:
            # A full digest names one depth, and the text does not say which.
            deep = identify(tokenizer, depth="full")
            if expected != deep.full:
                raise IdentityDiffers(
                    f"this is not the expected tokenizer: expected {expected}, found"
                    f" {identity.semantic} (semantic) and {deep.full} (full); pass the identity"
                    " instead of its digest to see the difference"
                )
        if lock is not None:
            said = differs_from(lock, tokenizer, remarks)
            if said:
                raise IdentityDiffers(f"this is not the locked tokenizer: {said}")
    except LoadError:
        raise
    except TokenizerError as error:
        raise BuildFailed(
            f"the {type(tokenizer).__name__} that was built cannot be identified: {error}"
        ) from error
    return identity


def differs_from(lock: Lock, tokenizer: object, remarks: list[str]) -> str | None:
    """Describe how a tokenizer differs from a locked one; None if it is the same.

    Where only the full digest differs and the lock was made with other library versions, that is a
    remark: the same ids, names and templates, described by another library.
    """
    locked = lock.identified()
    identity = identify(tokenizer, depth=locked.depth)
    if identity.semantic != locked.semantic:
        return in_words(locked, identity)
    if identity.full == locked.full:
        return None
    here = versions()
    other = sorted(
        name
        for name in here.keys() | lock.made_with.keys()
        if here.get(name) != lock.made_with.get(name)
    )
    if not other:
        return in_words(locked, identity)
    remarks.append(
        (
            "the ids and templates match the lock file, but the object differs:"
            f" {in_words(locked, identity)} (the lock file has "
        )
        + ", ".join(
            f"{name} {lock.made_with.get(name, 'missing')}, here {here.get(name, 'missing')}"
            for name in other
        )
        + ")"
    )
    return None


def in_words(expected: Identity, actual: Identity) -> str:
    """Describe in one line what differs between two identities."""
    said = [row.words for row in difference(expected, actual)]
    return "; ".join(said[:5]) or f"expected {expected.full}, found {actual.full}"


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The outcome of comparing something with a lock.

    Attributes:
        differences: in words; empty if it is the locked tokenizer.
        remarks: what does not make it another one, such as other library versions.
    """

    differences: tuple[str, ...]
    remarks: tuple[str, ...]


# The options of `load` that do not follow from the lock.
def verify(
    source: str | os.PathLike[str],
    *,
    lock: Lock,
    cache: str | os.PathLike[str] | None = None,
    deadline: float = 120.0,
    trust_remote_code: bool = False,
    endpoint: str | None = None,
    token: str | bool | None = None,
    offline: bool = False,
) -> Verified:
    """Compare a folder, or what a hub has at the locked commit, with a lock: files first, then what
    is built from them.

    A folder with other files is built all the same, to say what they change, unless its code is
    what differs.

    Raises:
        LoadError: that could not be found out.
    """
    where = parse(source, endpoint=endpoint)
    if not isinstance(where, Path):
        try:
            loaded = load(
                source,
                lock=lock,
                cache=cache,
                deadline=deadline,
                trust_remote_code=trust_remote_code,
                endpoint=endpoint,
                token=token,
                offline=offline,
            )
        except (IdentityDiffers, BytesDiffer) as error:
            return Verified(differences=(str(error),), remarks=())
        return Verified(differences=(), remarks=loaded.remarks)
    files = records(where, only_tokenizer_files=True)
    said = changes(lock.files, files)
    remarks: list[str] = []
    if trust_remote_code and _python_files(lock.files) != _python_files(files):
        return Verified(
            differences=(*said, "its code is not the locked code, so it was not run"), remarks=()
        )
    try:
        built = load(where, trust_remote_code=trust_remote_code, options=lock.options).tokenizer
        words = differs_from(lock, built, remarks)
    except BuildFailed as error:
        words = str(error)
    return Verified(differences=(*said, *([words] if words else [])), remarks=tuple(remarks))


def _python_files(files: tuple[FileRecord, ...]) -> list[FileRecord]:
    return [file for file in files if file.path.endswith(".py")]
