"""Where a repository's files can be imported from, as its metadata states it.

Nothing of it is executed.

A root is the top of the repository, a folder with pyproject.toml, setup.cfg or setup.py, the `src`
of either, and what the metadata there maps packages to. A folder inside a package is no root: a
copy of the code that tests keep is data.
"""

from __future__ import annotations

import ast
import configparser
import posixpath
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
    """Whether a folder of these files is a package, or in one."""
    return _is_inside(
        folder,
        {posixpath.dirname(path) for path in paths if posixpath.basename(path) == "__init__.py"},
    )


def _is_inside(folder: str, packages: Collection[str]) -> bool:
    """Whether a folder is a package, or in one."""
    while folder:
        if folder in packages:
            return True
        folder = posixpath.dirname(folder)
    return False


def _names(paths: Iterable[str], places: Iterable[Place]) -> dict[str, tuple[Place, ...]]:
    by_folder: dict[str, list[str]] = {}
    for name, target in places:
        by_folder.setdefault(target, []).append(name)
    found: dict[str, dict[Place, None]] = {}
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
                    found.setdefault(name, {})[prefix, target] = None
    return {name: tuple(sorted(of)) for name, of in found.items()}


def _mapped(name: str, text: bytes) -> list[Place]:
    """What a file of metadata maps packages to: beginning of the import's path, and folder."""
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
    for one in tool.get("poetry", {}).get("packages", ()):
        yield one.get("to", "").replace("/", "."), one.get("from", "")
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
    """Whether a setup.py works out where its packages are."""
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
    found = {
        key.value: folder.value
        for key, folder in pairs
        if isinstance(key, ast.Constant) and isinstance(folder, ast.Constant)
    }
    return found if len(found) == len(pairs) else None


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
        given += [(str(one.arg), one.value) for one in node.keywords]
        for name, written in given:
            if name == "package_dir" or (name == "where" and finds):
                yield (
                    name,
                    texts.get(written.id, written) if isinstance(written, ast.Name) else written,
                )
