"""Which files of a folder or a tree are code that an arm runs, and how many there may be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
BYTES_LIMIT = 20 * 1024 * 1024
FILES_LIMIT = 2_000
IGNORED = {
    "__pycache__",
    ".git",
    ".nox",
    ".venv",
    "node_modules",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    "results",
}


class TooMuchCode(Exception):
    """More files or bytes than an arm may have; the message says what to do."""


class CodeUnreadable(Exception):
    """A file that belongs to an arm cannot be read; the message says which."""


def is_code(path: str) -> bool:
    """Return whether a file, by its path from the top of the code, belongs to an arm."""
    *folders, name = path.split("/")
    return (
        not any(folder in IGNORED or folder.startswith(".") for folder in folders)
        and not name.startswith(".")
        and not name.endswith(".pyc")
    )


def read_folder(root: Path, *, leave_out: Iterable[Path]) -> dict[str, bytes]:
    """Read the code of a folder: regular files only, never through a link.

    Raises:
        TooMuchCode: more than 20 MiB or 2000 files.
        CodeUnreadable: one cannot be read.
    """
    left_out = set(leave_out)
    paths = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        inside = here.relative_to(root)
        folders[:] = [
            name
            for name in folders
            if is_code((inside / name / "x").as_posix()) and here / name not in left_out
        ]
        paths += [(inside / name).as_posix() for name in names if here / name not in left_out]
        if len(paths) > 10 * FILES_LIMIT:
            break
    return read_files(root, paths)


def read_files(root: Path, paths: Iterable[str]) -> dict[str, bytes]:
    """Read those of the files that are code and regular.

    Raises:
        TooMuchCode: more than 20 MiB or 2000 files.
        CodeUnreadable: one cannot be read.
    """
    sizes = {}
    for path in sorted(paths):
        try:
            status = (root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):  # tracked by git, and removed
            continue
        if is_code(path) and stat.S_ISREG(status.st_mode):
            sizes[path] = status.st_size
    demand_limits(sizes, name=root.name)
    return {path: _read(root, path) for path in sizes}


def _read(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise CodeUnreadable(
            f"subject.path: {path} cannot be read ({error.strerror}): make it readable, or keep it"
            " elsewhere; every file of the folder is the arm's code"
        ) from None


def demand_limits(sizes: Mapping[str, int], *, name: str) -> None:
    """Refuse more than 20 MiB or 2000 files.

    Raises:
        TooMuchCode: there are more.
    """
    if sum(sizes.values()) > BYTES_LIMIT or len(sizes) > FILES_LIMIT:
        raise TooMuchCode(
            f"subject.path: {name} holds more than {BYTES_LIMIT // 2**20} MiB or {FILES_LIMIT}"
            " files of code: point it at the folder of the code, and name data under inputs"
        )


def below(files: Mapping[str, T], folder: str) -> dict[str, T]:
    """Return the files below a folder, by their path from there; an empty folder is the top."""
    beginning = f"{folder}/" if folder else ""
    return {
        path[len(beginning) :]: file for path, file in files.items() if path.startswith(beginning)
    }


def has_module(module: str) -> Callable[[Iterable[str]], bool]:
    """Return a predicate: whether paths hold the file of a module, given as dotted words."""
    place = module.replace(".", "/")
    return has_any((f"{place}.py", f"{place}/__init__.py"))


def has_any(names: Iterable[str]) -> Callable[[Iterable[str]], bool]:
    """Return a predicate: whether paths hold a file of one of these names."""
    wanted = set(names)
    return lambda paths: not wanted.isdisjoint(paths)
