"""A rank's end of the event channel."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest

from harness.events import Event
from harness.rank.emit import LINE_LIMIT, Emitter
from harness.world.control.ranks import RankChannel


class Ends:
    """An emitter, and the harness' ends of its pipes."""

    def __init__(self) -> None:
        self.events, events = os.pipe()
        gates, self.gates = os.pipe()
        self.emitter = Emitter(events_fd=events, gates_fd=gates, gates=("door",))
        self.theirs = [events, gates]

    def lines(self, count: int) -> list[bytes]:
        """Read until that many lines are there."""
        text = b""
        while text.count(b"\n") < count:
            text += os.read(self.events, 65536)
        return text.split(b"\n")[:-1]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Both ends, closed with the test."""
    found = Ends()
    yield found
    for descriptor in (found.events, found.gates, *found.theirs):
        os.close(descriptor)


def test_what_is_emitted_is_what_the_harness_reads(ends: Ends) -> None:
    """Text of any kind arrives as it was, in one line of ASCII."""
    values = {"text": "日本\n\x1b[31m\u202e\ud800", "list": [1, 2.5, None, True]}
    ends.emitter.emit("a.b", values)
    (line,) = ends.lines(1)
    assert line.isascii()
    (event,) = RankChannel(3, not_before=0).feed(line + b"\n")
    assert (event.name, event.rank, event.by, event.values) == ("a.b", 3, "rank", values)
    assert Event.parse(event.line()) == event


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("A", {}, "is not a valid event name"),
        ("a", {"x": float("nan")}, "must be JSON"),
        ("a", {"x": object()}, "must be JSON"),
        ("a", {"x": "y" * LINE_LIMIT}, "emit a digest"),
    ],
)
def test_what_the_harness_would_refuse_is_refused_here(
    ends: Ends, name: str, values: dict[str, object], words: str
) -> None:
    """A bad event is the subject's ValueError, and nothing of it is written."""
    with pytest.raises(ValueError, match=words):
        ends.emitter.emit(name, values)
    ends.emitter.emit("next", {})
    assert [json.loads(line)["event"] for line in ends.lines(1)] == ["next"]


def test_lines_of_threads_do_not_mix(ends: Ends) -> None:
    """Eight threads that emit long lines at once write whole lines."""
    threads = [
        threading.Thread(
            target=lambda n=n: [
                ends.emitter.emit("a", {"n": n, "x": "y" * 9000}) for _ in range(20)
            ]
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    found = [json.loads(line)["values"]["n"] for line in ends.lines(160)]
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(list(range(8)) * 20)


def test_a_closed_answer_opens_the_gate(ends: Ends) -> None:
    """A rank at a gate goes on when the harness is gone, to meet its end."""
    passed = threading.Event()
    thread = threading.Thread(target=lambda: (ends.emitter.emit("door", {}), passed.set()))
    thread.start()
    ends.lines(1)
    assert not passed.is_set()
    os.close(ends.gates)
    thread.join(10)
    assert passed.is_set()
    ends.gates = os.open(os.devnull, os.O_RDONLY)
