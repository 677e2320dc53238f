"""Plug-ins: the distributions that bring kinds of their own, their files and what identifies them.

A distribution that brings a kind names it in its metadata, in the group of its registry:

    [project.entry-points."rankproof.faults"]
    slow-disk = "my_package.slow_disk:SlowDiskFault"

The metadata names the kinds, so nothing is imported before its kind is asked for: code that no
scenario names could otherwise change what judges it. `harness.registry` imports them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.forms.digest import fold, sha256
from harness.forms.distribution import normal
from harness.forms.model import Model

GROUPS = (
    "rankproof.faults",
    "rankproof.checks",
    "rankproof.backends",
    "rankproof.subjects",
    "rankproof.views",
)
# The function that a rank calls in the file of a kind.
CALLED = {"rankproof.faults": "inside", "rankproof.backends": "join", "rankproof.subjects": "run"}
NOT_CODE = ("__pycache__", ".dist-info", ".egg-info")
# Folders of programs, into which an installer writes the path of the interpreter.
PROGRAMS = frozenset({"bin", "Scripts"})


class PluginFailed(Exception):
    """Raised where a plug-in raised that must not: nothing can be said about what it was to
    judge.
    """


class Plugin(Model):
    """A kind that another distribution brings.

    Attributes:
        group: the registry that it is in, such as `rankproof.faults`.
        name: the kind.
        distribution: normal name of the distribution.
        version: its version.
        sha256: digest of its files as they are installed, without metadata, programs and what
            Python caches: of its `sha256  path` lines.
    """

    group: str
    name: str
    distribution: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} ({self.group}) of {self.distribution} {self.version}"


class Imported(Model):
    """A distribution with kinds for Rankproof of which the process of a run had imported something.

    It may have changed whatever judges the run, whether or not the scenario names a kind of it.

    Attributes:
        distribution: its normal name.
        version: its version.
        sha256: digest of its files as they are installed, every file of its RECORD and of the
            packages that its entry points name, without metadata, programs and what Python caches:
            of its `sha256  path` lines.
    """

    distribution: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


# Path of a file to the distribution, with its version, whose plug-in was loaded from it.
FILES: dict[str, str] = {}
# The entry points that were imported, or raised while they were.
TRIED: set[str] = set()


def note_files(point: importlib.metadata.EntryPoint, plugin: Plugin) -> None:
    """Remember whose plug-in was loaded from which files, for `passed_through`."""
    assert point.dist is not None
    release = f"{plugin.distribution} {plugin.version}"
    FILES.update(dict.fromkeys(map(str, _files(point, point.dist).values()), release))


def passed_through(error: BaseException) -> str | None:
    """Return the release whose plug-in was running, innermost, when an error was raised, if any."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((FILES[frame.filename] for frame in frames if frame.filename in FILES), None)


@functools.cache
def _by_group() -> Mapping[str, Sequence[importlib.metadata.EntryPoint]]:
    """Read the entry points of all our groups.

    Of a hundred distributions few have any, and only the metadata of those is parsed.
    """
    groups: dict[str, list[importlib.metadata.EntryPoint]] = {group: [] for group in GROUPS}
    known: set[str] = set()
    for folder in map(Path, sys.path):
        for file in sorted(folder.glob("*.*-info/entry_points.txt")):
            name = file.parent.name.partition("-")[0].lower()
            with contextlib.suppress(OSError):
                if name in known or b"rankproof." not in file.read_bytes():
                    continue
                known.add(name)  # what stands first in the path hides the others, as for an import
                for point in importlib.metadata.Distribution.at(file.parent).entry_points:
                    if point.group in groups:
                        groups[point.group].append(point)
    return groups


def entry_points(group: str) -> Sequence[importlib.metadata.EntryPoint]:
    """Return the entry points of a group; none of a group that is not ours, as a record may
    name.
    """
    return _by_group().get(group, ())


def installed(group: str, name: str) -> Plugin | None:
    """Return the plug-in that brings a kind here; None where none does, or more than one."""
    points = [point for point in entry_points(group) if point.name == name]
    return plugin_of(points[0]) if len(points) == 1 else None


def imported() -> list[Imported]:
    """List the distributions with our entry points of which this process has imported a module.

    However that was imported: by its entry point, by a `.pth` file, or by another module; and also
    where its kinds could not be used.
    """
    by_name: dict[str, dict[str, Path]] = {}
    versions: dict[str, str] = {}
    failed: set[str] = set()
    for points in _by_group().values():
        for point in points:
            if (distribution := point.dist) is None:
                continue
            name = normal(distribution.name)
            versions[name] = distribution.version
            by_name.setdefault(name, {}).update(_files(point, distribution))
            # A module that raises leaves nothing in sys.modules.
            if point.value in TRIED:
                failed.add(name)
    # Most environments have no plug-in, and resolving the path of every module takes long.
    if not by_name:
        return []
    loaded = {
        os.path.realpath(file) for module in list(sys.modules.values()) for file in _places(module)
    }
    return [
        Imported(
            distribution=name,
            version=versions[name],
            sha256=fold({file: sha256(path.read_bytes()) for file, path in files.items()}),
        )
        for name, files in sorted(by_name.items())
        if name in failed or any(os.path.realpath(path) in loaded for path in files.values())
    ]


def _places(module: object) -> Iterator[str]:
    """Yield where a loaded module says that it came from, in either of the two ways."""
    for place in (
        getattr(module, "__file__", None),
        getattr(getattr(module, "__spec__", None), "origin", None),
    ):
        if isinstance(place, str):
            yield place


def plugin_of(point: importlib.metadata.EntryPoint) -> Plugin:
    """Identify the plug-in of an entry point, with the digest of its files."""
    distribution = point.dist
    assert distribution is not None
    return Plugin(
        group=point.group,
        name=point.name,
        distribution=normal(distribution.name),
        version=distribution.version,
        sha256=fold(
            {name: sha256(path.read_bytes()) for name, path in _files(point, distribution).items()}
        ),
    )


def unusable_file(kind: object, point: importlib.metadata.EntryPoint) -> str:
    """Say why ranks cannot use the file that a kind brings for them; empty where they can."""
    key = "file" if point.group == "rankproof.subjects" else "inside_file"
    if (file := getattr(kind, key, None)) is None:
        acts = point.group == "rankproof.faults" and getattr(
            getattr(kind, "properties", None), "inside", False
        )
        return (
            "it declares that it acts inside a rank, but has no inside_file; set inside_file"
            if acts
            else ""
        )
    if not isinstance(file, Path) or not file.is_file():
        return (
            f"its {key} is {str(file)!r}, which is not the path of a file; use a file that the"
            " distribution installs"
        )
    assert point.dist is not None
    if file.is_relative_to(Path(__file__).resolve().parent):
        return ""  # a file of ours
    if file.resolve() not in {path.resolve() for path in _files(point, point.dist).values()}:
        return (
            f"its {key}, {file.name}, is not among the files of the distribution, so no digest"
            " covers it; move it next to them"
        )
    try:
        body = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        return f"its {key}, {file.name}, is not Python: {error}"
    if CALLED[point.group] not in set(_names(body)):
        return (
            f"its {key}, {file.name}, has no function {CALLED[point.group]}, which ranks call; add"
            " this function"
        )
    may = {*sys.stdlib_module_names, *getattr(getattr(kind, "properties", None), "libraries", ())}
    strange = sorted(
        {
            name
            for name in _imported(body)
            if name.partition(".")[0] not in may
            and not f"{name}.".startswith(("harness.ledger.inside.", "harness.rank."))
        }
    )
    if strange and key == "inside_file":
        return (
            f"its {key}, {file.name}, imports {', '.join(strange)}, which may be missing from an"
            " arm's environment; import only the standard library and harness.rank (a backend may"
            " also import its properties.modules)"
        )
    return ""


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names at the top of a module that may be functions."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def _imported(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the modules that a module imports when it runs.

    A module of its own package, which is not there in a rank, as `.name`.
    """
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield "." * node.level + (node.module or "")


def _files(
    point: importlib.metadata.EntryPoint, distribution: importlib.metadata.Distribution
) -> dict[str, Path]:
    """List the files of a plug-in: its distribution's, and those of the package it names.

    An editable installation lists no code of its own, so its package is looked up. The package may
    be another distribution's: then the files of that one are among them, because its modules beside
    the package act as well.
    """
    paths = _listed(distribution)
    package = _package(point.module.partition(".")[0])
    listed = {os.path.realpath(path) for path in paths.values()}
    if not listed.issuperset(map(os.path.realpath, package.values())):
        for other in importlib.metadata.distributions():
            # Read as a text, because parsing all of them takes a second.
            record = "\n" + (other.read_text("RECORD") or "")
            if any(f"\n{name}," in record for name in package):
                paths |= _listed(other)
    return {name: path for name, path in (paths | package).items() if path.is_file()}


def _package(top: str) -> dict[str, Path]:
    """List the files of a package or module, as it would be imported here; none if not found."""
    try:
        spec = importlib.util.find_spec(top)
    # A module may take away what says where it came from.
    except (ImportError, ValueError):
        return {}
    if spec is not None and spec.submodule_search_locations:
        folders = [Path(folder) for folder in spec.submodule_search_locations]
        files = [
            (folder, path) for folder in folders for path in folder.rglob("*") if _is_code(path)
        ]
        return {path.relative_to(folder.parent).as_posix(): path for folder, path in files}
    if spec is not None and spec.origin is not None:
        return {Path(spec.origin).name: Path(spec.origin)}
    return {}


def _listed(distribution: importlib.metadata.Distribution) -> dict[str, Path]:
    """List the RECORD of a distribution without what an installer wrote.

    That is metadata, programs, caches and `.pth` files.
    """
    return {
        str(listed): Path(str(distribution.locate_file(listed)))
        for listed in distribution.files or ()
        if _is_code(Path(str(listed))) and not (".." in listed.parts and PROGRAMS & {*listed.parts})
    }


def _is_code(path: Path) -> bool:
    """Tell files of the distribution's own content from what an installer or Python writes."""
    return path.suffix != ".pth" and not any(part.endswith(NOT_CODE) for part in path.parts)
