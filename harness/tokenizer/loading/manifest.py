"""The files a tokenizer is made of, with their digests: closed, strict, and written beside every snapshot."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict

from harness.forms.fields import SchemaVersion, Sha256
from harness.forms.model import Model
from harness.forms.strict_json import strict_json
from harness.tokenizer.loading.failure import BuildFailed, CacheFailed
from harness.tokenizer.loading.source import COMMIT, checked_name, is_tokenizer_file

# JSON files that must mean the same to Python and to Rust.
OBJECTS = (
    "added_tokens.json",
    "config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)

Commit = Annotated[str, Field(pattern=rf"\A{COMMIT.pattern}\z")]


class FileRecord(Model):
    """One file.

    Attributes:
        path: inside the repository or folder, with forward slashes.
        size: bytes.
        sha256: of its bytes, 64 hex digits.
    """

    path: Annotated[str, AfterValidator(checked_name)]
    size: int = Field(ge=0)
    sha256: Sha256


def _each_once(files: tuple[FileRecord, ...]) -> tuple[FileRecord, ...]:
    if [file.path for file in files] != sorted({file.path for file in files}):
        raise ValueError("the files must be sorted by path, each once")
    return files


Files = Annotated[tuple[FileRecord, ...], Strict(False), Field(min_length=1), AfterValidator(_each_once)]


class Manifest(Model):
    """What a snapshot in the cache holds: exactly these files, and no other.

    Attributes:
        chosen: whether they were asked for by name, and need not be the whole tokenizer.
    """

    schema_: SchemaVersion = Field(alias="schema")
    endpoint: str
    repository: str
    commit: Commit
    files: Files
    chosen: bool


def sizes(folder: Path, *, only_tokenizer_files: bool) -> list[tuple[str, int]]:
    """Path and bytes of the files of a folder, sorted by path; nothing is read.

    Args:
        folder: searched to any depth; symbolic links are followed for files and not for folders.
        only_tokenizer_files: leave out what does not belong to a tokenizer (weights, a readme, hidden folders).

    Raises:
        CacheFailed: the folder cannot be read.
    """

    def unreadable(error: OSError) -> None:
        raise CacheFailed(f"cannot read {error.filename}: {error.strerror}") from error

    files: list[tuple[str, int]] = []
    for place, folders, names in os.walk(folder, onerror=unreadable):
        if only_tokenizer_files:
            folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in names:
            where = Path(place) / name
            path = where.relative_to(folder).as_posix()
            if not only_tokenizer_files or is_tokenizer_file(path):
                try:
                    files.append((path, where.stat().st_size))
                except OSError as error:
                    raise CacheFailed(f"cannot read {where}: {error.strerror}") from error
    return sorted(files)


def records(folder: Path, *, only_tokenizer_files: bool) -> tuple[FileRecord, ...]:
    """Read the files of a folder, sorted by path; see `sizes`.

    Raises:
        CacheFailed: a file cannot be read.
        SourceRefused: a file's name could not stand in a repository.
    """
    return tuple(record(folder / path, path) for path, _ in sizes(folder, only_tokenizer_files=only_tokenizer_files))


def record(where: Path, path: str) -> FileRecord:
    """Read one file.

    Raises:
        CacheFailed: it cannot be read, or is not a regular file.
    """
    try:
        if not stat.S_ISREG(where.stat().st_mode):
            raise CacheFailed(f"{where} is not a regular file")
        with where.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except OSError as error:
        raise CacheFailed(f"cannot read {where}: {error.strerror}") from error
    return FileRecord(path=path, size=size, sha256=digest)


def changes(before: tuple[FileRecord, ...], after: tuple[FileRecord, ...]) -> list[str]:
    """In words how two sets of files differ; empty if they do not."""
    old, new = {file.path: file for file in before}, {file.path: file for file in after}
    said = [f"{path} is missing" for path in sorted(old.keys() - new.keys())]
    said += [f"{path} was not there" for path in sorted(new.keys() - old.keys())]
    for path in sorted(old.keys() & new.keys()):
        if old[path].size != new[path].size:
            said.append(f"{path} has {new[path].size:,} bytes, not {old[path].size:,}")
        elif old[path].sha256 != new[path].sha256:
            said.append(f"{path} has other bytes")
    return said


def examine(folder: Path, names: Iterable[str]) -> None:
    """Read every such file once: a key that stands twice means the last one to some readers and the first to others.

    Raises:
        BuildFailed: one of them is not a JSON object with one meaning.
    """
    for name in sorted(set(names) & set(OBJECTS)):
        read_object(folder, name)


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """One of these files.

    Raises:
        BuildFailed: it is not a JSON object with one meaning.
    """
    try:
        tree = strict_json((folder / name).read_bytes(), constants=True)
    except ValueError as error:
        raise BuildFailed(f"{folder / name} is not JSON with one meaning: {error}") from error
    if not isinstance(tree, dict):
        raise BuildFailed(f"{folder / name} is not an object")
    return tree
