"""The tokenizers of model files: found where they are, else fetched from where the model, or a lock, says it is from.

What a file says of its origin is a place to look, and nothing more: what is fetched counts only if it holds, id by id,
what the model holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.tokenizer.gguf.reader import GgufFile, Malformed
from harness.tokenizer.loading.failure import HubFailed, LoadError, SourceRefused
from harness.tokenizer.loading.fetch import Fetched
from harness.tokenizer.loading.lockfile import Lock
from harness.tokenizer.loading.source import DEFAULT_ENDPOINT, checked_repository
from harness.tokenizer.locked_models import difference
from harness.tokenizer.problem import Unreadable, refused
from harness.tokenizer.resolution import Resolution, resolve

_NAMES = re.compile(r"general\.(source\.huggingface\.repository|(source\.|base_model\.\d+\.)?(repo_)?url)")
# Of a model in several files the first has the metadata.
_LATER_PART = re.compile(r".*-(?!0*1-of)\d+-of-\d+\.gguf", re.IGNORECASE)
Get = Callable[[str, Lock | None], Fetched]
"""Fetches the tokenizer of a repository, bound by a lock where there is one."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What was found for a model.

    Attributes:
        resolution: its tokenizer, with every candidate.
        fetched: what was fetched for it, in order; empty where nothing had to be.
        said: what went wrong with places that were tried.
    """

    resolution: Resolution
    fetched: tuple[Fetched, ...]
    said: tuple[str, ...]


def models_below(folder: Path) -> list[Path]:
    """The GGUF files of a folder, to any depth, sorted; of a model in several parts the first.

    Raises:
        SourceRefused: it is not a folder.
    """
    if not folder.is_dir():
        raise SourceRefused(f"{folder} is not a folder")
    found = [path for path in folder.rglob("*") if path.suffix.lower() == ".gguf" and path.is_file()]
    return sorted(path for path in found if not _LATER_PART.fullmatch(path.name))


def serve(model: Path, *, get: Get, lock: Lock | None = None, caches: Sequence[Path] | None = None) -> Served:
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
    found = resolve(model, caches=caches)
    if found.proven:
        return Served(resolution=found, fetched=(), said=())
    fetched: list[Fetched] = []
    said: list[str] = []
    for repository, bound in _wanted(model, lock, said):
        try:
            made = get(repository, bound)
        except (HubFailed, SourceRefused) as error:
            if bound is not None:
                raise
            said.append(f"{repository}, which the model names: {error}")
            continue
        fetched.append(made)
        tried = resolve(model, tokenizer=made.folder)
        if tried.proven:
            return Served(resolution=tried, fetched=tuple(fetched), said=tuple(said))
        reasons = [reason for one in tried.candidates for reason in one.reasons]
        said.append(f"{repository}@{made.commit}: {'; '.join(reasons[:2])}")
    return Served(resolution=found, fetched=tuple(fetched), said=tuple(said))


def _wanted(model: Path, lock: Lock | None, said: list[str]) -> Iterator[tuple[str, Lock | None]]:
    if lock is not None and lock.models and lock.repository is not None:
        why = difference(lock, model)
        if why is None:
            yield lock.repository, lock
            return
        said.append(why)
    named = list(repositories(model))
    if not named:
        said.append(
            "the model names no repository that it is from: name one with --tokenizer, make a lock, or use the "
            "tokenizer inside the model, if nothing is wrong with it"
        )
    yield from ((name, None) for name in named)


def repositories(model: Path) -> Iterator[str]:
    """The repositories that a model file says it comes from, each once.

    Raises:
        Unreadable: it cannot be read.
    """
    try:
        with GgufFile(model) as file:
            values = [key.value for key in file.keys.values() if _NAMES.fullmatch(key.name)]
    except Malformed as error:
        raise Unreadable(f"{model}: {error}") from None
    except OSError as error:
        raise refused(model, error) from None
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
