"""Which environment a rank runs in, told by the rank's own interpreter from what is installed in it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from typing import Any


def describe(distributions: Iterable[str]) -> dict[str, Any]:
    """Describe this interpreter.

    Args:
        distributions: names of the packages to look for.

    Returns:
        JSON object: `python` (version), `implementation`, `apart` (whether it is a virtual environment), `packages`:
        name to `version` and `record`, the sha256 of its RECORD file; None for a package that is not there.
    """
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "apart": sys.prefix != sys.base_prefix,
        "packages": {name: _package(name) for name in distributions},
    }


def _package(name: str) -> dict[str, str | None] | None:
    # A third of what a fresh rank imports, and most ranks are asked for no package.
    import importlib.metadata

    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    record = distribution.read_text("RECORD")
    digest = hashlib.sha256(record.encode()).hexdigest() if record is not None else None
    return {"version": distribution.version, "record": digest}
