"""Where the tokenizer of a model may lie: named, inside the model, beside it, in our cache, in the hub's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from harness.forms.cache import cache_folder
from harness.tokenizer.loading.hub_cache import hub_cache

Origin = Literal["named", "inside", "beside", "above", "cache", "hub's cache"]
MOST = 256
"""Candidates of one cache that are looked at, the newest first."""
_WHOLE = "tokenizer.json"
_ALONE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
_NOT_LOADABLE = ("vocab.json", "merges.txt", "special_tokens_map.json", "vocab.txt")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file or folder that may hold the tokenizer.

    Attributes:
        origin: how it was found.
        path: the file; a folder where a tokenizer.json has what belongs to it beside it.
        complaint: why it is not even read; empty where it is.
    """

    origin: Origin
    path: Path
    complaint: str = ""


def places(model: Path, *, named: Path | None = None, caches: list[Path] | None = None) -> list[Place]:
    """Every place, in the order of trust: what is named is the only one asked where it is given.

    Args:
        model: the model file.
        named: the tokenizer that the user names.
        caches: folders of either layout; None: ours and the hub's, as the environment names them.
    """
    if named is not None:
        return [Place(origin="named", path=named)]
    found = [Place(origin="inside", path=model)]
    found += _of_folder(model.parent, "beside", stem=model.stem)
    above = model.absolute().parent.parent
    if above != model.absolute().parent:
        found += _of_folder(above, "above")
    if caches is None:
        found += _of_cache(cache_folder("tokenizers", variable="RANKPROOF_TOKENIZERS"), "cache")
        found += _of_cache(hub_cache(), "hub's cache")
    else:
        for root in caches:
            found += _of_cache(root, "hub's cache" if any(root.glob("models--*")) else "cache")
    seen: set[str] = set()
    return [one for one in found if (real := os.path.realpath(one.path)) not in seen and not seen.add(real)]  # type: ignore[func-returns-value]


def _of_folder(folder: Path, origin: Origin, *, stem: str | None = None) -> Iterator[Place]:
    if stem is not None:
        for name in (f"{stem}.tokenizer.json", f"{stem}.tokenizer.model"):
            if _there(folder / name):
                yield Place(origin=origin, path=folder / name)
    if _there(folder / _WHOLE):
        yield Place(origin=origin, path=folder)
    names = [name for name in _ALONE if _there(folder / name)]
    yield from (Place(origin=origin, path=folder / name) for name in names)
    try:
        ranked = sorted(folder.glob("*.tiktoken"))
    except OSError:
        ranked = []
    yield from (Place(origin=origin, path=one) for one in ranked)
    if not (names or ranked or _there(folder / _WHOLE)):
        for name in _NOT_LOADABLE:
            if _there(folder / name):
                why = "is a part of a tokenizer: which ids it gives is decided by a class of transformers"
                yield Place(origin=origin, path=folder / name, complaint=why)


def _of_cache(root: Path, origin: Origin) -> Iterator[Place]:
    """Snapshots of a cache, the newest first: `REPOSITORY/COMMIT/files`, or the hub's `models--…/snapshots/COMMIT`."""
    levels = ("models--*", "snapshots", "*") if origin == "hub's cache" else ("*", "*", "files")
    folders, dated = [root], []
    for level in levels:
        below: list[Path] = []
        for folder in folders:
            try:
                inside = list(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                yield Place(origin=origin, path=folder, complaint=f"cannot be read: {error.strerror}")
                continue
            # A dot in front marks what is put aside, locked or half fetched: no snapshot is in there.
            below += (one for one in inside if fnmatch(one.name, level) and not one.name.startswith("."))
        folders = below
    for folder in folders:
        with suppress(OSError):  # gone meanwhile, or a link to nothing
            dated.append((-folder.stat().st_mtime_ns, str(folder), folder))
    real = Path(os.path.realpath(root))
    for _, _, folder in sorted(dated)[:MOST]:
        try:
            found = list(_of_folder(folder, origin))
        except OSError as error:
            yield Place(origin=origin, path=folder, complaint=f"cannot be read: {error.strerror}")
            continue
        for place in found:
            file = place.path / _WHOLE if place.path == folder else place.path
            if not Path(os.path.realpath(file)).is_relative_to(real):
                why = f"is a link that leads out of the cache, to {os.path.realpath(file)}"
                yield Place(origin=origin, path=file, complaint=why)
            else:
                yield place


def _there(path: Path) -> bool:
    """A dangling link counts: it is said, not passed over."""
    return path.exists() or path.is_symlink()
