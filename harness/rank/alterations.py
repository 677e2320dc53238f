"""What faults of this rank are going to change of what it reports and keeps, before anybody sees
it.

A process is one rank, so this is one for all of it. Each acts once, on the first report that has
what it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Values = dict[str, Any]
OfReport = Callable[[Values], Values | None]
"""Returns the values that are reported instead; None where these are not the ones it waits for."""
OfFile = Callable[[Path, str], None]
"""Changes a file in its place; the suffix says whether it holds an array, and of what."""

_reports: dict[str, list[OfReport]] = {}
_files: dict[str, list[OfFile]] = {}


def expect_report(event: str, change: OfReport) -> None:
    """Change what is reported under an event next."""
    _reports.setdefault(event, []).append(change)


def expect_file(name: str, change: OfFile) -> None:
    """Change the artefact of that name, when it is kept."""
    _files.setdefault(name, []).append(change)


def of_report(event: str, values: Values) -> Values:
    """What is to be reported in place of these values: most often these themselves."""
    waiting = _reports.pop(event, ())
    for change in waiting:
        changed = change(values)
        if changed is None:
            expect_report(event, change)
        else:
            values = changed
    return values


def of_file(name: str, path: Path, suffix: str) -> None:
    """Change a file that is about to be kept, if a fault wants that."""
    for change in _files.pop(name, ()):
        change(path, suffix)
