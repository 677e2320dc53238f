"""What is installed in the environment of an arm, as far as its repository may hold it too."""

from __future__ import annotations

import contextlib
import csv
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from harness.forms.digest import sha256_of
from harness.forms.distribution import normal
from harness.stats.counterparts import InstalledCopy, is_data, top_of

TOP = re.compile(r'"?([^/,\n"]+)[/,]')
ABOUT = (".dist-info/", ".egg-info/")


def search_path(python: Path | None) -> list[Path]:
    """The folders that packages are imported from: of an environment of an arm's own, or of the
    harness'.
    """
    if python is None:
        return [Path(folder) for folder in dict.fromkeys(sys.path) if folder]
    return sorted(python.parent.parent.glob("lib*/python*/site-packages"))


def installed(
    folders: Sequence[Path],
    *,
    names: Collection[str] | None,
    wanted: Callable[[InstalledCopy], bool],
) -> list[InstalledCopy]:
    """The distributions that bring a module or package of one of these names, or are called like
    one of them.

    Args:
        folders: to look into.
        names: import names, and normal names of distributions; None are all.
        wanted: whether the files of one are read; of others their modules are only named.
    """
    found = []
    for folder in folders:
        for about in _abouts(folder):
            name, _, version = about.name.removesuffix(".dist-info").rpartition("-")
            try:
                record = (about / "RECORD").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            is_named = names is None or normal(name) in names or not _tops(record).isdisjoint(names)
            if not is_named:
                continue
            files = dict.fromkeys(_files(record), "")
            one = InstalledCopy(name=normal(name), version=version, files=files)
            if wanted(one):
                read = {file: _digest(folder / file) for file in files}
                found.append(one.model_copy(update={"files": read}))
            else:
                modules = {file: "" for file in files if file.endswith(".py")}
                found.append(one.model_copy(update={"files": modules}))
    return sorted(found, key=lambda one: (one.name, one.version))


def _abouts(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(entry for entry in folder.iterdir() if entry.name.endswith(".dist-info"))
    return []


# By the text itself: a run asks for each arm, before and after its trials.
@functools.lru_cache(maxsize=1024)
def _tops(record: str) -> frozenset[str]:
    """The names of the folders and modules at the top of what a RECORD lists."""
    # A RECORD has up to ten thousand lines below a few folders: the expression sees each folder
    # once.
    lines = (line.partition("/") for line in record.split("\n"))
    heads = {head + slash for head, slash, _ in lines}
    return frozenset(found[1].partition(".")[0] for head in heads if (found := TOP.match(head)))


def _files(record: str) -> Iterator[str]:
    """The paths of a RECORD that a distribution brings, but for what describes it."""
    for row in csv.reader(record.splitlines()):
        file = row[0] if row else ""
        if not file or file.endswith((".pyc", ".pth")) or any(part in file for part in ABOUT):
            continue
        if is_data(file) or (not file.startswith(("../", "/")) and top_of(file).isidentifier()):
            yield file


def _digest(path: Path) -> str:
    """The sha256 of a file as it is; a word where it cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        return f"unreadable: {error.strerror}"
