"""What an interpreter may read or run at its start, before anybody's code: `.pth` files and the two
customize modules.

A `.pth` file imports what its lines that begin with `import` name, so it can change what judges a
run.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import site
import sys
import zipimport
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.forms.digest import sha256
from harness.record.facts import StartFile

CUSTOM = ("sitecustomize", "usercustomize")


def of_this_interpreter() -> list[StartFile]:
    """Those of the interpreter that runs this.

    A `.pth` file may add a folder whose own `.pth` files are read too, so every folder that modules
    come from is looked at. A customize module that took itself away from the loaded ones is found
    where it lies.
    """
    folders = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    places = [Path(folder) for folder in (*folders, *sys.path) if folder]
    names = CUSTOM if site.ENABLE_USER_SITE else CUSTOM[:1]
    loaded = [getattr(sys.modules.get(name), "__file__", None) for name in CUSTOM]
    return _described(
        [*_read(places, names), *(Path(file) for file in loaded if isinstance(file, str))]
    )


def of_environment(folder: Path, stdlib: Path) -> list[StartFile]:
    """Those of a virtual environment that nothing is shared with but the standard library.

    They are looked for and not asked for: what runs at the start could change the answer.

    Args:
        folder: of the environment.
        stdlib: of the interpreter that it was made from.
    """
    return _described(
        _read([stdlib, *sorted(folder.glob("lib/python*/site-packages"))], CUSTOM[:1])
    )


def _read(places: Sequence[Path], names: Sequence[str]) -> Iterator[Path]:
    # The importer remembers what a folder held: a file that was put there since would not be seen.
    importlib.machinery.PathFinder.invalidate_caches()
    for place in places:
        if place.is_dir():
            yield from place.glob("*.pth")
    for name in names:
        spec = importlib.machinery.PathFinder.find_spec(name, [str(place) for place in places])
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)


def _described(files: Sequence[Path] | Iterator[Path]) -> list[StartFile]:
    real = {file.resolve(): file for file in files}
    contents = [
        (file, content) for file in real.values() if (content := _content(file)) is not None
    ]
    found = {StartFile(name=_name(file), sha256=sha256(content)) for file, content in contents}
    return sorted(found, key=lambda one: (one.name, one.sha256))


def _content(file: Path) -> bytes | None:
    """Return what a file holds, of one in an archive too, which is named as if the archive were a
    folder; None of no file.
    """
    if file.is_file():
        return file.read_bytes()
    archive = next((place for place in file.parents if place.is_file()), None)
    if archive is not None:
        with contextlib.suppress(OSError, ImportError):
            return zipimport.zipimporter(str(archive)).get_data(str(file))
    return None


def _name(file: Path) -> str:
    """Its name; of a package, with its folder's."""
    return f"{file.parent.name}/{file.name}" if file.stem == "__init__" else file.name
