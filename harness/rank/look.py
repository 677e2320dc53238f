"""What a function is, told without calling it: which parameters it has, and whether calling it runs
it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from inspect import Parameter
from types import ModuleType
from typing import Any

LOOKED = "entry.looked"
NAMES_LIMIT = 100
NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


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
