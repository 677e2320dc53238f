"""The arm's code comes first: before what is loaded already, what is installed, and what an editable install redirects.

A finder of an editable install may stand before `sys.path` (meson-python's and scikit-build's do), a warm server may
have loaded a package of the same name, and Rankproof itself may be the subject.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from harness.rank.loaded import file_of

PARKED = "_rankproof_runtime"
OURS = "harness"
STRAYS_LIMIT = 20
SUFFIXES = tuple(importlib.machinery.all_suffixes())


class ArmFinder:
    """Finds the arm's packages in its folder, before every other finder.

    Attributes:
        names: top-level modules and packages of the folder that it answers for.
    """

    def __init__(self, folder: str, names: Iterable[str]) -> None:
        self._folder = folder
        self.names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of the arm's packages as the import system asks; None leaves it to the other finders."""
        top, _, below = name.partition(".")
        if top not in self.names:
            return None
        return PathFinder.find_spec(name, path if below else [self._folder], target)


def prefer(folder: str, *, entry: str) -> None:
    """Make every import of this process look into the arm's folder first.

    What is loaded already from elsewhere under a name of the arm's is forgotten; the rank's own runtime lives on under
    a private name.

    Args:
        folder: the arm's folder.
        entry: top-level name of the entry's module.
    """
    sys.path.insert(0, folder)
    names = {name for name in _modules(folder) if name not in sys.stdlib_module_names}
    if entry in _modules(folder) or (Path(folder) / entry).is_dir():
        _forget(folder, {*names, entry})
    else:
        _forget(folder, names)
    sys.meta_path.insert(0, ArmFinder(folder, names))


def strays(folder: str, names: Iterable[str]) -> list[str]:
    """Modules of the arm's packages that did not come from its folder: an installed copy had a part in what ran.

    Args:
        folder: the arm's folder.
        names: modules to look at.
    """
    finder = next((found for found in sys.meta_path if isinstance(found, ArmFinder)), None)
    if finder is None:
        return []
    beginning = os.path.realpath(folder) + os.sep
    found = []
    for name in names:
        if name.partition(".")[0] in finder.names:
            file = file_of(sys.modules.get(name))
            if file is not None and not file.startswith(beginning):
                found.append(name)
    return sorted(found)[:STRAYS_LIMIT]


def _modules(folder: str) -> set[str]:
    """Names of modules and packages with a file of their own. A mere folder is data, or a part of a namespace."""
    found = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            name, dot, _ = entry.name.partition(".")
            is_module = entry.name.endswith(SUFFIXES) if dot else (Path(entry.path) / "__init__.py").is_file()
            if is_module:
                found.add(name)
    return {name for name in found if name.isidentifier() and not name.startswith("__")}


def _forget(folder: str, names: set[str]) -> None:
    beginning = os.path.realpath(folder) + os.sep
    tops = {name for name in names if name in sys.modules}
    tops = {name for name in tops if not (file_of(sys.modules[name]) or "").startswith(beginning)}
    if not tops:
        return
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        module = sys.modules.pop(name)
        if name.partition(".")[0] == OURS:
            sys.modules[PARKED + name[len(OURS) :]] = module
