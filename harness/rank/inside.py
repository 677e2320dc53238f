"""Code that faults and backends bring into a rank: files loaded by their path, and changes that
wait for what the rank is going to report or keep.

A kind's own package stays outside, for it needs libraries that an arm's environment may not have. A
plug-in's file is a copy beside the rank's own code, in a folder named by its digest.

A process is one rank, so the waiting changes are the whole process's. Each acts once, on the first
report that has what it is for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

PREFIX = "harness.inside."
DIGEST = re.compile(r"[0-9a-f]{64}")
Values = dict[str, Any]
# Returns the values to report instead; None where these are not the ones that it waits for.
OfReport = Callable[[Values], Values | None]
# Changes a file in its place; the suffix says whether it holds an array, and of what.
OfFile = Callable[[Path, str], None]

_reports: dict[str, list[OfReport]] = {}
_files: dict[str, list[OfFile]] = {}


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
        raise ImportError(f"a rank changed {file.name} after it was copied for the ranks")
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


def expect_report(event: str, change: OfReport) -> None:
    """Change what is reported under an event next."""
    _reports.setdefault(event, []).append(change)


def expect_file(name: str, change: OfFile) -> None:
    """Change the artefact of that name, when it is kept."""
    _files.setdefault(name, []).append(change)


def alter_report(event: str, values: Values) -> Values:
    """Return the values to report in place of these: most often these themselves."""
    waiting = _reports.pop(event, ())
    for change in waiting:
        changed = change(values)
        if changed is None:
            expect_report(event, change)
        else:
            values = changed
    return values


def alter_file(name: str, path: Path, suffix: str) -> None:
    """Change a file that is about to be kept, if a fault wants that."""
    for change in _files.pop(name, ()):
        change(path, suffix)
