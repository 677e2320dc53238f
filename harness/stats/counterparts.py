"""Which files of a repository the files of an installed distribution have to equal (rule 12). Pure.

The import name decides. What a rank loaded under a name that the repository holds at a root is the
repository's if at least half of the distribution's modules below that name are there; then each of
its files must be the one at the corresponding path below every such root. A copy elsewhere in the
repository proves nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.forms.model import Model

COMPILED = (".so", ".pyd")
CODE = (".py", *COMPILED)
# What a build writes of its own version, beside what it copies.
VERSION = re.compile(r"(.*/)?_{0,2}version_{0,2}\.py")
OUTSIDE = ("../", "/")
Place = tuple[str, str]
"""The beginning of a path as it is imported, and what stands for it in the repository: `("",
"src/")`.
"""


class InstalledCopy(Model):
    """Distribution of an arm's environment that may be the repository's.

    Attributes:
        name: its normal name.
        version: as its folder states it.
        files: path as RECORD states it to sha256 of its content; an empty text where nobody had to
            read it.
    """

    name: str
    version: str
    files: dict[str, str]

    def has_code_of(self, package: str) -> bool:
        """Return whether it has code that is imported by this name."""
        return any(is_below(file, package) and file.endswith(CODE) for file in self.files)

    def hides(self, package: str) -> bool:
        """Return whether it brings a module or a package of this name, which hides folders of the
        name.
        """
        return any(
            file == f"{package}/__init__.py"
            or ("/" not in file and top_of(file) == package and file.endswith(CODE))
            for file in self.files
        )


@dataclass(frozen=True, kw_only=True)
class Counterparts:
    """Files that an arm's code has to equal.

    Attributes:
        roots: import name to the places in the repository that hold it, for the names in question.
        files: path in the repository to sha256.
        installed: the distributions of the arm's environment in question.
        hidden: folders of the arm's own that hold code and are no package: a package from elsewhere
            hides them.
    """

    roots: Mapping[str, Collection[Place]]
    files: Mapping[str, str]
    installed: Collection[InstalledCopy]
    hidden: Collection[str] = ()

    def distribution(self, name: str | None, version: str | None) -> InstalledCopy | None:
        """Return a distribution by its name and version; None where nothing is known of its
        files.
        """
        return next(
            (copy for copy in self.installed if (copy.name, copy.version) == (name, version)), None
        )

    def places(self, package: str, files: Iterable[str]) -> list[Place]:
        """Return the roots of a name of which these files, by their paths as imported, are
        copies.
        """
        modules = [file for file in files if file.endswith(".py") and top_of(file) == package]
        roots = []
        for place in self.roots.get(package, ()):
            there = sum(counterpart(file, place) in self.files for file in modules)
            if modules and 2 * there >= len(modules):
                roots.append(place)
        return roots

    def differing(
        self, files: Mapping[str, str], places: Collection[Place], of: str
    ) -> Iterator[str]:
        """Files below a name that are not the repository's: of each a sentence's beginning.

        Args:
            files: path as imported to sha256.
            places: the roots that hold the name.
            of: the name.
        """
        for file, sha256 in sorted(files.items()):
            if not is_below(file, of):
                continue
            paths = [path for place in places if (path := counterpart(file, place)) is not None]
            there = [path for path in paths if path in self.files]
            if odd := [path for path in there if self.files[path] != sha256]:
                yield f"{file} differs from {odd[0]}"
            elif not there and not is_made(file):
                yield f"{file} is not"

    def made(self, files: Mapping[str, str], places: Collection[Place], of: str) -> dict[str, str]:
        """Files below a name without a counterpart, that a build may write: path to sha256."""
        return {
            file: sha256
            for file, sha256 in files.items()
            if is_below(file, of)
            and is_made(file)
            and not any(counterpart(file, place) in self.files for place in places)
        }

    def data(self, installed: InstalledCopy) -> Iterator[str]:
        """Data that a distribution has installed beside its packages, which is not the
        repository's.
        """
        for file, paths in sorted(self._data_places(installed).items()):
            if odd := [path for path in paths if self.files[path] != installed.files[file]]:
                which = (
                    f", one of {len(paths)} files that it may be a copy of"
                    if len(paths) > len(odd)
                    else ""
                )
                yield f"{file} differs from {odd[0]}{which}"

    def data_made(self, installed: InstalledCopy) -> dict[str, str]:
        """Data that a distribution has installed beside its packages, and that no file is like:
        path to sha256.
        """
        return {
            file: installed.files[file]
            for file, paths in self._data_places(installed).items()
            if not paths
        }

    def _data_places(self, installed: InstalledCopy) -> dict[str, list[str]]:
        """Of each file that is installed beside packages, the paths that it may be a copy of."""
        files = [file for file in installed.files if is_data(file)]
        names: dict[str, list[str]] = {}
        for path in self.files if files else ():
            names.setdefault(posixpath.basename(path), []).append(path)
        absolute = [file for file in files if file.startswith("/")]
        copies = dict(_copies(absolute, names))
        return {**copies, **dict(_copies([file for file in files if file not in copies], names))}


@dataclass(frozen=True, kw_only=True)
class BuiltCheckout:
    """Package that was built from a commit.

    Attributes:
        commit: its full id.
        files: path in the commit's tree to sha256, of every file that a module of the package may
            be.
        wheel: sha256 of every module that was built.
    """

    commit: str
    files: Mapping[str, str]
    wheel: Collection[str]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Code under test of an arm, as far as it was not staged.

    Attributes:
        declared: normal names of the distributions that the repository's own files declare.
        files: path in the repository to sha256, of every file that one of those in question may be.
        inputs: sha256 of the files of the run's inputs: a model may bring code.
        plugins: sha256 of the files with which the run's plug-ins act in ranks: held by their
            digests.
        named: packages that the scenario itself names for the arm's own environment, by normal
            name.
        checkouts: those of them that were built from a commit.
        installed: whether the scenario says that the subject is what is installed.
        differing: normal names of the distributions that differ between the arms, whose files are
            told in full.
        counterparts: what the files of installed packages have to equal.
    """

    declared: Collection[str]
    files: Mapping[str, str]
    inputs: Collection[str] = ()
    plugins: Collection[str] = ()
    named: Collection[str] = ()
    checkouts: Mapping[str, BuiltCheckout] = field(default_factory=dict)
    installed: bool = False
    differing: Collection[str] = ()
    counterparts: Counterparts = field(
        default_factory=lambda: Counterparts(roots={}, files={}, installed=())
    )

    def holds(self, file: str, sha256: str) -> bool:
        """Return whether the repository has this content under a path that ends like this one."""
        return any(self.files[path] == sha256 for path in self.like(file))

    def holds_alone(self, file: str, sha256: str) -> bool:
        """Return whether it has no other content under such a path: nobody knows which of them a
        file was copied from.
        """
        return self.holds(file, sha256) and all(
            self.files[path] == sha256 for path in self.like(file)
        )

    def like(self, file: str) -> list[str]:
        """Paths of the repository that end like this one."""
        ends = f"/{file}"
        return [
            path
            for path in self._by_name.get(posixpath.basename(file), ())
            if f"/{path}".endswith(ends)
        ]

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[str]]:
        paths: dict[str, list[str]] = {}
        for path in self.files:
            paths.setdefault(posixpath.basename(path), []).append(path)
        return paths


def counterpart(file: str, place: Place) -> str | None:
    """Return the path in a repository of a file that is imported from a place there."""
    prefix, folder = place
    return folder + file[len(prefix) :] if file.startswith(prefix) else None


def top_of(file: str) -> str:
    """Return the top-level name that a file is imported by; of data elsewhere no name."""
    return file.partition("/")[0].partition(".")[0]


def is_below(file: str, name: str) -> bool:
    """Return whether a file is the module of a name, or below its package."""
    return file.startswith(f"{name}/") or (
        "/" not in file and top_of(file) == name and not file.endswith(".pth")
    )


def is_made(file: str) -> bool:
    """Return whether a build may have written a file that the repository does not hold: any but a
    module of Python.
    """
    return not file.endswith(".py") or VERSION.fullmatch(file) is not None


def is_data(file: str) -> bool:
    """Return whether a file of RECORD is outside of the folder for packages, and not a command."""
    return file.startswith(OUTSIDE) and "/bin/" not in file and not file.endswith(".pyc")


def _copies(
    files: Sequence[str], names: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of a folder, each with the paths that it may be a copy of.

    The folders that hold more than half of what is below theirs count, as a whole; where there is
    none, each folder below is looked for by itself.

    Args:
        files: as they were installed.
        names: the paths in the repository, by the last part of each.
    """
    if not files:
        return
    top = posixpath.commonpath([posixpath.dirname(file) for file in files])
    rests = {file: posixpath.relpath(file, top) for file in files}
    held: dict[str, dict[str, str]] = {}
    for file, rest in rests.items():
        for path in names.get(posixpath.basename(file), ()):
            if f"/{path}".endswith(f"/{rest}"):
                held.setdefault(path.removesuffix(rest), {})[file] = path
    if copies := [found for found in held.values() if 2 * len(found) > len(files)]:
        for file in files:
            paths = sorted(found[file] for found in copies if file in found)
            yield file, paths or longest_alike(file, names.get(posixpath.basename(file), ()))
        return
    folders: dict[str, list[str]] = {}
    for file, rest in rests.items():
        folders.setdefault(rest.partition("/")[0] if "/" in rest else "", []).append(file)
    for below in folders.values() if len(folders) > 1 else ():
        yield from _copies(below, names)
    for file in files if len(folders) == 1 else ():
        yield file, longest_alike(file, names.get(posixpath.basename(file), ()))


def longest_alike(file: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that share the longest ending with a file, one part at least."""
    best: list[str] = []
    most = 1
    wanted = file.split("/")[::-1]
    for path in paths:
        if posixpath.basename(path) != wanted[0]:
            continue
        alike = 0
        for one, other in zip(wanted, path.split("/")[::-1], strict=False):
            if one != other:
                break
            alike += 1
        if alike > most:
            best = []
            most = alike
        if alike == most:
            best.append(path)
    return sorted(best)


def spread(files: Collection[str]) -> set[str]:
    """Top-level folders of an arm that hold modules and are no packages."""
    folders = {
        file.partition("/")[0]
        for file in files
        if "/" in file and file.endswith((".py", *COMPILED))
    }
    whole = {folder for folder in folders if f"{folder}/__init__.py" in files}
    whole |= {
        top_of(file) for file in files if "/" not in file and file.endswith((".py", *COMPILED))
    }
    return {folder for folder in folders - whole if folder.isidentifier()}
