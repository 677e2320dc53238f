"""Environment variables that a user sets: where caches lie, and what is on or off.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(name: str, *, variable: str | None = None) -> Path:
    """Find a cache of ours: what `variable` names, else `rankproof/NAME` below $XDG_CACHE_HOME or
    ~/.cache.

    The XDG specification says to ignore a relative path.
    """
    if variable and (given := os.environ.get(variable)):
        return Path(given).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "rankproof" / name


ON = frozenset({"1", "on", "true", "yes"})
OFF = frozenset({"", "0", "off", "false", "no"})


def switch(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether a variable is on: 1, on, true or yes, in any case.

    Off is 0, off, false, no, nothing, or not set.

    Raises:
        ValueError: it is something else; a word that nobody understands must not become either of
            the two.
    """
    value = (os.environ if environment is None else environment).get(name, "").strip()
    if value.lower() in ON:
        return True
    if value.lower() in OFF:
        return False
    raise ValueError(
        f"{name} is {value[:40]!r}, which is not a valid setting; set it to 1, on, true or yes to"
        " enable it, or to 0, off, false, no or an empty value to disable it"
    )
