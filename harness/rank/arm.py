"""Code of the arm: found before everything else, and its entry described without calling it.

The arm's folder comes before what is loaded already, what is installed, and what an editable
install redirects. A finder of an editable install may stand before `sys.path` (meson-python's and
scikit-build's do), a warm server may have loaded a package of the same name, and Rankproof itself
may be the subject.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.rank.loaded import PARKED, file_of

OURS = "harness"
STRAYS_LIMIT = 20
LOOKED = "entry.looked"
NAMES_LIMIT = 100
NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
SUFFIXES = tuple(importlib.machinery.all_suffixes())


class ArmFinder:
    """Finder of the arm's packages in its folder, before every other finder.

    Attributes:
        folder: the arm's folder.
        names: top-level modules and packages of the folder that are whole: no other folder may hold
            a part of them.
        namespace: the entry's namespace package, of which other folders may hold parts, or empty.
    """

    def __init__(self, folder: str, names: Iterable[str], *, namespace: str = "") -> None:
        self._folder = folder
        self.names = frozenset(names)
        self.namespace = namespace

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of the arm's packages as the import system asks; None leaves it to the
        other finders.
        """
        top, _, below = name.partition(".")
        if top not in self.names and top != self.namespace:
            return None
        if name == self.namespace:
            # Its parts elsewhere come after the arm's. A regular package of its name elsewhere has
            # a loader, and would take its place.
            spec = PathFinder.find_spec(name, None, target)
            if spec is not None and spec.loader is None:
                return spec
        return PathFinder.find_spec(name, path if below else [self._folder], target)


def prefer(folder: str, *, entry: str) -> None:
    """Make every import of this process look into the arm's folder first.

    What is loaded already from elsewhere under a name of the arm's is forgotten; the rank's own
    runtime lives on under a private name.

    Args:
        folder: the arm's folder.
        entry: top-level name of the entry's module.
    """
    sys.path.insert(0, folder)
    modules = _modules(folder)
    names = modules - sys.stdlib_module_names
    # The folder of the entry is a namespace package. Any other folder may be data with the name of
    # a package.
    namespace = entry if entry not in modules and (Path(folder) / entry).is_dir() else ""
    _forget(folder, names | {entry} if entry in modules or namespace else names)
    # First of all finders: one of an editable install may come before `sys.path`.
    sys.meta_path.insert(0, ArmFinder(folder, names, namespace=namespace))


def strays(folder: str, names: Iterable[str]) -> list[str]:
    """Name the modules of the arm's packages that did not come from its folder.

    An installed copy had a part in what ran. Also named are modules of other packages that the
    arm's folder has a file for: of a namespace package, which any regular package of its name
    hides.

    Args:
        folder: the arm's folder.
        names: modules to look at.
    """
    finder = next((finder for finder in sys.meta_path if isinstance(finder, ArmFinder)), None)
    if finder is None:
        return []
    beginning = os.path.realpath(folder) + os.sep
    strangers = []
    for name in names:
        top = name.partition(".")[0]
        whole = top in finder.names
        if not whole and (top in sys.stdlib_module_names or not os.path.isdir(beginning + top)):
            continue
        file = file_of(sys.modules.get(name))
        if (
            file is not None
            and not file.startswith(beginning)
            and (whole or _holds(beginning, name))
        ):
            strangers.append(name)
    return sorted(strangers)[:STRAYS_LIMIT]


def _holds(beginning: str, name: str) -> bool:
    """Return True if the arm's folder has a file for a module."""
    place = beginning + name.replace(".", os.sep)
    return any(os.path.isfile(place + ending) for ending in (*SUFFIXES, f"{os.sep}__init__.py"))


def _modules(folder: str) -> set[str]:
    """Name the modules and packages that have a file of their own.

    A mere folder is data, or a part of a namespace.
    """
    entries = os.listdir(folder)
    modules = {name.partition(".")[0] for name in entries if name.endswith(SUFFIXES)}
    modules |= {name for name in entries if os.path.isfile(f"{folder}/{name}/__init__.py")}
    return {name for name in modules if name.isidentifier() and not name.startswith("__")}


def _forget(folder: str, names: set[str]) -> None:
    beginning = os.path.realpath(folder) + os.sep
    tops = {
        name
        for name in names & sys.modules.keys()
        if not (file_of(sys.modules[name]) or "").startswith(beginning)
    }
    if not tops:
        return
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        module = sys.modules.pop(name)
        if name.partition(".")[0] == OURS:
            sys.modules[PARKED + name[len(OURS) :]] = module


def look(module: ModuleType, name: str) -> dict[str, Any]:
    """Look at a function of a module.

    Returns:
        JSON object: `there` (whether there is something to call under that name), `names` (what
        else could be called), `parameters` (name, kind and whether it may be left out; null where
        Python cannot tell), `late` (`coroutine` or `generator` where a call only makes one, and
        runs nothing).
    """
    function = getattr(module, name, None)
    if not callable(function):
        names = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and callable(value)
        ]
        return {
            "there": False,
            "names": sorted(names)[:NAMES_LIMIT],
            "parameters": None,
            "late": "",
        }
    late = "coroutine" if inspect.iscoroutinefunction(function) else ""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        late = "generator"
    known = parameters(function)
    rows: list[tuple[str, str, bool]] | None = None
    if known is not None:
        rows = [
            (parameter.name, parameter.kind.name, parameter.default is not parameter.empty)
            for parameter in known
        ]
    return {"there": True, "names": [], "parameters": rows, "late": late}


def names_swallowed(known: Iterable[Parameter], arguments: Iterable[str]) -> list[str]:
    """Arguments that a function with these parameters takes under no name of its own, but with all
    others in `**kw`.

    A function that takes everything, `(*args, **kw)`, stands before another one that is not seen
    from here: of its arguments nothing is said.
    """
    known = list(known)
    kinds = {parameter.kind for parameter in known}
    if Parameter.VAR_KEYWORD not in kinds or Parameter.VAR_POSITIONAL in kinds:
        return []
    names = {parameter.name for parameter in known if parameter.kind in NAMED}
    return sorted(set(arguments) - names)


def parameters(function: Callable[..., Any]) -> list[Parameter] | None:
    """Return the parameters of a function; None where Python cannot tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except Exception:  # noqa: BLE001 - what a class of the subject says of itself may do anything
        return None
