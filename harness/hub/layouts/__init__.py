"""Tokenizer repositories in the layouts that matter, made by this project: the same bytes on every
machine.

`write` puts them into a folder; `cached` gives a folder in the user's cache that holds them, made
when it is missing or does not hold what it should.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from harness.forms import manifest
from harness.forms.digest import fold, sha256, sha256_of
from harness.forms.variables import cache_folder
from harness.hub.layouts.catalogue import LAYOUTS
from harness.hub.layouts.files import as_json
from harness.hub.problem import HubError

ORGANISATION = "rankproof"

__all__ = ["LAYOUTS", "ORGANISATION", "cached", "digest", "identity", "repository_files", "write"]


def identity(name: str) -> str:
    """The repository id of a layout, as clients ask for it."""
    return f"{ORGANISATION}/{name.partition('@')[0]}"


def repository_files(name: str) -> dict[str, bytes]:
    """The files of a layout: path to bytes.

    Raises:
        HubError: no such layout.
    """
    if name not in LAYOUTS:
        raise HubError(f"{name!r}: no such layout; there are {', '.join(LAYOUTS)}")
    return {
        path: held if isinstance(held, bytes) else as_json(held)
        for path, held in LAYOUTS[name]().items()
    }


def write(folder: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Write layouts as ``folder/rankproof/NAME/…``; returns the folders of the repositories.

    Raises:
        HubError: no such layout, or a folder that is there and not empty.
        OSError: it cannot be written.
    """
    wanted = list(LAYOUTS if names is None else names)
    places = []
    for name in wanted:
        files = repository_files(name)
        place = folder / ORGANISATION / name
        if place.exists() and any(place.iterdir()):
            raise HubError(f"{place}: is there already; remove it, or choose another folder")
        for path, data in files.items():
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        places.append(place)
    return places


def digest() -> str:
    """What names the layouts of this version: sha256 over everything that makes them."""
    entries = (
        one
        for one in resources.files("harness.hub.layouts").iterdir()
        if one.name.endswith((".py", ".txt"))
    )
    return fold({one.name: sha256(one.read_bytes()) for one in entries})


def cached(names: Iterable[str] | None = None, *, cache: Path | None = None) -> Path:
    """A folder with layouts, to be served and not to be changed.

    Made once, then found by digest and checked.

    Args:
        names: layouts; default: all.
        cache: where they are kept; default: among the user's caches.

    Raises:
        HubError: no such layout.
        OSError: the cache cannot be written.
    """
    wanted = sorted(LAYOUTS if names is None else set(names))
    key = sha256("\n".join([digest(), *wanted]).encode())[:32]
    root = cache or cache_folder("layouts")
    place = root / key
    if _is_whole(place):
        return place
    root.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock  # a scenario that names one of these is read without it

    with FileLock(root / f"{key}.lock"):
        if not _is_whole(place):  # another process may have been first
            shutil.rmtree(place, ignore_errors=True)
            write(place, wanted)
            # Last: what has no manifest, or another one, is made anew.
            (place / manifest.NAME).write_bytes(manifest.encode(_digests(place)))
    return place


def _is_whole(place: Path) -> bool:
    """Whether a folder of the cache holds exactly what its manifest says."""
    try:
        return manifest.parse((place / manifest.NAME).read_bytes()) == _digests(place)
    except (OSError, ValueError):
        return False


def _digests(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != manifest.NAME)
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in paths}
