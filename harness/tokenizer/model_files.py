"""Tokenizers of model files: found or fetched, held against a lock, and tried.

What a file says of its origin is a place to look, and nothing more: what is fetched counts only if
it holds, id by id, what the model holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.forms.text import plural
from harness.tokenizer.discovery import Resolution, resolve
from harness.tokenizer.engines import Engine, EngineFailed
from harness.tokenizer.gguf import check
from harness.tokenizer.gguf.reader import GgufFile, Malformed, opened
from harness.tokenizer.isolation import identify_folder
from harness.tokenizer.loading.fetch import Fetched
from harness.tokenizer.loading.intact import unchanged
from harness.tokenizer.loading.manifest import Lock, ModelRecord, record
from harness.tokenizer.loading.source import DEFAULT_ENDPOINT, checked_repository
from harness.tokenizer.problem import (
    HubFailed,
    IdentityDiffers,
    LoadError,
    SourceRefused,
    TokenizerError,
    Unreadable,
)

_NAMES = re.compile(
    r"general\.(source\.huggingface\.repository|(source\.|base_model\.\d+\.)?(repo_)?url)"
)
# Of a model in several files the first has the metadata.
_LATER_PART = re.compile(r".*-(?!0*1-of)\d+-of-\d+\.gguf", re.IGNORECASE)
# Fetches the tokenizer of a repository, bound by a lock where there is one.
Get = Callable[[str, Lock | None], Fetched]


@dataclass(frozen=True, kw_only=True)
class ServedModelFiles:
    """The tokenizer of a model, and how it was found.

    Attributes:
        resolution: its tokenizer, with every candidate.
        fetched: what was fetched for it, in order; empty where nothing had to be.
        said: what went wrong with places that were tried.
    """

    resolution: Resolution
    fetched: tuple[Fetched, ...]
    said: tuple[str, ...]


def models_below(folder: Path) -> list[Path]:
    """Return the GGUF files of a folder, to any depth, sorted.

    Of a model in several parts the first.

    Raises:
        SourceRefused: it is not a folder.
    """
    if not folder.is_dir():
        raise SourceRefused(f"{folder} is not a folder")
    models = [
        path for path in folder.rglob("*") if path.suffix.lower() == ".gguf" and path.is_file()
    ]
    return sorted(path for path in models if not _LATER_PART.fullmatch(path.name))


def serve(
    model: Path, *, get: Get, lock: Lock | None = None, caches: Sequence[Path] | None = None
) -> ServedModelFiles:
    """Find the tokenizer of a model file, and fetch it where nothing here is proven to be it.

    Args:
        model: a GGUF file.
        get: fetches.
        lock: where the model is one of the lock's, its tokenizer is the one to fetch.
        caches: see `resolve`.

    Raises:
        Unreadable: the model cannot be read.
        LoadError: the lock's tokenizer cannot be fetched.
    """
    local = resolve(model, caches=caches)
    if local.proven:
        return ServedModelFiles(resolution=local, fetched=(), said=())
    fetched: list[Fetched] = []
    said: list[str] = []
    for repository, bound in _wanted(model, lock, said):
        try:
            fetched_files = get(repository, bound)
        except (HubFailed, SourceRefused) as error:
            if bound is not None:
                raise
            said.append(f"{repository}, which the model names: {error}")
            continue
        fetched.append(fetched_files)
        tried = resolve(model, tokenizer=fetched_files.folder)
        if tried.proven:
            return ServedModelFiles(resolution=tried, fetched=tuple(fetched), said=tuple(said))
        said.append(f"{repository}@{fetched_files.commit}: {'; '.join(tried.reasons[:2])}")
    return ServedModelFiles(resolution=local, fetched=tuple(fetched), said=tuple(said))


def _wanted(model: Path, lock: Lock | None, said: list[str]) -> Iterator[tuple[str, Lock | None]]:
    if lock is not None and lock.models and lock.repository is not None:
        why = model_difference(lock, model)
        if why is None:
            yield lock.repository, lock
            return
        said.append(why)
    named = list(repositories(model))
    if not named:
        said.append(
            "the model does not name the repository that it comes from; name the repository with"
            " --tokenizer, make a lock, or use the tokenizer inside the model if it is correct"
        )
    yield from ((name, None) for name in named)


def repositories(model: Path) -> Iterator[str]:
    """The repositories that a model file says it comes from, each once.

    Raises:
        Unreadable: it cannot be read.
    """
    with opened(model) as file:
        values = [key.value for key in file.keys.values() if _NAMES.fullmatch(key.name)]
    seen: set[str] = set()
    for value in values:
        name = _repository(value.decode(errors="replace")) if isinstance(value, bytes) else None
        if name is not None and name not in seen:
            seen.add(name)
            yield name


def _repository(text: str) -> str | None:
    """`org/model` of a name, or of an address on the public hub."""
    name = text.removeprefix(f"{DEFAULT_ENDPOINT}/")
    parts = name.split("/")
    if len(parts) < 2 or "://" in name or (name == text and len(parts) != 2):
        return None
    try:
        return checked_repository("/".join(parts[:2]))
    except LoadError:
        return None


def record_of_file(path: Path) -> ModelRecord:
    """Return a model file from no repository, by its name alone.

    Raises:
        CacheFailed: it cannot be read.
        SourceRefused: its name could not stand in a repository.
    """
    file = record(path, path.name)
    return ModelRecord(path=file.path, size=file.size, sha256=file.sha256)


def records_of_fetched(fetched: Fetched) -> tuple[ModelRecord, ...]:
    """Model files that were fetched by name."""
    return tuple(
        ModelRecord(
            path=file.path,
            size=file.size,
            sha256=file.sha256,
            repository=fetched.repository.name,
            commit=fetched.commit,
        )
        for file in fetched.files
    )


def sorted_records(models: Iterable[ModelRecord]) -> tuple[ModelRecord, ...]:
    """As a lock holds them: sorted by path, each once.

    Raises:
        SourceRefused: two have one path.
    """
    by_path: dict[str, ModelRecord] = {}
    for model in models:
        if by_path.setdefault(model.path, model) != model:
            raise SourceRefused(
                f"two model files have the path {model.path}, but paths in a lock file must be"
                " unique"
            )
    return tuple(by_path[path] for path in sorted(by_path))


def require_tokenizer(model: Path, tokenizer: Path) -> None:
    """Require that a GGUF model holds this tokenizer.

    A file of another format has none, and is taken as it is.

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
        resolution = resolve(model, tokenizer=tokenizer)
    except Unreadable as error:
        raise SourceRefused(str(error)) from error
    if not resolution.proven:
        raise IdentityDiffers(
            f"cannot prove that {model} uses this tokenizer: {'; '.join(resolution.reasons[:3])}"
        )


def model_difference(lock: Lock, path: Path) -> str | None:
    """Say why a file is not one of a lock's models; None if it is, whatever it is called here.

    Raises:
        CacheFailed: it cannot be read.
        SourceRefused: the lock holds no models.
    """
    if not lock.models:
        raise SourceRefused("the lock file contains no model files; recreate it with --model")
    here = record_of_file(path)
    if any((locked.size, locked.sha256) == (here.size, here.sha256) for locked in lock.models):
        return None
    same = next((locked for locked in lock.models if Path(locked.path).name == here.path), None)
    if same is None:
        return (
            f"{path} is not one of the lock's models"
            f" ({', '.join(locked.path for locked in lock.models)})"
        )
    if same.size != here.size:
        return f"{path} has {here.size:,} bytes, but the lock's {same.path} has {same.size:,}"
    return f"{path} has different bytes from the lock's {same.path}"


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of a model file and its tokenizer.

    Attributes:
        model: the GGUF file.
        word: `well`: its tokenizer, proven to be its own or inside it, was loaded, and kept the
            texts it can spell; `ill`; `not tried`: nothing is wrong, and no engine here loads it.
        tokenizer: what was loaded, or what no engine here loads.
        said: what was found, in words.
    """

    model: Path
    word: Literal["well", "ill", "not tried"]
    tokenizer: Path | None
    said: tuple[str, ...]


def health(model: Path, *, tokenizer: Path | None = None) -> Health:
    """Look at a model file, and at its tokenizer, in processes with limits where they are loaded.

    Args:
        model: a GGUF file.
        tokenizer: a file or folder that has to be its tokenizer; default: it is looked for.
    """
    try:
        with GgufFile(model) as file:
            wrong = [
                f"{row.where}: {row.message}" for row in check(file) if row.severity == "error"
            ]
        if wrong:
            return Health(model=model, word="ill", tokenizer=None, said=tuple(wrong))
        resolution = resolve(model, tokenizer=tokenizer)
        if resolution.chosen is None:
            said = tuple(
                f"{row.origin} {row.path}: {row.standing}: {row.reasons[0]}"
                for row in resolution.candidates
            )
            return Health(
                model=model,
                word="ill",
                tokenizer=None,
                said=("no tokenizer was found for this model", *said),
            )
        proof = (
            resolution.chosen.reasons[0]
            if resolution.proven
            else "only the tokenizer inside the model was found"
        )
        place = resolution.chosen.path
        kept = None
        if resolution.proven:
            with unchanged(place):
                kept = identify_folder(place).parts.get("round trip")
        if kept is None:
            try:
                engine = Engine(str(place))
            except EngineFailed as error:
                return Health(
                    model=model, word="not tried", tokenizer=place, said=(proof, str(error))
                )
            with engine:
                proof = f"{proof}; loaded by {engine.about}"
                kept = engine.round_trip()
    except (Malformed, TokenizerError) as error:
        return Health(model=model, word="ill", tokenizer=None, said=(str(error),))
    except OSError as error:
        return Health(
            model=model, word="ill", tokenizer=None, said=(f"cannot be read: {error.strerror}",)
        )
    return _judged(model, place, proof, kept)


def _judged(model: Path, place: Path, proof: str, round_trip: str) -> Health:
    """Texts that vanish show a vocabulary that is not there.

    Others may change, as where case is not kept.
    """
    counts = json.loads(round_trip)
    kept, changed, lost = (int(counts[name]) for name in ("kept", "changed", "lost"))
    said = (
        f"round trip of {plural(kept + changed + lost, 'text')}: {kept} kept, {changed} changed,"
        f" {lost} lost"
    )
    return Health(
        model=model, word="ill" if lost or not kept else "well", tokenizer=place, said=(proof, said)
    )
