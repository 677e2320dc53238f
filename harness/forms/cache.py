"""Where this user's caches lie. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str, *, variable: str | None = None) -> Path:
    """A cache of ours: what `variable` names, else `rankproof/NAME` below $XDG_CACHE_HOME or
    ~/.cache.

    The XDG specification says to ignore a relative path.
    """
    if variable and (given := os.environ.get(variable)):
        return Path(given).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "rankproof" / name
