"""Files that are loaded into a rank by their path: what a kind of fault or backend does there.

A kind's own package stays outside, for it needs libraries that an arm's environment may not have. A
plug-in's file is a copy beside the rank's own code, in a folder named by its digest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

PREFIX = "harness.inside."
DIGEST = re.compile(r"[0-9a-f]{64}")


def load(path: str) -> ModuleType:
    """Load a file, once per process.

    Args:
        path: of the file; it imports the standard library and `harness.rank` alone.

    Raises:
        ImportError: a copy is not what its folder says any more.
        Exception: what the file raises while it is loaded, and OSError where it is gone.
    """
    file = Path(path)
    name = f"{PREFIX}{file.parent.name}.{file.stem}".replace("-", "_")
    if (known := sys.modules.get(name)) is not None:
        return known
    stated = file.parent.name
    if DIGEST.fullmatch(stated) and hashlib.sha256(file.read_bytes()).hexdigest() != stated:
        raise ImportError(
            f"{file.name} was changed since it was copied beside the ranks: a rank wrote there"
        )
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
