"""Projects of a repository whose metadata states no name that can be read, and the distributions
that may be theirs.

A name that setup.py works out is known to nobody who does not run it. What such a project builds is
known by its import name alone; where it also works out its folders, by the files that the
repository has somewhere below the project.
"""

from __future__ import annotations

import posixpath
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from harness.forms.distribution import normal
from harness.run.arms.roots import is_inside_a_package, is_unread, roots_of
from harness.stats.counterparts import InstalledCopy, top_of

CARGO = "Cargo.toml"
# What makes a file the metadata of a project: pyproject.toml and setup.cfg also configure tools
# alone.
MARKS = {
    "pyproject.toml": (b"[build-system]", b"[project]"),
    "setup.cfg": (b"[metadata]", b"[options]"),
    "setup.py": (b"setup(",),
}


@dataclass(frozen=True)
class Unnamed:
    """The projects without a name.

    Attributes:
        names: the packages and modules at their roots, by the names that they are imported by.
        cargo: normal names that they have as crates: maturin takes the distribution's name from
            there.
        unread: for each that works out its folders too, the paths below it.
    """

    names: frozenset[str] = frozenset()
    cargo: frozenset[str] = frozenset()
    unread: tuple[Collection[str], ...] = field(default=(), repr=False)

    def may_have_built(self, one: InstalledCopy) -> bool:
        """Whether a distribution may be one of theirs."""
        if not self.names.isdisjoint({top_of(file) for file in one.files}):
            return True
        rests = [
            file.partition("/")[2] for file in one.files if file.endswith(".py") and "/" in file
        ]
        return any(2 * _alike(rests, paths) >= len(rests) for paths in self.unread if rests)


def unnamed(
    paths: Collection[str],
    texts: Mapping[str, bytes],
    *,
    names_in: Callable[[str, bytes], set[str]],
    read: Callable[[Collection[str]], Mapping[str, bytes]],
) -> Unnamed:
    """Find them.

    Args:
        paths: of all files of the repository.
        texts: content of its metadata, by path.
        names_in: the names that a file of metadata states.
        read: gives the content of files.
    """
    projects: dict[str, dict[str, bytes]] = {}
    for path, text in texts.items():
        projects.setdefault(posixpath.dirname(path), {})[posixpath.basename(path)] = text
    names: set[str] = set()
    crates: set[str] = set()
    unread = []
    for folder, own in projects.items():
        is_project = any(mark in text for name, text in own.items() for mark in MARKS[name])
        is_named = any(names_in(name, text) for name, text in own.items())
        if not is_project or is_named or is_inside_a_package(folder, paths):
            continue
        beginning = f"{folder}/" if folder else ""
        if crate := _crate(read([beginning + CARGO]).get(beginning + CARGO, b"")):
            crates.add(crate)
            continue
        below = {path.removeprefix(beginning) for path in paths if path.startswith(beginning)}
        for name, places in roots_of(below, own).places.items():
            whole = {
                f"{target}{name}{end}" for _, target in places for end in (".py", "/__init__.py")
            }
            if name != "setup" and (
                not whole.isdisjoint(below) or any(prefix for prefix, _ in places)
            ):
                names.add(name)
        if is_unread(own.get("setup.py", b"")):
            unread.append(below)
    return Unnamed(frozenset(names), frozenset(crates), tuple(unread))


def _crate(text: bytes) -> str:
    """The normal name of the crate that a Cargo.toml declares, or empty."""
    try:
        name = tomllib.loads(text.decode()).get("package", {}).get("name")
    except (ValueError, AttributeError):
        return ""
    return normal(name) if isinstance(name, str) else ""


def _alike(rests: Collection[str], paths: Collection[str]) -> int:
    """How many of these paths one folder has, at most."""
    found: Counter[str] = Counter()
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    for rest in rests:
        for path in by_name.get(posixpath.basename(rest), ()):
            if f"/{path}".endswith(f"/{rest}"):
                found[path.removesuffix(rest)] += 1
    return max(found.values(), default=0)
