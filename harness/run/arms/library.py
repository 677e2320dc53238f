"""Keeping the texts of library modules that differ between the arms, from where their ranks
imported them.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from harness.forms.digest import sha256_of
from harness.forms.regular_file import read_regular
from harness.record.changed import TEXT_LIMIT, LoadedLibraries, chosen, text_path
from harness.record.results import ResultsFolder
from harness.run.arms.provenance import installed_folder
from harness.run.environments.cache import ArmEnvironment


def keep(
    results: ResultsFolder,
    lists: Mapping[str, Mapping[str, bytes]],
    environments: Mapping[str, ArmEnvironment],
    *,
    of: Collection[str],
    arms: tuple[str, str],
) -> dict[str, int | None]:
    """Write the texts of the modules that ranks of both arms loaded with different content, as far
    as there is room.

    Args:
        results: where to.
        lists: per arm, what its ranks had loaded, by digest.
        environments: those of the arms that have their own.
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
    texts: dict[str, bytes | None] = {}
    sizes: dict[str, int | None] = {}
    pairs = list(loaded.pairs())
    for distribution, file, *digests in pairs:
        for arm, digest in zip(arms, digests, strict=True):
            if texts.get(digest) is None:
                folders = _folders(environments.get(arm), distribution)
                sizes[digest], texts[digest] = _find(folders, file, digest)
    kept = chosen([(before, after) for _, _, before, after in pairs], sizes)
    for digest in sorted(kept):
        results.write(text_path(digest), texts[digest] or b"")
    return {digest: sizes[digest] for digest in sorted(sizes.keys() - kept)}


def _folders(own: ArmEnvironment | None, distribution: str) -> Iterator[Path]:
    """Where an arm's ranks may have imported a distribution from."""
    if own is not None:
        yield from own.python.parent.parent.glob("lib*/python*/site-packages")
        return
    yield from map(Path, filter(None, sys.path))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if (folder := installed_folder(importlib.metadata.distribution(distribution))) is not None:
            yield from (folder, folder / "src")


def _find(folders: Iterator[Path], file: str, digest: str) -> tuple[int | None, bytes | None]:
    """Size and text of a module with this content: without the text where it is too large; None
    where it is gone.
    """
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            if (path := folder / file).is_file() and sha256_of(path) == digest:
                size = path.stat().st_size
                return size, read_regular(path, limit=TEXT_LIMIT) if size <= TEXT_LIMIT else None
    return None, None
