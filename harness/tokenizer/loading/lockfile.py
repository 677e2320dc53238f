"""`tokenizer.lock.json`: one tokenizer, pinned by commit, by the sha256 of its files and by what it does."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, Strict

from harness.forms.fields import SchemaVersion, Sha256
from harness.forms.model import Model, parse_json
from harness.forms.regular_file import read_regular
from harness.tokenizer.identity import Identity
from harness.tokenizer.loading.failure import CacheFailed, SourceRefused
from harness.tokenizer.loading.manifest import Commit, FileRecord, Files
from harness.tokenizer.loading.source import checked_name, checked_repository

MOST_BYTES = 16 * 2**20


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
        """The file alone."""
        return FileRecord(path=self.path, size=self.size, sha256=self.sha256)


def _each_once(models: tuple[ModelRecord, ...]) -> tuple[ModelRecord, ...]:
    if [model.path for model in models] != sorted({model.path for model in models}):
        raise ValueError("the models must be sorted by path, each once")
    return models


class Lock(Model):
    """The lock file. Closed and strict: an unknown key, a second spelling or a digest that does not follow is an error.

    Attributes:
        repository: its name on the hub; None for a lock made from a folder.
        commit: 40 hex digits; None for a folder.
        files: every tokenizer file, sorted by path, with size and sha256. A file that is not here does not exist.
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
    models: Annotated[tuple[ModelRecord, ...], Strict(False), AfterValidator(_each_once)] = ()

    def identified(self) -> Identity:
        """The locked identity."""
        return Identity.from_json(json.dumps(self.identity, ensure_ascii=False))

    def text(self) -> str:
        """The file's text: stable, one fact a line, so that a review shows what changed."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def read(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        SourceRefused: it is missing, too large, or not exactly a lock file.
    """
    try:
        content = read_regular(path, limit=MOST_BYTES)
    except OSError as error:
        raise SourceRefused(f"cannot read the lock file {path}: {error.strerror}") from error
    try:
        lock = parse_json(Lock, content)
    except ValueError as error:
        raise SourceRefused(f"{path} is not a lock file: {error}") from None
    together = [(lock.repository, lock.commit), *((one.repository, one.commit) for one in lock.models)]
    if any((repository is None) != (commit is None) for repository, commit in together):
        raise SourceRefused(f"{path} is not a lock file: repository and commit belong together")
    return lock


def write(lock: Lock, path: Path) -> None:
    """Write a lock file whole or not at all.

    Raises:
        CacheFailed: it cannot be written; what was there is unharmed.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(lock.text())
            stream.flush()
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
            raise SourceRefused(f"the option {name} is a {type(value).__name__}, which no lock file can hold")
    return options
