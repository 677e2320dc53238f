"""The arm's code: found before everything else, and its entry described without calling it.

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
    """Finds the arm's packages in its folder, before every other finder.

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
            # Its parts elsewhere come after the arm's; a regular package of its name would take its
            # place.
            spread = PathFinder.find_spec(name, None, target)
            if spread is not None and spread.loader is None:
                return spread
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
    own = _modules(folder)
    names = {name for name in own if name not in sys.stdlib_module_names}
    # A namespace package that the entry lies in is meant; another folder may be data with the name
    # of a package.
    namespace = entry if entry not in own and (Path(folder) / entry).is_dir() else ""
    _forget(folder, {*names, entry} if entry in own or namespace else names)
    sys.meta_path.insert(0, ArmFinder(folder, names, namespace=namespace))


def strays(folder: str, names: Iterable[str]) -> list[str]:
    """Modules of the arm's packages that did not come from its folder: an installed copy had a part
    in what ran.

    Also modules of other packages that the arm's folder holds a file for: of a namespace package,
    which any regular package of its name hides.

    Args:
        folder: the arm's folder.
        names: modules to look at.
    """
    finder = next(
        (strangers for strangers in sys.meta_path if isinstance(strangers, ArmFinder)), None
    )
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
    """Whether the arm's folder has a file for a module."""
    place = beginning + name.replace(".", os.sep)
    return any(os.path.isfile(place + ending) for ending in (*SUFFIXES, f"{os.sep}__init__.py"))


def _modules(folder: str) -> set[str]:
    """Names of modules and packages with a file of their own.

    A mere folder is data, or a part of a namespace.
    """
    modules = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            name, dot, _ = entry.name.partition(".")
            is_module = (
                entry.name.endswith(SUFFIXES)
                if dot
                else (Path(entry.path) / "__init__.py").is_file()
            )
            if is_module:
                modules.add(name)
    return {name for name in modules if name.isidentifier() and not name.startswith("__")}


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
            found
            for found, value in vars(module).items()
            if not found.startswith("_") and callable(value)
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
    found = parameters(function)
    told = (
        None
        if found is None
        else [[one.name, one.kind.name, one.default is not one.empty] for one in found]
    )
    return {"there": True, "names": [], "parameters": told, "late": late}


def names_swallowed(known: Iterable[Parameter], arguments: Iterable[str]) -> list[str]:
    """Arguments that a function with these parameters takes under no name of its own, but with all
    others in `**kw`.

    A function that takes everything, `(*args, **kw)`, stands before another one that is not seen
    from here: of its arguments nothing is said.
    """
    found = list(known)
    kinds = {one.kind for one in found}
    if Parameter.VAR_KEYWORD not in kinds or Parameter.VAR_POSITIONAL in kinds:
        return []
    return sorted(set(arguments) - {one.name for one in found if one.kind in NAMED})


def parameters(function: Callable[..., Any]) -> list[Parameter] | None:
    """The parameters of a function; None where Python cannot tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except Exception:  # noqa: BLE001 - what a class of the subject says of itself may do anything
        return None
