"""The files a tokenizer is made of, with their digests: the manifest of a snapshot, and the lock
file.

`tokenizer.lock.json` pins one tokenizer by commit, by the sha256 of its files and by its identity.
Both are closed and strict.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, Strict

from harness.forms.model import Model, SchemaVersion, Sha256, parse_json
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import strict_json
from harness.tokenizer.identity import Identity
from harness.tokenizer.loading.source import (
    COMMIT,
    checked_name,
    checked_repository,
    is_tokenizer_file,
)
from harness.tokenizer.problem import BuildFailed, CacheFailed, SourceRefused

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
        raise ValueError("the files must be sorted by path, without duplicates")
    return files


Files = Annotated[
    tuple[FileRecord, ...], Strict(False), Field(min_length=1), AfterValidator(_each_once)
]


class SnapshotManifest(Model):
    """The manifest of a snapshot in the cache: exactly these files, and no other.

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
        only_tokenizer_files: leave out what does not belong to a tokenizer (weights, a readme,
            hidden folders).

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
    return tuple(
        record(folder / path, path)
        for path, _ in sizes(folder, only_tokenizer_files=only_tokenizer_files)
    )


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
    """Describe how two sets of files differ; empty if they do not."""
    old = {file.path: file for file in before}
    new = {file.path: file for file in after}
    said = [f"{path} is missing" for path in sorted(old.keys() - new.keys())]
    said += [f"{path} is new" for path in sorted(new.keys() - old.keys())]
    for path in sorted(old.keys() & new.keys()):
        if old[path].size != new[path].size:
            said.append(f"{path} has {new[path].size:,} bytes, not {old[path].size:,}")
        elif old[path].sha256 != new[path].sha256:
            said.append(f"{path} has different bytes")
    return said


def examine(folder: Path, names: Iterable[str]) -> None:
    """Read every such file once: a key that stands twice means the last one to some readers and the
    first to others.

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
        raise BuildFailed(f"{folder / name} is not strict JSON: {error}") from error
    if not isinstance(tree, dict):
        raise BuildFailed(f"{folder / name} is not a JSON object")
    return tree


LARGEST_LOCK = 16 * 2**20


def _is_identity(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    Identity.from_json(json.dumps(value, ensure_ascii=False))
    return value


class ModelRecord(Model):
    """A model file that belongs to the tokenizer.

    Attributes:
        path: in its repository, or its name where it is from none.
        size: bytes.
        sha256: of its bytes, 64 hex digits.
        repository: its name on the hub; None for a file that is from none.
        commit: 40 hex digits; None with it.
    """

    path: Annotated[str, AfterValidator(checked_name)]
    size: int = Field(ge=0)
    sha256: Sha256
    repository: Annotated[str, AfterValidator(checked_repository)] | None = None
    commit: Commit | None = None

    def file(self) -> FileRecord:
        """Return the file alone."""
        return FileRecord(path=self.path, size=self.size, sha256=self.sha256)


def _models_each_once(models: tuple[ModelRecord, ...]) -> tuple[ModelRecord, ...]:
    if [model.path for model in models] != sorted({model.path for model in models}):
        raise ValueError("the models must be sorted by path, without duplicates")
    return models


class Lock(Model):
    """The lock file. Closed and strict: an unknown key, a second spelling or a digest that does not
    follow is an error.

    Attributes:
        repository: its name on the hub; None for a lock made from a folder.
        commit: 40 hex digits; None for a folder.
        files: every tokenizer file, sorted by path, with size and sha256. A file that is not here
            does not exist.
        tokenizer_class: module and name of the class that was built.
        options: what was passed to `from_pretrained` beside the folder.
        made_with: versions of the libraries it was made with.
        identity: the identity of what was built, as `Identity.to_json` writes it.
        models: model files that the tokenizer was locked for, such as GGUF files, sorted by path.
    """

    schema_: SchemaVersion = Field(alias="schema")
    repository: Annotated[str, AfterValidator(checked_repository)] | None
    commit: Commit | None
    files: Files
    tokenizer_class: str = Field(alias="class")
    options: dict[str, JsonValue]
    made_with: dict[str, str]
    identity: Annotated[dict[str, JsonValue], AfterValidator(_is_identity)]
    models: Annotated[
        tuple[ModelRecord, ...], Strict(False), AfterValidator(_models_each_once)
    ] = ()

    def identified(self) -> Identity:
        """Return the locked identity."""
        return Identity.from_json(json.dumps(self.identity, ensure_ascii=False))

    def text(self) -> str:
        """Return the file's text: stable, one fact a line, so that a review shows what changed."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        SourceRefused: it is missing, too large, or not exactly a lock file.
    """
    try:
        content = read_regular(path, limit=LARGEST_LOCK)
    except OSError as error:
        raise SourceRefused(f"cannot read the lock file {path}: {error.strerror}") from error
    try:
        lock = parse_json(Lock, content)
    except ValueError as error:
        raise SourceRefused(f"{path} is not a lock file: {error}") from None
    together = [
        (lock.repository, lock.commit),
        *((model.repository, model.commit) for model in lock.models),
    ]
    if any((repository is None) != (commit is None) for repository, commit in together):
        raise SourceRefused(
            f"{path} is not a lock file: it must contain both repository and commit, or neither"
        )
    return lock


def write_lock(lock: Lock, path: Path) -> None:
    """Write a lock file whole or not at all.

    Raises:
        CacheFailed: it cannot be written; what was there is unharmed.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(lock.text())
            stream.flush()
            # Before the rename: after a crash the name must not lead to an empty file.
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise CacheFailed(f"cannot write the lock file {path}: {error.strerror}") from error


def lockable(options: dict[str, Any]) -> dict[str, JsonValue]:
    """Options as they stand in a lock file.

    Raises:
        SourceRefused: one of them is not a JSON value.
    """
    for name, value in options.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise SourceRefused(
                f"the option {name} is a {type(value).__name__}, which a lock file cannot contain"
            )
    return options
