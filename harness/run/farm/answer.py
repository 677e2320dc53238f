"""The files of one trial, as a node sends them and as control takes them.

They are bounded, have names of a closed list, and are held against what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from harness.events import Event, EventError, parse_lines
from harness.forms.digest import sha256
from harness.forms.strict_json import JSON
from harness.forms.text import printable
from harness.history import ARTEFACT_FOUND
from harness.stats.outcome import EVENTS
from harness.world.control.capture import HEAD, STACK_LIMIT, TAIL, Capture

MOST = 64 * 2**20
# What shortening may add to names of files, and the line that says what is missing.
SPARE = 2
NAME = re.compile(r"rank-(0|[1-9][0-9]{0,5})\.(log|stacks\.txt)")
LIST = re.compile(r"loaded/([0-9a-f]{64})")
MOST_LISTS = 64


class AnswerRefused(Exception):
    """A node sent what it was not asked for; the message says what."""


def pack(capture: Capture, *, known: Collection[str]) -> tuple[list[list[JSON]], bytes]:
    """What a world left, as names with sizes, and the content of all of them.

    Args:
        capture: what it left.
        known: the lists of loaded files that control had from this node when it asked.
    """
    files = {EVENTS: "".join(event.line() + "\n" for event in capture.events).encode("ascii")}
    files |= {f"rank-{rank}.log": text for rank, text in sorted(capture.logs.items())}
    files |= {f"rank-{rank}.stacks.txt": text for rank, text in sorted(capture.stacks.items())}
    files |= {
        f"loaded/{digest}": text
        for digest, text in sorted(capture.loaded.items())
        if digest not in known
    }
    return [[name, len(content)] for name, content in files.items()], b"".join(files.values())


def take(
    listing: Any, content: bytes, *, about: Mapping[str, JSON], size: int, known: dict[str, bytes]
) -> Capture:
    """What a world left, from what a node sent.

    Args:
        listing: names with sizes.
        content: of all of them, one after the other.
        about: what the first line of the trial has to say.
        size: world size.
        known: the lists of loaded files that came before, by sha256; new ones are added.

    Raises:
        AnswerRefused: it is not the answer to what was asked.
    """
    files = _cut(listing, content)
    events = files.pop(EVENTS, None)
    if events is None:
        raise AnswerRefused(f"its answer has no {EVENTS}")
    ranks: dict[str, dict[int, bytes]] = {"log": {}, "stacks.txt": {}}
    bounds = {"log": SPARE * (HEAD + TAIL), "stacks.txt": SPARE * STACK_LIMIT}
    for name, text in files.items():
        if match := LIST.fullmatch(name):
            if sha256(text) != match[1]:
                raise AnswerRefused("a list of loaded files is not what its digest says")
            if len(known) >= MOST_LISTS * size:
                raise AnswerRefused("its ranks loaded something else in every trial")
            if sum(map(len, known.values())) + len(text) > MOST:
                raise AnswerRefused(
                    f"its ranks' lists of loaded files have more than {MOST} bytes together"
                )
            known[match[1]] = text
            continue
        match = NAME.fullmatch(name)
        if match is None or int(match[1]) >= size:
            raise AnswerRefused(
                f"it sent a file that a trial does not have: {printable(name, limit=60)}"
            )
        if len(text) > bounds[match[2]]:
            raise AnswerRefused(
                f"its {name} has {len(text)} bytes, at most {bounds[match[2]]} are taken"
            )
        ranks[match[2]][int(match[1])] = text
    try:
        said = parse_lines(events)
    except EventError as error:
        raise AnswerRefused(f"its events cannot be read: {error}") from None
    _demand_asked(said, about)
    lists = {
        str(one.values.get("packages"))
        for one in said
        if (one.by, one.name) == ("rank", "subject.loaded")
    }
    loaded = {digest: known[digest] for digest in lists if digest in known}
    if lacking := sorted(lists - loaded.keys() - {"None"}):
        raise AnswerRefused(
            f"it did not send what its ranks loaded: {printable(lacking[0], limit=64)}"
        )
    return Capture(events=tuple(said), logs=ranks["log"], stacks=ranks["stacks.txt"], loaded=loaded)


def _cut(listing: Any, content: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    at = 0
    for entry in listing if isinstance(listing, list) else ():
        if (
            not isinstance(entry, list)
            or [type(part) for part in entry] != [str, int]
            or entry[1] < 0
        ):
            raise AnswerRefused("its list of files is not one")
        name, length = entry
        if name in files:
            raise AnswerRefused(f"it sent {printable(name, limit=60)} twice")
        files[name] = content[at : at + length]
        at += length
    if at != len(content):
        raise AnswerRefused(f"it sent {len(content)} bytes, and its list says {at}")
    return files


def _demand_asked(said: list[Event], about: Mapping[str, JSON]) -> None:
    """Demand that the events are those of the trial that was asked for, from its begin to its
    end.
    """
    if not said or (said[0].by, said[0].name) != ("harness", "world.begin"):
        raise AnswerRefused("its events do not begin with their world")
    if (said[-1].by, said[-1].name) != ("harness", "world.end"):
        raise AnswerRefused("its events do not end with their world")
    for key, wanted in about.items():
        if (found := said[0].values.get(key)) != wanted:
            what = f"its {key} is {printable(str(found), limit=60)}, not {wanted}"
            raise AnswerRefused(f"it sent another trial than it was asked for: {what}")
    if any(one.name == ARTEFACT_FOUND and one.values.get("stored") is True for one in said):
        raise AnswerRefused(
            "its ranks keep artefacts (context.keep), which are not fetched from nodes: run it here"
        )
