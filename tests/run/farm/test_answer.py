"""What a node may send of a trial, and what it may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.events import Event
from harness.forms.digest import sha256
from harness.forms.strict_json import JSON
from harness.run.farm import node
from harness.run.farm.node import AnswerRefused, Node, pack, take
from harness.world.control.capture import Capture
from harness.world.machines.agent import HEAD, frame

ABOUT: dict[str, JSON] = {
    "cell": "ranks=2",
    "arm": "candidate",
    "trial": 3,
    "seed": "77",
    "node": 1,
}
LIST = b'{"thing": "1.0"}\n'


def left(**about: JSON) -> Capture:
    """What a world of two ranks left."""
    loaded = {"packages": sha256(LIST)}
    events = (
        Event(ns=1, by="harness", name="world.begin", values={**ABOUT, **about}),
        Event(ns=2, by="rank", rank=0, pid=9, name="subject.loaded", values=loaded),
        Event(ns=3, by="harness", name="world.end"),
    )
    return Capture(
        events=events, logs={0: b"said"}, stacks={1: b"stood"}, loaded={sha256(LIST): LIST}
    )


def taken(
    capture: Capture, change: Callable[[list[list[JSON]], bytes], tuple[object, bytes]]
) -> Capture:
    """What control takes of what a node packed and then changed."""
    listing, content = pack(capture, known=())
    return take(*change(listing, content), about=ABOUT, size=2, known={})


def test_what_a_world_left_arrives() -> None:
    """What control takes is what the world left, and a list of loaded files is sent once for each
    node.
    """
    capture = left()
    known: dict[str, bytes] = {}
    for _ in range(2):
        listing, content = pack(capture, known=known)
        assert take(listing, content, about=ABOUT, size=2, known=known) == capture
    assert [name for name, _ in listing] == ["events.jsonl", "rank-0.log", "rank-1.stacks.txt"]


def test_what_a_node_has_kept_at_control_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of loaded files stay in memory for the whole run: together they are no more than a
    limit.
    """
    listing, content = pack(left(), known=())
    monkeypatch.setattr(node, "MOST", len(LIST) + 5)
    take(listing, content, about=ABOUT, size=2, known={"a": b"12345"})
    with pytest.raises(AnswerRefused, match="total more than 22 bytes"):
        take(listing, content, about=ABOUT, size=2, known={"a": b"123456"})


LIES: dict[str, tuple[Callable[[list[list[JSON]], bytes], tuple[object, bytes]], str]] = {
    "path": (
        lambda files, all_: ([*files, ["../../.ssh/authorized_keys", 0]], all_),
        "a file that no trial writes",
    ),
    "rank": (
        lambda files, all_: ([*files, ["rank-2.log", 0]], all_),
        "no trial writes: rank-2.log",
    ),
    "twice": (lambda files, all_: ([*files, files[1]], all_ + b"said"), "it sent rank-0.log twice"),
    "giant": (
        lambda files, all_: ([*files, ["rank-1.log", 2**20]], all_ + bytes(2**20)),
        "at most 524288 are accepted",
    ),
    "more": (lambda files, all_: (files, all_ + b"x"), "but its list of files adds up to"),
    "less": (lambda files, all_: (files, all_[:-1]), "but its list of files adds up to"),
    "negative": (
        lambda files, all_: ([*files, ["rank-1.log", -1]], all_),
        "its list of files is malformed",
    ),
    "no list": (lambda _files, _all: ("files", b""), "no events.jsonl"),
    "list of another digest": (
        lambda files, all_: ([*files, [f"loaded/{'0' * 64}", 1]], all_ + b"x"),
        "does not match its digest",
    ),
    "no list of what was loaded": (
        lambda files, all_: (files[:-1], all_[: -len(LIST)]),
        "did not send the list of the files that its ranks loaded",
    ),
    "cut events": (
        lambda _files, all_: ([["events.jsonl", 20]], all_[:20]),
        "its events cannot be read",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_not_a_trial_is_refused(lie: str) -> None:
    """Names of a closed list, sizes within bounds, and bytes that the list accounts for: else it is
    refused.
    """
    change, why = LIES[lie]
    with pytest.raises(AnswerRefused, match=why):
        taken(left(), change)


@pytest.mark.parametrize("key", sorted(ABOUT))
def test_another_trial_is_refused(key: str) -> None:
    """The results of another trial, cell, arm, seed or node are refused."""
    with pytest.raises(AnswerRefused, match=f"it did not send the requested trial: its {key} is"):
        taken(left(**{key: "other"}), lambda files, content: (files, content))


def test_artefacts_are_refused() -> None:
    """What ranks keep is not fetched: the run says so, and does not pass over it."""
    capture = left()
    found = Event(
        ns=2,
        by="harness",
        rank=0,
        name="artefact.found",
        values={"artefact": "sum", "stored": True},
    )
    events = (*capture.events[:2], found, capture.events[2])
    with pytest.raises(AnswerRefused, match="not fetched from nodes"):
        taken(
            Capture(events=events, logs={}, stacks={}, loaded=capture.loaded),
            lambda files, all_: (files, all_),
        )


class Sends:
    """A relay of which the first question is answered by these bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = [content]
        self._asked = False

    def read(self, wait: float) -> bytes | None:
        del wait
        return b"" if not self._asked else self._content.pop() if self._content else None

    def write(self, content: bytes) -> None:
        self._asked = bool(content)

    def said(self) -> str:
        return "its last output"

    def kill(self) -> None:
        """Nothing is there."""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (frame({"order": 1}) + frame({"order": 1}), "answered a request twice"),
        (frame({"order": 2}), "answered a request that was not made"),
        (frame({"order": True}), "answered a request that was not made"),
        (HEAD.pack(2, 2**31) + b"{}", "at most"),
        (HEAD.pack(2**31, 0), "at most"),
        (HEAD.pack(2, 0) + b"{x", "did not answer in JSON"),
        (HEAD.pack(2, 0) + b"[]", "its response is not a JSON object"),
        (b"", "the node is still up; its last output: its last output"),
    ],
)
def test_a_node_that_does_not_speak_as_ours(content: bytes, why: str) -> None:
    """Whatever else a node sends ends it, with the reason, before it takes more memory than one
    answer may.
    """
    node = Node(Sends(content), number=0, name="")
    first = node.ask("facts")
    assert node.await_end(10.0)
    assert why in str(node.ended)
    assert first.done()
    assert node.ask("facts").exception() is node.ended
