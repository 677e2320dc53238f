"""Listings of a repository at one commit: "this file does not exist" is a fact and not a swallowed error.

Two independent answers of the hub must agree: the revision's summary (`/api/models/NAME/revision/REVISION`, which also
turns a branch into its commit) and the tree (`/api/models/NAME/tree/COMMIT`, which gives sizes and digests). One answer
that lies about a file is then found out before anything is built from it.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import git_blob
from harness.tokenizer.loading.source import COMMIT, HubRepository, Limits, checked_name, is_tokenizer_file
from harness.tokenizer.loading.wire import HubClient
from harness.tokenizer.problem import BytesDiffer, CacheFailed, SourceRefused

_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A file as the hub, or a lock, describes it.

    Attributes:
        path: inside the repository, checked.
        size: bytes.
        blob: git's id of the content (sha1 over a header and the bytes), for files that git itself stores.
        sha256: of the bytes, for files in large-file storage and for files of a lock.
    """

    path: str
    size: int
    blob: str | None = None
    sha256: str | None = None

    def broken_by(self, *, sha256: str, blob: str) -> str | None:
        """Describe how bytes with these digests differ from what was promised; None if they do not."""
        if self.sha256 is not None and sha256 != self.sha256:
            return f"its bytes have sha256 {sha256[:12]}…, promised was {self.sha256[:12]}…"
        if self.blob is not None and blob != self.blob:
            return f"its bytes have git id {blob[:12]}…, promised was {self.blob[:12]}…"
        return None

    def broken_by_file(self, path: Path) -> str | None:
        """The same of a file.

        Raises:
            CacheFailed: it cannot be read.
        """
        sha256 = hashlib.sha256()
        blob = git_blob(self.size)
        try:
            with path.open("rb") as stream:
                while piece := stream.read(2**20):
                    sha256.update(piece)
                    blob.update(piece)
                size = stream.tell()
        except OSError as error:
            raise CacheFailed(f"cannot read {path}: {error.strerror}") from error
        if size != self.size:
            return f"it has {size:,} bytes, promised were {self.size:,}"
        return self.broken_by(sha256=sha256.hexdigest(), blob=blob.hexdigest())


@dataclass(frozen=True, kw_only=True)
class ResolvedRevision:
    """A revision's commit and the names of all files in it."""

    commit: str
    names: frozenset[str]


def resolve(wire: HubClient, repository: HubRepository, revision: str) -> ResolvedRevision:
    """Turn a revision into a commit, in one request.

    Raises:
        HubFailed: no usable answer; for a commit, also an answer about another one.
        SourceRefused: it lists a name that would leave its folder.
    """

    def read(answer: object) -> ResolvedRevision:
        commit = answer.get("sha") if isinstance(answer, dict) else None
        siblings = answer.get("siblings") if isinstance(answer, dict) else None
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit) or not isinstance(siblings, list):
            raise ValueError("it does not say which commit this is and which files it has")
        if COMMIT.fullmatch(revision) and commit != revision:
            raise ValueError(f"it is about commit {commit}")
        names = [entry.get("rfilename") if isinstance(entry, dict) else None for entry in siblings]
        if not all(isinstance(name, str) for name in names):
            raise ValueError("it lists a file without a name")
        return ResolvedRevision(commit=commit, names=frozenset(checked_name(str(name)) for name in names))

    path = f"/api/models/{repository.name}/revision/{urllib.parse.quote(revision, safe='')}"
    return wire.json(path, read)[0]


def promises(
    wire: HubClient,
    repository: HubRepository,
    resolved: ResolvedRevision,
    *,
    limits: Limits,
    names: tuple[str, ...] = (),
) -> tuple[Promise, ...]:
    """Files of a commit, by path, as the hub describes them: the tokenizer's, or those that are named.

    Raises:
        HubFailed: no usable answer.
        BytesDiffer: the tree and the revision's summary name different files.
        SourceRefused: a name would leave its folder, a file that is named is not there, or the listing is beyond the
            limits.
    """

    def wanted(path: str) -> bool:
        return path in names if names else is_tokenizer_file(path)

    first = f"/api/models/{repository.name}/tree/{resolved.commit}?recursive=true&expand=false"
    page: str | None = first
    promised: dict[str, Promise] = {}
    pages = 0
    while page is not None:
        entries, page = wire.json(page, _page)
        pages += 1
        for promise in entries:
            if promise.path in promised:
                raise BytesDiffer(f"{wire.endpoint}{first}: it lists {promise.path!r} twice")
            promised[promise.path] = promise
        if len(promised) > limits.entries or pages > limits.entries:
            raise SourceRefused(f"{repository.name} lists more than {limits.entries:,} files: see Limits(entries=...)")
    odd = sorted(name for name in resolved.names ^ promised.keys() if wanted(name))
    if odd:
        raise BytesDiffer(
            f"{wire.endpoint}{first}: the hub's two listings of commit {resolved.commit} disagree about {_few(odd)}"
        )
    if absent := sorted(set(names) - promised.keys()):
        near = difflib.get_close_matches(absent[0], promised, n=3, cutoff=0.3)
        raise SourceRefused(
            f"{repository.name} has no file {absent[0]!r} at commit {resolved.commit}"
            + (f"; it has {_few(near)}" if near else "")
        )
    return tuple(promised[name] for name in sorted(promised) if wanted(name))


def _page(answer: object) -> list[Promise]:
    if not isinstance(answer, list):
        raise ValueError("it is not a list of files")  # noqa: TRY004 - what the hub said is wrong, not how we asked
    return [_promise(entry) for entry in answer if not isinstance(entry, dict) or entry.get("type") != "directory"]


def _promise(entry: object) -> Promise:
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(path, str) or entry.get("type") != "file":
        raise ValueError("it lists something that is neither a file nor a directory")
    large = entry.get("lfs")
    described = large if isinstance(large, dict) else entry
    size = described.get("size")
    oid = described.get("oid")
    digest = oid.removeprefix("sha256:") if isinstance(oid, str) else ""
    pattern = _SHA256 if isinstance(large, dict) else _SHA1
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not pattern.fullmatch(digest):
        raise ValueError(f"it gives no usable size and digest for {path[:200]!r}")
    if isinstance(large, dict):
        return Promise(path=checked_name(path), size=size, sha256=digest)
    return Promise(path=checked_name(path), size=size, blob=digest)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
