"""Model files of a lock: their digests made, and held against the files that are here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.tokenizer.loading.failure import IdentityDiffers, SourceRefused
from harness.tokenizer.loading.fetch import Fetched
from harness.tokenizer.loading.lockfile import Lock, ModelRecord
from harness.tokenizer.loading.manifest import record
from harness.tokenizer.problem import Unreadable
from harness.tokenizer.resolution import resolve


def of_file(path: Path) -> ModelRecord:
    """A model file from no repository, by its name alone.

    Raises:
        CacheFailed: it cannot be read.
        SourceRefused: its name could not stand in a repository.
    """
    file = record(path, path.name)
    return ModelRecord(path=file.path, size=file.size, sha256=file.sha256)


def of_fetched(made: Fetched) -> tuple[ModelRecord, ...]:
    """Model files that were fetched by name."""
    return tuple(
        ModelRecord(
            path=file.path, size=file.size, sha256=file.sha256, repository=made.repository.name, commit=made.commit
        )
        for file in made.files
    )


def together(models: Iterable[ModelRecord]) -> tuple[ModelRecord, ...]:
    """As a lock holds them: sorted by path, each once.

    Raises:
        SourceRefused: two have one path.
    """
    found: dict[str, ModelRecord] = {}
    for one in models:
        if found.setdefault(one.path, one) != one:
            raise SourceRefused(f"two model files are called {one.path}: a lock tells them apart by their paths")
    return tuple(found[path] for path in sorted(found))


def belongs(model: Path, tokenizer: Path) -> None:
    """That a GGUF model holds this tokenizer. A file of another format says nothing of it, and is taken as it is.

    Args:
        model: the model file.
        tokenizer: the folder of the tokenizer's files.

    Raises:
        IdentityDiffers: it holds another one, or not enough to tell.
        SourceRefused: it cannot be read.
    """
    if model.suffix.lower() != ".gguf":
        return
    try:
        found = resolve(model, tokenizer=tokenizer)
    except Unreadable as error:
        raise SourceRefused(str(error)) from error
    if not found.proven:
        reasons = [reason for one in found.candidates for reason in one.reasons]
        raise IdentityDiffers(f"{model} is not proven to have this tokenizer: {'; '.join(reasons[:3])}")


def difference(lock: Lock, path: Path) -> str | None:
    """In words why a file is not one of a lock's models; None if it is one, whatever it is called here.

    Raises:
        CacheFailed: it cannot be read.
        SourceRefused: the lock holds no models.
    """
    if not lock.models:
        raise SourceRefused("the lock holds no model files: make it anew with --model")
    here = of_file(path)
    if any((one.size, one.sha256) == (here.size, here.sha256) for one in lock.models):
        return None
    same = next((one for one in lock.models if Path(one.path).name == here.path), None)
    if same is None:
        return f"{path} is none of the lock's models ({', '.join(one.path for one in lock.models)})"
    if same.size != here.size:
        return f"{path} has {here.size:,} bytes, and the lock's {same.path} has {same.size:,}"
    return f"{path} has other bytes than the lock's {same.path}"
