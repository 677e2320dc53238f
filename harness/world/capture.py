"""What came out of one world."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.events import Event
from harness.forms.digest import sha256
from harness.forms.strict_json import JSON
from harness.world.names import hide_home_in
from harness.world.paths import shorten
from harness.world.room import Room


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Everything a trial left: its events in order of time, and per rank what it printed and where it stood.

    Attributes:
        events: all of them, by whoever emitted them.
        logs: rank to the bytes it printed (bounded); ranks that printed nothing are absent.
        stacks: rank to the text of its threads' stacks, taken when its world was stopped.
        loaded: what ranks had loaded, by the sha256 that their events give in its place.
    """

    events: tuple[Event, ...]
    logs: Mapping[int, bytes]
    stacks: Mapping[int, bytes]
    loaded: Mapping[str, bytes] = field(default_factory=dict)


def as_evidence(event: Event, *, pid: int | None, code: Path, room: Room | None = None) -> Event:
    """An event as evidence keeps it: with its pid, and without the names of this machine and its user.

    Args:
        event: as it was emitted.
        pid: of its rank, where the event does not say.
        code: the folder that the ranks import from.
        room: whose home folder is the ranks' own, and told as `~` too.
    """
    values = event.values
    if event.by == "rank":
        values = hide_home_in(dict(values), room.homes if room is not None else ())
        if event.name == "rank.error":
            values = {**values, **_in_words(values, code=code, room=room)}
    return event._replace(pid=pid if event.pid is None else event.pid, values=values)


def apart(event: Event, *, loaded: dict[str, bytes]) -> Event:
    """Take what a rank had loaded out of its event: it is long, and most ranks of a run say the same.

    Args:
        event: as it was emitted.
        loaded: where it goes, by its sha256, which stands in the event instead.
    """
    if (event.by, event.name) != ("rank", "subject.loaded") or "packages" not in event.values:
        return event
    if not isinstance(event.values["packages"], dict):
        # Only what is kept may be named by its digest.
        return event._replace(values={**event.values, "packages": None})
    listing = json.dumps(event.values["packages"], ensure_ascii=True, allow_nan=False, sort_keys=True, indent=1)
    data = listing.encode("ascii") + b"\n"
    digest = sha256(data)
    loaded[digest] = data
    return event._replace(values={**event.values, "packages": digest})


def _in_words(values: Mapping[str, JSON], *, code: Path, room: Room | None) -> dict[str, JSON]:
    """What a failed rank says in words: text for readers, that no check looks at."""
    shortened: dict[str, JSON] = {}
    if isinstance(message := values.get("message"), str):
        shortened["message"] = shorten(message, folder=code, room=room)
    if isinstance(causes := values.get("causes"), list):
        shortened["causes"] = [
            {**cause, "message": shorten(str(cause.get("message", "")), folder=code, room=room)}
            if isinstance(cause, dict)
            else cause
            for cause in causes
        ]
    return shortened
