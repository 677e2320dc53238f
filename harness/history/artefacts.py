"""What ranks kept, as a trial's events hold it: what the harness found, and what it compared."""

from __future__ import annotations

from harness.history import History, Seen

KEPT = "artefact.kept"
"""A rank says so, when it keeps one."""
FOUND = "artefact.found"
"""The harness says so of each, once the rank has ended: name, file, bytes, sha256, dtype, shape, stored."""
COMPARED = "artefact.compared"
"""The harness says so of each check that compares arrays, for each rank: check, found, expected, the comparison."""


def found(history: History, rank: int, name: str) -> Seen | None:
    """The artefact of a rank, as the harness found it; None where there is none of that name."""
    return next((seen for seen in history.noted(FOUND, rank) if seen.event.values.get("name") == name), None)


def compared(history: History, rank: int, check: str) -> Seen | None:
    """What a check's arrays differ by on a rank."""
    return next((seen for seen in history.noted(COMPARED, rank) if seen.event.values.get("check") == check), None)


def why_not(history: History, rank: int, name: str) -> str:
    """Why a rank has no artefact of that name, in words."""
    for seen in history.noted(FOUND, rank):
        file, why = str(seen.event.values.get("file")), seen.event.values.get("why")
        if why and file.startswith(f"{name}."):
            return f"{name} was not kept: {file}: {why}"
    return f"{name} was not kept"


def was_changed(history: History, rank: int, name: str) -> bool:
    """Whether the file is not the one that the rank said it kept. Programs do not say."""
    seen = found(history, rank, name)
    said = [one.event.values.get("sha256") for one in history.said(rank, KEPT) if one.event.values.get("name") == name]
    return bool(said) and seen is not None and said != [seen.event.values.get("sha256")]
