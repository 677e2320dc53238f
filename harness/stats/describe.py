"""What happened to a trial's ranks, in words."""

from __future__ import annotations

from harness.checks.finding import canonical
from harness.forms.strict_json import JSON
from harness.history import History, ended
from harness.reason import Void, VoidCode

TEXT_LIMIT = 300


def how_it_ended(history: History, rank: int) -> str:
    """How a rank ended: what it raised and where, or its code or signal."""
    if (error := history.error(rank)) is not None:
        values = error.event.values
        message = f": {values['message']}" if values.get("message") else ""
        place = f" at {values['source']!r}" if values.get("source") else ""
        return short(f"{values.get('type')}{_missed(history, rank)}{message}{place}")
    if (end := history.exit(rank)) is not None:
        how = ended(end.event.values)
        if end.event.values.get("signal") == "SIGKILL" and not history.noted("world.stopped"):
            how += ", sent by nobody here (the kernel, out of memory, or another process)"
        return how if history.is_of_programs or history.returned(rank) else f"{how} before the subject returned"
    return "its end was not seen"


def _missed(history: History, rank: int) -> str:
    """That the user's own cache has the model that a rank did not find, and what to do."""
    if not (events := history.noted("cache.missed", rank)):
        return ""
    values = events[0].event.values
    models = values.get("models")
    named = ", ".join(map(str, models)) if isinstance(models, list) else ""
    home = ", or set world.home: shared" if values.get("in_home") else ""
    return f" ({named}: only in the user's own cache, name it under inputs{home})"


def harness_error(history: History) -> Void | None:
    """What went wrong in the harness, if anything."""
    if not (broken := history.noted("harness.error")):
        return None if history.noted("world.end") else Void(VoidCode.NO_END, "its events have no end")
    values = broken[0].event.values
    return Void(VoidCode.HARNESS_ERROR, short(f"{values.get('type')}: {values.get('message')}"))


def shown(value: JSON) -> str:
    """A value of an event as a reader wants it: text as it is, names and values in words, the rest as JSON."""
    if isinstance(value, str):
        return short(value)
    if isinstance(value, dict) and all(isinstance(inner, str | int | float) for inner in value.values()):
        return short(", ".join(f"{key} {inner}" for key, inner in value.items()))
    return short(canonical(value))


def short(text: str) -> str:
    """At most 300 characters of a text, and how many were left out."""
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + f"... ({len(text) - TEXT_LIMIT} more characters)"
