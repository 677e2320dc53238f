"""Repositories of a folder, as a hub knows them: files with git and sha256 digests, commits,
branches and tags.

``FOLDER/org/name/`` is the branch ``main`` of the repository ``org/name``, and
``FOLDER/org/name@v1.0/`` is its tag ``v1.0`` (a revision with a slash is written with ``%2F``, as
in an address). Everything is read once, when the hub starts: what a hub serves does not change
under its clients, and no address ever becomes a path of the file system.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import yaml

from harness.forms.digest import git_blob
from harness.hub import HubError

NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
MAIN = "main"
LFS_FROM = 10 * 2**20
"""Bytes from which the public hub keeps a file as LFS, whatever .gitattributes says."""

FILE_LIMIT = 100_000
README_LIMIT = 1 << 20
CHUNK = 1 << 20
SKIPPED = frozenset({".git", ".cache", "__pycache__"})


@dataclass(frozen=True, slots=True)
class File:
    """File of a revision.

    Attributes:
        path: inside the repository, with ``/``.
        source: where its bytes lie.
        size: bytes.
        stamp: modification time in ns, to notice a file that changed after the hub read it.
        git: git's blob id, 40 hexadecimal digits.
        sha256: 64 hexadecimal digits.
        lfs: kept as LFS: its ETag is then the sha256, as on the public hub.
    """

    path: str
    source: Path
    size: int
    stamp: int
    git: str
    sha256: str
    lfs: bool

    @property
    def etag(self) -> str:
        """Return what names these bytes: git's blob id, or for LFS the sha256."""
        return self.sha256 if self.lfs else self.git


@dataclass(frozen=True, slots=True)
class Revision:
    """Commit: its id follows from paths and bytes, so equal content has an equal id on every
    machine.
    """

    name: str
    commit: str
    files: Mapping[str, File]
    folders: Mapping[str, str]
    """Path of every folder to its id; the root is the empty path."""

    tags: tuple[str, ...]

    def under(self, folder: str, *, recursive: bool) -> list[tuple[str, File | None]]:
        """List what lies in a folder, sorted by path: (path, the file, or None for a folder).

        Raises:
            KeyError: no such folder.
        """
        if folder not in self.folders:
            raise KeyError(folder)
        start = f"{folder}/" if folder else ""
        listed: list[tuple[str, File | None]] = [
            (path, file) for path, file in self.files.items() if path.startswith(start)
        ]
        listed += [(path, None) for path in self.folders if path and path.startswith(start)]
        if not recursive:
            listed = [(path, file) for path, file in listed if "/" not in path[len(start) :]]
        return sorted(listed, key=lambda entry: entry[0])


@dataclass(frozen=True, slots=True)
class ServedRepository:
    """Repository: its id ``org/name`` (or ``name``) and its revisions by name."""

    id: str
    revisions: Mapping[str, Revision] = field(default_factory=dict)

    def revision(self, name: str) -> Revision | None:
        """Find a revision by branch, tag, commit, or at least seven digits of a commit."""
        if name in self.revisions:
            return self.revisions[name]
        if re.fullmatch(r"[0-9a-f]{7,40}", name):
            matching = {
                revision.commit: revision
                for revision in self.revisions.values()
                if revision.commit.startswith(name)
            }
            if len(matching) == 1:
                return next(iter(matching.values()))
        return None


def read_folder(folder: Path) -> dict[str, ServedRepository]:
    """Read all repositories of a folder, by id.

    Raises:
        HubError: no such folder, nothing to serve in it, or a file that cannot be served.
    """
    if not folder.is_dir():
        raise HubError(
            f"{folder} does not exist; `rankproof lab hub layouts --out {folder}` creates an"
            " example"
        )
    by_id: dict[str, dict[str, Revision]] = {}
    for identity, name, place in _places(folder):
        by_id.setdefault(identity, {})[name] = read_revision(place, name=name, root=folder)
    if not by_id:
        raise HubError(f"{folder} contains no repository; add a folder ORG/NAME with files")
    return {
        identity: ServedRepository(identity, revisions)
        for identity, revisions in sorted(by_id.items())
    }


def _places(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Find (repository id, revision, folder) for everything that can be served."""
    for outer in sorted(path for path in folder.iterdir() if path.is_dir()):
        if outer.name.startswith("."):
            continue
        if any(path.is_file() for path in outer.iterdir()):
            name, revision = _named(outer)
            yield name, revision, outer
            continue
        for inner in sorted(
            path for path in outer.iterdir() if path.is_dir() and not path.name.startswith(".")
        ):
            name, revision = _named(inner)
            if not NAME.fullmatch(outer.name):
                raise HubError(
                    f"{outer} is not a valid organisation name; rename it, using only letters,"
                    " digits, '.', '_' and '-'"
                )
            yield f"{outer.name}/{name}", revision, inner


def _named(folder: Path) -> tuple[str, str]:
    name, _, revision = folder.name.partition("@")
    if not NAME.fullmatch(name):
        raise HubError(
            f"{folder} is not a valid repository name; rename it, using only letters, digits, '.',"
            " '_' and '-'"
        )
    revision = unquote(revision) or MAIN
    if (
        not revision.isprintable()
        or len(revision) > 200
        or ".." in revision
        or re.search(r"[\s\\~^:?*\[]", revision)
    ):
        raise HubError(f"{folder}: the part after @ is not a valid branch or tag name")
    return name, revision


def read_revision(folder: Path, *, name: str, root: Path) -> Revision:
    """Read one folder as a commit. Links may point anywhere inside ``root``, nowhere else.

    Raises:
        HubError: a link that leaves ``root``, something that is not a file, too many files, or an
            unreadable file.
    """
    patterns = _lfs_patterns(folder)
    files: dict[str, File] = {}
    top = root.resolve()
    for path in _walk(folder):
        real = path.resolve()
        if not real.is_relative_to(top):
            raise HubError(
                f"{path} is a link to a place outside {root}; copy the file into the repository"
            )
        if not real.is_file():
            raise HubError(f"{path} is not a regular file; remove it from the repository")
        file = _read_file(path, inside=path.relative_to(folder).as_posix(), patterns=patterns)
        files[file.path] = file
        if len(files) > FILE_LIMIT:
            raise HubError(
                f"{folder} contains more than {FILE_LIMIT} files; serve a smaller folder"
            )
    files = dict(sorted(files.items()))
    folders = _folder_ids(files)
    commit = hashlib.sha1(f"commit\0{folders['']}".encode(), usedforsecurity=False).hexdigest()
    return Revision(name, commit, files, folders, _model_tags(folder))


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        yield from (Path(here, name) for name in sorted(names))


def _refuse(error: OSError) -> None:
    raise HubError(f"{error.filename} cannot be read: {error.strerror}")


def _read_file(path: Path, *, inside: str, patterns: tuple[str, ...]) -> File:
    if any(not char.isprintable() for char in inside) or "\\" in inside:
        raise HubError(f"{inside!r} has a name that cannot be part of a URL; rename it")
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            git = git_blob(status.st_size)
            sha = hashlib.sha256()
            while chunk := stream.read(CHUNK):
                git.update(chunk)
                sha.update(chunk)
    except OSError as error:
        raise HubError(f"{path} cannot be read: {error.strerror}") from error
    name = inside.rsplit("/", 1)[-1]
    lfs = status.st_size > LFS_FROM or any(
        fnmatch.fnmatchcase(inside if "/" in pattern else name, pattern) for pattern in patterns
    )
    return File(
        inside, path, status.st_size, status.st_mtime_ns, git.hexdigest(), sha.hexdigest(), lfs
    )


def _lfs_patterns(folder: Path) -> tuple[str, ...]:
    """Return what .gitattributes of the repository keeps as LFS."""
    try:
        text = (folder / ".gitattributes").read_text("utf-8", "replace")
    except OSError:
        return ()
    lines = (line.split() for line in text[:README_LIMIT].splitlines())
    return tuple(words[0] for words in lines if len(words) > 1 and "filter=lfs" in words[1:])


def _folder_ids(files: Mapping[str, File]) -> dict[str, str]:
    """Return the ids of all folders; not git's tree objects, which nothing in the protocol lets a
    client check.
    """
    held: dict[str, list[str]] = {"": []}
    for path, file in files.items():
        parts = path.split("/")[:-1]
        for depth in range(len(parts) + 1):
            held.setdefault("/".join(parts[:depth]), []).append(f"{file.git} {path}\n")
    return {
        folder: hashlib.sha1("".join(lines).encode(), usedforsecurity=False).hexdigest()
        for folder, lines in held.items()
    }


def _model_tags(folder: Path) -> tuple[str, ...]:
    """Return the tags that the public hub derives from the metadata at the head of README.md.

    ``base_model`` matters: transformers takes a tokenizer for Mistral's by the tag
    ``base_model:…mistralai…``.
    """
    try:
        text = (folder / "README.md").read_text("utf-8", "replace")[:README_LIMIT]
    except OSError:
        return ()
    head = re.match(r"---\r?\n(.*?\n)---\r?\n", text, re.DOTALL)
    if head is None:
        return ()
    try:
        card = yaml.safe_load(head[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return ()
    if not isinstance(card, dict):
        return ()
    tags = card.get("tags")
    derived = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    bases = card.get("base_model")
    if isinstance(bases, str):
        bases = [bases]
    if isinstance(bases, list):
        derived += [f"base_model:{name}" for name in bases if isinstance(name, str)]
    licence = card.get("license")
    if isinstance(licence, str):
        derived.append(f"license:{licence}")
    return tuple(derived)
