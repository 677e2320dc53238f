"""Sources of tokenizers: a repository on a hub or a local folder, its files, and what the hub
promises of them.

Two independent answers of a hub must agree: the revision's summary
(`/api/models/NAME/revision/REVISION`, which also turns a branch into its commit) and the tree
(`/api/models/NAME/tree/COMMIT`, which gives sizes and digests). One answer that lies about a file
is then found out before anything is built from it, and "this file does not exist" is a fact and not
a swallowed error.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.forms.digest import git_blob
from harness.tokenizer.loading.wire import HubClient
from harness.tokenizer.problem import BytesDiffer, CacheFailed, SourceRefused

DEFAULT_ENDPOINT = "https://huggingface.co"
COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/@-]{0,254}")

# What the tokenizer classes of transformers open, by suffix: their `vocab_files_names`, the
# configurations, templates.
_SUFFIXES = frozenset(
    {
        ".bpe",
        ".codes",
        ".jinja",
        ".json",
        ".model",
        ".py",
        ".spm",
        ".tiktoken",
        ".tokenizer",
        ".txt",
        ".vocab",
    }
)
TEMPLATES = "additional_chat_templates"
# Files with those suffixes at the root of model repositories that no tokenizer reads.
_NOT_TOKENIZER = re.compile(
    r".*\.index\.json|license.*|requirements.*\.txt|.*trainer_state\.json", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class SourceLimits:
    """Limits on what a source may ask this machine to take.

    Attributes:
        file_bytes: bytes of one tokenizer file. The largest published `tokenizer.json` files are
            near 35 MB.
        total_bytes: bytes of all tokenizer files together.
        files: number of tokenizer files.
        entries: number of entries in the repository's listing, whatever they are.
    """

    file_bytes: int = 256 * 2**20
    total_bytes: int = 2**30
    files: int = 512
    entries: int = 100_000


@dataclass(frozen=True, kw_only=True)
class HubRepository:
    """A repository on a hub."""

    endpoint: str
    name: str


def parse(source: str | os.PathLike[str], *, endpoint: str | None) -> HubRepository | Path:
    """Tell a repository's name from a folder.

    A `Path`, and text that starts with `.`, `/` or `~`, is a folder; other text is a name such as
    `org/model`. Where a folder of that very name lies in the working directory, transformers
    silently prefers it; here it is refused.

    Raises:
        SourceRefused: neither, or both.
    """
    if not isinstance(source, str) or source.startswith((".", "/", "~")):
        folder = Path(source).expanduser()
        try:
            is_folder = folder.is_dir()
        except OSError as error:
            raise SourceRefused(f"{folder} cannot be read: {error.strerror}") from error
        if not is_folder:
            raise SourceRefused(
                f"{folder} is not a folder; pass a folder of tokenizer files, or a repository such"
                " as org/model"
            )
        return folder
    checked_repository(source)
    if Path(source).is_dir():
        raise SourceRefused(
            f"{source!r} is both a repository's name and a folder in the working directory; pass"
            f" ./{source} to use the folder, or run this from another directory to use the repository"
        )
    return HubRepository(endpoint=checked_endpoint(endpoint), name=source)


def checked_repository(name: str) -> str:
    """Return a repository's name, as in `org/model`.

    Raises:
        SourceRefused: it is none.
    """
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise SourceRefused(
            f"{name!r} is neither a repository (org/model) nor a folder (a folder starts with ./,"
            " / or ~)"
        )
    return name


def checked_endpoint(endpoint: str | None) -> str:
    """Return the hub's address: what was given, else HF_ENDPOINT, else the public hub.

    Raises:
        SourceRefused: not an http or https address.
    """
    address = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/?#@\\]+(/[^\s?#\\]*)?", address):
        raise SourceRefused(
            f"the hub's address {address!r} does not have the form https://host or http://host:port"
        )
    return address


def checked_revision(revision: str) -> str:
    """Return a branch, a tag or a commit that cannot leave the place it is put in.

    Raises:
        SourceRefused: it holds `..`, control characters or other things git does not allow in a
            name.
    """
    parts = revision.split("/")
    if not _REVISION.fullmatch(revision) or any(
        part in {"", ".", ".."} or ".." in part for part in parts
    ):
        raise SourceRefused(f"the revision {revision!r} is not a branch, a tag or a commit")
    return revision


def checked_name(name: str) -> str:
    """Return a file's path inside a repository that cannot leave the folder it is put in.

    Raises:
        SourceRefused: absolute, with `..`, backslashes, control characters, or too long for a file
            system.
    """
    problem = _unsafe(name)
    if problem:
        raise SourceRefused(
            f"the source lists a file {name[:200]!r}, which {problem}; the source is not used"
        )
    return name


def _unsafe(name: str) -> str | None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "is not text"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "contains a control character"
    if "\\" in name or re.match(r"[A-Za-z]:", name):
        return "is a path of another operating system"
    if name.startswith(("/", "~")):
        return "is absolute"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return "points outside its folder"
    if len(encoded) > 1024 or any(len(part.encode()) > 255 for part in name.split("/")):
        return "is too long"
    return None


def is_tokenizer_file(name: str) -> bool:
    """Tell whether this path of a repository belongs to its tokenizer.

    By suffix and place, and generously: a file that is left out looks like one that does not exist,
    so all small text formats at the root count, chat templates in their folder, and Python files
    anywhere (remote code).
    """
    path = PurePosixPath(name)
    if path.suffix == ".py":
        return True
    if len(path.parts) == 2:
        return path.parts[0] == TEMPLATES and path.suffix == ".jinja"
    if len(path.parts) != 1 or name.startswith(".") or _NOT_TOKENIZER.fullmatch(name):
        return False
    return path.suffix in _SUFFIXES or name.startswith("tokenizer.model")


def check_limits(sizes: Iterable[tuple[str, int]], *, limits: SourceLimits) -> None:
    """Refuse more than the limits allow, before a byte is fetched.

    Args:
        sizes: path and bytes of every tokenizer file.
        limits: what is allowed.

    Raises:
        SourceRefused: names the first file that is too large, or the sum.
    """
    total = count = 0
    for name, size in sizes:
        if size > limits.file_bytes:
            raise SourceRefused(
                f"{name} has {size:,} bytes, but a tokenizer file may have at most"
                f" {limits.file_bytes:,}; to allow larger files, pass SourceLimits(file_bytes=...)"
                " with a higher limit"
            )
        total += size
        count += 1
    if total > limits.total_bytes:
        raise SourceRefused(
            f"its tokenizer files total {total:,} bytes, more than the limit of"
            f" {limits.total_bytes:,}; to allow more, pass SourceLimits(total_bytes=...) with a"
            " higher limit"
        )
    if count > limits.files:
        raise SourceRefused(
            f"it has {count:,} tokenizer files, more than the limit of {limits.files:,}; to allow"
            " more, pass SourceLimits(files=...) with a higher limit"
        )
    if not count:
        raise SourceRefused("it has no tokenizer files; is this the right repository or folder?")


_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A file as the hub, or a lock, describes it.

    Attributes:
        path: inside the repository, checked.
        size: bytes.
        blob: git's id of the content (sha1 over a header and the bytes), for files that git itself
            stores.
        sha256: of the bytes, for files in large-file storage and for files of a lock.
    """

    path: str
    size: int
    blob: str | None = None
    sha256: str | None = None

    def broken_by(self, *, sha256: str, blob: str) -> str | None:
        """Describe how bytes with these digests differ from what was promised; None if they do
        not.
        """
        if self.sha256 is not None and sha256 != self.sha256:
            return f"its bytes have sha256 {sha256[:12]}…, but the listing has {self.sha256[:12]}…"
        if self.blob is not None and blob != self.blob:
            return f"its bytes have git id {blob[:12]}…, but the listing has {self.blob[:12]}…"
        return None

    def broken_by_file(self, path: Path) -> str | None:
        """Describe how a file differs from what was promised; None if it does not.

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
            return f"it has {size:,} bytes, but the listing has {self.size:,}"
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
        if (
            not isinstance(commit, str)
            or not COMMIT.fullmatch(commit)
            or not isinstance(siblings, list)
        ):
            raise ValueError("its response lacks the commit or the list of files")
        if COMMIT.fullmatch(revision) and commit != revision:
            raise ValueError(f"its response is for commit {commit}, not {revision}")
        names = [entry.get("rfilename") if isinstance(entry, dict) else None for entry in siblings]
        if not all(isinstance(name, str) for name in names):
            raise ValueError("its response lists a file without a name")
        return ResolvedRevision(
            commit=commit, names=frozenset(checked_name(str(name)) for name in names)
        )

    path = f"/api/models/{repository.name}/revision/{urllib.parse.quote(revision, safe='')}"
    return wire.json(path, read)[0]


def promises(
    wire: HubClient,
    repository: HubRepository,
    resolved: ResolvedRevision,
    *,
    limits: SourceLimits,
    names: tuple[str, ...] = (),
) -> tuple[Promise, ...]:
    """Files of a commit, by path, as the hub describes them: the tokenizer's, or those that are
    named.

    Raises:
        HubFailed: no usable answer.
        BytesDiffer: the tree and the revision's summary name different files.
        SourceRefused: a name would leave its folder, a file that is named is not there, or the
            listing is beyond the limits.
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
            raise SourceRefused(
                f"{repository.name} lists more than {limits.entries:,} files; to allow more, pass"
                " SourceLimits(entries=...) with a higher limit"
            )
    odd = sorted(name for name in resolved.names ^ promised.keys() if wanted(name))
    if odd:
        raise BytesDiffer(
            f"{wire.endpoint}{first}: the hub's two listings of commit {resolved.commit} disagree"
            f" about {_few(odd)}"
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
        # What the hub said is wrong, not how we asked.
        raise ValueError("its response is not a list of files")  # noqa: TRY004
    return [
        _promise(entry)
        for entry in answer
        if not isinstance(entry, dict) or entry.get("type") != "directory"
    ]


def _promise(entry: object) -> Promise:
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(path, str) or entry.get("type") != "file":
        raise ValueError("its response lists an entry that is neither a file nor a directory")
    large = entry.get("lfs")
    described = large if isinstance(large, dict) else entry
    size = described.get("size")
    oid = described.get("oid")
    digest = oid.removeprefix("sha256:") if isinstance(oid, str) else ""
    pattern = _SHA256 if isinstance(large, dict) else _SHA1
    if (
        not isinstance(size, int)
        or isinstance(size, bool)
        or size < 0
        or not pattern.fullmatch(digest)
    ):
        raise ValueError(f"its response has no valid size and digest for {path[:200]!r}")
    if isinstance(large, dict):
        return Promise(path=checked_name(path), size=size, sha256=digest)
    return Promise(path=checked_name(path), size=size, blob=digest)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
