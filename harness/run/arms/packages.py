"""Import names: which ones the files of a repository have, as its metadata states it, and which
distributions of an environment bring them.

Nothing of it is executed.

A root is the top of the repository, a folder with pyproject.toml, setup.cfg or setup.py, the `src`
of either, and what the metadata there maps packages to. A folder inside a package is no root: a
copy of the code that tests keep is data.

A name that setup.py works out is known to nobody who does not run it. What such a project builds is
known by its import name alone; where it also works out its folders, by the files that the
repository has somewhere below the project.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import csv
import functools
import posixpath
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.forms.digest import sha256_of
from harness.forms.distribution import normal
from harness.stats.counterparts import InstalledCopy, is_data, top_of

# A file that declares something is short; a larger one is something else's.
LARGEST = 2**20
DECLARING = ("pyproject.toml", "setup.cfg", "setup.py")
CODE = (".py", ".so", ".pyd")
UNREADABLE = (
    ValueError,
    SyntaxError,
    configparser.Error,
    RecursionError,
    MemoryError,
    TypeError,
    AttributeError,
)
Place = tuple[str, str]
"""The beginning of a path as it is imported, and what stands for it in the repository: `("",
"src/")`.
"""


@dataclass(frozen=True)
class Roots:
    """The roots of a repository.

    Attributes:
        places: of every name that is imported from one, in order.
    """

    places: Mapping[str, tuple[Place, ...]]


def roots_of(paths: Collection[str], texts: Mapping[str, bytes]) -> Roots:
    """Find the names that a repository's files are imported by.

    Args:
        paths: of all its files.
        texts: content of its metadata, by path.
    """
    packages = {
        posixpath.dirname(path) for path in paths if posixpath.basename(path) == "__init__.py"
    }
    unread = {
        posixpath.dirname(path)
        for path, text in texts.items()
        if posixpath.basename(path) == "setup.py" and is_unread(text)
    }
    places: dict[Place, None] = {} if "" in unread else {("", ""): None, ("", "src/"): None}
    for path, text in sorted(texts.items()):
        folder = posixpath.dirname(path)
        if folder and _is_inside(folder, packages):
            continue
        beginning = f"{folder}/" if folder else ""
        # Of folders that setup.py works out, nobody knows whether the usual ones are among them.
        usual = [] if folder in unread else [("", ""), ("", "src")]
        mapped = [*usual, *_mapped(posixpath.basename(path), text)]
        for name, given in mapped:
            target = posixpath.normpath(posixpath.join(folder, given))
            if target.startswith(("..", "/")):
                continue
            target = "" if target == "." else f"{target}/"
            if not given:
                target = beginning
            places[name, target] = None
    return Roots(_names(paths, places))


def is_inside_a_package(folder: str, paths: Iterable[str]) -> bool:
    """Return whether a folder of these files is a package, or in one."""
    return _is_inside(
        folder,
        {posixpath.dirname(path) for path in paths if posixpath.basename(path) == "__init__.py"},
    )


def _is_inside(folder: str, packages: Collection[str]) -> bool:
    """Return whether a folder is a package, or in one."""
    while folder:
        if folder in packages:
            return True
        folder = posixpath.dirname(folder)
    return False


def _names(paths: Iterable[str], places: Iterable[Place]) -> dict[str, tuple[Place, ...]]:
    by_folder: dict[str, list[str]] = {}
    for name, target in places:
        by_folder.setdefault(target, []).append(name)
    places_of: dict[str, dict[Place, None]] = {}
    for path in paths:
        if not path.endswith(CODE):
            continue
        folder = path
        while folder:
            folder = posixpath.dirname(folder)
            target = f"{folder}/" if folder else ""
            for prefix in by_folder.get(target, ()):
                imported = f"{prefix}{path[len(target) :]}"
                name = imported.partition("/")[0].partition(".")[0]
                if name.isidentifier():
                    places_of.setdefault(name, {})[prefix, target] = None
    return {name: tuple(sorted(of)) for name, of in places_of.items()}


def _mapped(name: str, text: bytes) -> list[Place]:
    """Return what a file of metadata maps packages to: beginning of the import's path, and
    folder.
    """
    if len(text) > LARGEST:
        return []
    try:
        content = text.decode("utf-8")
        read = {"pyproject.toml": _of_project, "setup.cfg": _of_config, "setup.py": _of_script}[
            name
        ]
        return [
            (f"{package.replace('.', '/')}/" if package else "", folder)
            for package, folder in read(content)
            if isinstance(package, str) and isinstance(folder, str)
        ]
    except UNREADABLE:
        return []


def _of_project(content: str) -> Iterator[tuple[Any, Any]]:
    tool = tomllib.loads(content).get("tool", {})
    setuptools = tool.get("setuptools", {})
    yield from setuptools.get("package-dir", {}).items()
    packages = setuptools.get("packages")
    if isinstance(packages, dict):
        yield from (("", folder) for folder in packages.get("find", {}).get("where", ()))
    for entry in tool.get("poetry", {}).get("packages", ()):
        yield entry.get("to", "").replace("/", "."), entry.get("from", "")
    wheel = tool.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    for folder in (*wheel.get("packages", ()), *_packages_of_scikit(tool)):
        yield "", posixpath.dirname(folder.rstrip("/"))
    sources = wheel.get("sources", ())
    if isinstance(sources, dict):
        yield from ((package, folder) for folder, package in sources.items())
    else:
        yield from (("", folder) for folder in sources)
    force = wheel.get("force-include", {})
    yield from (
        (package, folder) for folder, package in force.items() if not package.endswith(CODE)
    )
    yield "", tool.get("pdm", {}).get("build", {}).get("package-dir", "")
    yield "", tool.get("maturin", {}).get("python-source", "")
    yield "", tool.get("uv", {}).get("build-backend", {}).get("module-root", "")


def _packages_of_scikit(tool: Mapping[str, Any]) -> list[str]:
    packages = tool.get("scikit-build", {}).get("wheel", {}).get("packages", ())
    return list(packages.values()) if isinstance(packages, dict) else list(packages)


def _of_config(content: str) -> Iterator[tuple[Any, Any]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(content)
    for line in parser.get("options", "package_dir", fallback="").replace(",", "\n").splitlines():
        package, equals, folder = line.partition("=")
        if equals:
            yield package.strip(), folder.strip()
    for line in parser.get("options.packages.find", "where", fallback="").splitlines():
        yield "", line.strip()


def is_unread(text: bytes) -> bool:
    """Return whether a setup.py works out where its packages are."""
    if len(text) > LARGEST:
        return True
    try:
        return any(_literal(value) is None for _, value in _folders_given(text.decode("utf-8")))
    except UNREADABLE:
        return True


def _of_script(content: str) -> Iterator[tuple[Any, Any]]:
    """Of every call: a `package_dir` that is written out, and where `find_packages` looks."""
    for _, value in _folders_given(content):
        yield from (_literal(value) or {}).items()


def _literal(value: ast.expr) -> dict[Any, Any] | None:
    """Package to folder as it is written out; None where it is worked out."""
    if isinstance(value, ast.Constant):
        return {"": value.value} if value.value is not None else {}
    if not isinstance(value, ast.Dict):
        return None
    pairs = list(zip(value.keys, value.values, strict=True))
    literals = {
        key.value: folder.value
        for key, folder in pairs
        if isinstance(key, ast.Constant) and isinstance(folder, ast.Constant)
    }
    return literals if len(literals) == len(pairs) else None


def _folders_given(content: str) -> Iterator[tuple[str, ast.expr]]:
    """Of every call: what it gives as `package_dir`, and where `find_packages` looks."""
    tree = ast.parse(content)
    texts = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        finds = function in ("find_packages", "find_namespace_packages")
        given = [("where", value) for value in node.args[:1]] if finds else []
        given += [(str(keyword.arg), keyword.value) for keyword in node.keywords]
        for name, written in given:
            if name == "package_dir" or (name == "where" and finds):
                yield (
                    name,
                    texts.get(written.id, written) if isinstance(written, ast.Name) else written,
                )


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

    def may_have_built(self, copy: InstalledCopy) -> bool:
        """Return whether a distribution may be one of theirs."""
        if not self.names.isdisjoint({top_of(file) for file in copy.files}):
            return True
        rests = [
            file.partition("/")[2] for file in copy.files if file.endswith(".py") and "/" in file
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
    for folder, metadata in projects.items():
        is_project = any(mark in text for name, text in metadata.items() for mark in MARKS[name])
        is_named = any(names_in(name, text) for name, text in metadata.items())
        if not is_project or is_named or is_inside_a_package(folder, paths):
            continue
        beginning = f"{folder}/" if folder else ""
        if crate := _crate(read([beginning + CARGO]).get(beginning + CARGO, b"")):
            crates.add(crate)
            continue
        below = {path.removeprefix(beginning) for path in paths if path.startswith(beginning)}
        for name, places in roots_of(below, metadata).places.items():
            whole = {
                f"{target}{name}{end}" for _, target in places for end in (".py", "/__init__.py")
            }
            if name != "setup" and (
                not whole.isdisjoint(below) or any(prefix for prefix, _ in places)
            ):
                names.add(name)
        if is_unread(metadata.get("setup.py", b"")):
            unread.append(below)
    return Unnamed(frozenset(names), frozenset(crates), tuple(unread))


def _crate(text: bytes) -> str:
    """Return the normal name of the crate that a Cargo.toml declares, or empty."""
    try:
        name = tomllib.loads(text.decode()).get("package", {}).get("name")
    except (ValueError, AttributeError):
        return ""
    return normal(name) if isinstance(name, str) else ""


def _alike(rests: Collection[str], paths: Collection[str]) -> int:
    """How many of these paths one folder has, at most."""
    counts: Counter[str] = Counter()
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    for rest in rests:
        for path in by_name.get(posixpath.basename(rest), ()):
            if f"/{path}".endswith(f"/{rest}"):
                counts[path.removesuffix(rest)] += 1
    return max(counts.values(), default=0)


TOP = re.compile(r'"?([^/,\n"]+)[/,]')
ABOUT = (".dist-info/", ".egg-info/")


def search_path(python: Path | None) -> list[Path]:
    """Return the folders that packages are imported from: of an environment of an arm's own, or of
    the harness'.
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
    """Return the distributions that bring a module or package of one of these names, or are called
    like one of them.

    Args:
        folders: to look into.
        names: import names, and normal names of distributions; None are all.
        wanted: whether the files of one are read; of others their modules are only named.
    """
    copies = []
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
            copy = InstalledCopy(name=normal(name), version=version, files=files)
            if wanted(copy):
                read = {file: _digest(folder / file) for file in files}
                copies.append(copy.model_copy(update={"files": read}))
            else:
                modules = {file: "" for file in files if file.endswith(".py")}
                copies.append(copy.model_copy(update={"files": modules}))
    return sorted(copies, key=lambda copy: (copy.name, copy.version))


def _abouts(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(entry for entry in folder.iterdir() if entry.name.endswith(".dist-info"))
    return []


# By the text itself: a run asks for each arm, before and after its trials.
@functools.lru_cache(maxsize=1024)
def _tops(record: str) -> frozenset[str]:
    """Names of the folders and modules at the top of what a RECORD lists."""
    # A RECORD has up to ten thousand lines below a few folders: the expression sees each folder
    # once.
    lines = (line.partition("/") for line in record.split("\n"))
    heads = {head + slash for head, slash, _ in lines}
    return frozenset(match[1].partition(".")[0] for head in heads if (match := TOP.match(head)))


def _files(record: str) -> Iterator[str]:
    """Paths of a RECORD that a distribution brings, but for what describes it."""
    for row in csv.reader(record.splitlines()):
        file = row[0] if row else ""
        if not file or file.endswith((".pyc", ".pth")) or any(part in file for part in ABOUT):
            continue
        if is_data(file) or (not file.startswith(("../", "/")) and top_of(file).isidentifier()):
            yield file


def _digest(path: Path) -> str:
    """Return the sha256 of a file as it is; a word where it cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        return f"unreadable: {error.strerror}"
