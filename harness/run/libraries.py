"""Texts of the library modules in which the arms differ, and RECORDs of these libraries: taken from
where ranks imported them, and kept as evidence.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from harness.forms.digest import sha256, sha256_of
from harness.forms.distribution import wheel_lines
from harness.forms.regular_file import read_regular
from harness.record.facts import EnvironmentFacts
from harness.record.libraries import (
    RECORD,
    TEXT_LIMIT,
    LoadedLibraries,
    chosen,
    paths_of,
    stated_records,
)
from harness.record.results import ResultsFolder
from harness.run.arms.provenance import installed_folder
from harness.run.environments.cache import ReadyEnvironment


def keep_texts(
    results: ResultsFolder,
    lists: Mapping[str, Mapping[str, bytes]],
    environments: Mapping[str, ReadyEnvironment],
    machine: EnvironmentFacts,
    *,
    of: Collection[str],
    arms: tuple[str, str],
) -> dict[str, int | None]:
    """Write the texts of the modules that ranks of both arms loaded with different content, and the
    RECORDs of their distributions, as far as there is room.

    Args:
        results: where to.
        lists: per arm, what its ranks had loaded, by digest.
        environments: those of the arms that have their own.
        machine: the harness' environment.
        of: normal names of the distributions in question.
        arms: those that the report compares.

    Returns:
        Of those that were not kept, sha256 to size in bytes; None where no file of that content was
        found.
    """
    loaded = LoadedLibraries(arms)
    for arm, by_digest in lists.items():
        for listing in by_digest.values():
            loaded.add(arm, listing, of=of)
    own = {arm: environment.facts for arm, environment in environments.items()}
    pairs = {**dict(loaded.pairs()), **stated_records(of, own, machine, arms=arms)}
    texts: dict[str, bytes | None] = {}
    sizes: dict[str, int | None] = {}
    for (distribution, file), digests in pairs.items():
        for arm, digest in zip(arms, digests, strict=True):
            if texts.get(digest) is None:
                folders = _imported_from(environments.get(arm), distribution)
                find = _find_record if file == RECORD else _find_module
                name = distribution if file == RECORD else file
                sizes[digest], texts[digest] = find(folders, name, digest)
    kept = chosen(pairs.values(), sizes)
    paths = paths_of(pairs)
    for digest in sorted(kept):
        results.write(paths[digest], texts[digest] or b"")
    return {digest: sizes[digest] for digest in sorted(sizes.keys() - kept)}


def _imported_from(environment: ReadyEnvironment | None, distribution: str) -> Iterator[Path]:
    """Where an arm's ranks may have imported a distribution from."""
    if environment is not None:
        yield from environment.python.parent.parent.glob("lib*/python*/site-packages")
        return
    yield from map(Path, filter(None, sys.path))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if (folder := installed_folder(importlib.metadata.distribution(distribution))) is not None:
            yield from (folder, folder / "src")


def _find_module(
    folders: Iterator[Path], file: str, digest: str
) -> tuple[int | None, bytes | None]:
    """Size and text of a module with this content: without the text where it is too large; None
    where it is gone.
    """
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            if (path := folder / file).is_file() and sha256_of(path) == digest:
                size = path.stat().st_size
                return size, read_regular(path, limit=TEXT_LIMIT) if size <= TEXT_LIMIT else None
    return None, None


def _find_record(
    folders: Iterator[Path], distribution: str, digest: str
) -> tuple[int | None, bytes | None]:
    """Size and lines of a RECORD with this digest; None where it is gone."""
    places = [str(folder) for folder in folders]
    for found in importlib.metadata.distributions(name=distribution, path=places):
        lines = wheel_lines(found.read_text("RECORD") or "")
        if sha256(lines) == digest:
            return len(lines), lines
    return None, None
