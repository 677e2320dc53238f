"""What comes of a machine when the run is over belongs to its world, only adds, and is bounded."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.events import Event
from harness.forms.digest import mark
from harness.history import MACHINE_COLLECTED, MACHINE_ENDED, MACHINES_JOINED
from harness.run.machines.collected import _messages, remember, remembered
from harness.world.machines.agent import HEAD
from harness.world.machines.late import Late, LateShare, replay
from harness.world.machines.roll import Hostile
from harness.world.machines.store import KEPT_AT_LEAST, Uses

AHEAD = 50_000 * 10**9
SECOND = 10**9
BEGIN = Event(
    ns=SECOND,
    by="harness",
    name="world.begin",
    values={
        "machines": {"called": ["a", "b"], "of": [0, 1]},
        "size": 2,
        "backend": "gloo",
        "harness_pid": 4,
    },
)
MARK = mark(BEGIN.line().encode())
JOINED = [
    {"machine": "a", "clock_ahead": 0, "within": 10},
    {"machine": "b", "clock_ahead": AHEAD, "within": 10},
]
STARTED = {"world": MARK, "machine": "b"}
TRIAL = (
    BEGIN,
    Event(ns=SECOND + 1, by="harness", name=MACHINES_JOINED, values={"machines": list(JOINED)}),
    Event(ns=SECOND + 2, by="server", rank=1, pid=7, name="rank.started", values=STARTED),
    Event(ns=2 * SECOND, by="rank", rank=1, pid=7, name="step", values={"step": 1}),
    Event(
        ns=9 * SECOND,
        by="harness",
        name="machine.lost",
        values={"machine": "b", "why": "no cable", "ranks": [1]},
    ),
    Event(
        ns=40 * SECOND,
        by="harness",
        name=MACHINE_COLLECTED,
        values={"machine": "b", "why": "", "run": "ab" * 8},
    ),
    Event(ns=41 * SECOND, by="harness", name="world.end"),
)
Message = tuple[dict[str, Any], bytes]


def told() -> list[Message]:
    """A journal: what was heard of it in time is its beginning."""

    def keeper(**said: Any) -> Message:
        return {"is": "keeper", "told": said}, b""

    def step(number: int) -> Message:
        line = json.dumps(
            {"event": "step", "ns": AHEAD + number * SECOND * 2, "values": {"step": number}}
        )
        return {"is": "events", "rank": 1}, line.encode() + b"\n"

    names = {"root": "/there", "places": [], "homes": ["/home/me"], "words": []}
    found: list[Message] = [
        ({"is": "begun", "names": names, "code": "/there/code"}, b""),
        keeper(**{"is": "started", "rank": 1, "pid": 7, "ns": AHEAD + SECOND + 2, "world": MARK}),
        step(1),
        step(2),
        ({"is": "log", "rank": 1}, b"printed\n"),
        ({"is": "ended", "why": "lease lost", "ranks": [1], "ns": AHEAD + 8 * SECOND}, b""),
        keeper(
            **{
                "is": "exited",
                "rank": 1,
                "pid": 7,
                "ns": AHEAD + 8 * SECOND,
                "code": None,
                "signal": "SIGKILL",
            }
        ),
        ({"is": "closed", "rank": 1, "what": "events"}, b""),
        ({"is": "file", "rank": 1, "name": "kept/a.npy", "odd": False}, b""),
        ({"is": "part", "rank": 1, "name": "kept/a.npy"}, b"123"),
        keeper(**{"is": "survivors", "ns": AHEAD + 8 * SECOND, "count": 0, "processes": []}),
        keeper(**{"is": "gone", "ns": AHEAD + 8 * SECOND}),
        ({"is": "left"}, b""),
    ]
    return [
        ({**message, "world": MARK, "n": number}, content)
        for number, (message, content) in enumerate(found, 1)
    ]


def late(messages: list[Message], scratch: Path) -> Late:
    return replay(LateShare(TRIAL, machine=1), messages, scratch=scratch)


def test_what_nobody_heard_is_what_came_late(tmp_path: Path) -> None:
    """Of a journal, the events that the trial has not, by the clock here.

    What was heard then is not told twice.
    """
    found = late(told(), tmp_path)
    assert [(event.name, event.rank, event.ns // SECOND) for event in found.events] == [
        ("step", 1, 4),
        (MACHINE_ENDED, None, 8),
        ("rank.exited", 1, 8),
    ]
    assert (found.why, found.messages, found.whole) == ("lease lost", 13, True)
    assert not late(told()[:-1], tmp_path / "cut").whole


def _set(index: int, **change: Any) -> Callable[[list[Message]], None]:
    def do(messages: list[Message]) -> None:
        messages[index] = ({**messages[index][0], **change}, messages[index][1])

    return do


def _keeper(index: int, **change: Any) -> Callable[[list[Message]], None]:
    def do(messages: list[Message]) -> None:
        message, content = messages[index]
        messages[index] = ({**message, "told": {**message["told"], **change}}, content)

    return do


def _said(index: int, content: bytes) -> Callable[[list[Message]], None]:
    def do(messages: list[Message]) -> None:
        messages[index] = messages[index][0], content

    return do


@pytest.mark.parametrize(
    "change",
    [
        _set(3, n=9),
        _set(3, n="4"),
        _set(0, world="another"),
        _set(3, rank=0),
        _set(3, rank=True),
        _set(3, rank=99),
        _set(3, **{"is": "reboot"}),
        _set(3, **{"is": None}),
        _set(5, ns=AHEAD + 90 * SECOND),
        _set(5, ns=None),
        _set(8, name="../../escaped"),
        _set(8, name="kept/" + "x" * 300),
        _set(9, name="kept/other"),
        _set(0, names={"root": "/x", "places": [["/home", "rm"]], "homes": [], "words": []}),
        _set(0, names={"root": "/x" * 9999, "places": [], "homes": [], "words": []}),
        _set(0, names=3),
        _keeper(1, pid=8),
        _keeper(1, world="another"),
        _keeper(6, ns=AHEAD - 90 * SECOND),
        _keeper(6, rank=0),
        _keeper(6, code=0),
        _keeper(10, count="none"),
        _said(2, b'{"event":"step","values":{"step":7}}\n'),
        _said(2, b""),
        lambda messages: messages.insert(0, messages[0]),
        list.clear,
    ],
)
def test_a_journal_that_the_machine_cannot_have_written(
    tmp_path: Path, change: Callable[[list[Message]], None]
) -> None:
    """Another world or rank, another time, a path that leads out, or other words than at the time:
    nothing is taken.
    """
    messages = told()
    change(messages)
    scratch = tmp_path / "scratch"
    with pytest.raises(Hostile):
        late(messages, scratch)
    assert {path.name for path in tmp_path.iterdir()} <= {"scratch"}


def test_a_rank_that_floods_after_the_fact(tmp_path: Path) -> None:
    """Its channel is bounded as it was: what is too much is said once, and what is not an event is
    told as that.
    """
    messages = told()
    messages[3] = messages[3][0], b"x" * 3_000_000 + b"\n"
    names = [event.name for event in late(messages, tmp_path).events]
    assert "channel.overflow" in names
    assert len(names) < 30


@pytest.mark.parametrize(
    "change",
    [{0: None}, {1: None}, {6: None}, {0: BEGIN._replace(values={**BEGIN.values, "size": 3})}],
)
def test_a_trial_that_was_not_over_machines(change: dict[int, Event | None]) -> None:
    """Events without a beginning, an end, or clocks, or of more ranks than are on machines, are
    joined with nothing.
    """
    events = [change.get(index, event) for index, event in enumerate(TRIAL)]
    with pytest.raises(Hostile):
        LateShare([event for event in events if event is not None], machine=1)


@pytest.mark.parametrize(
    "data",
    [
        b"short",
        HEAD.pack(2**31, 0),
        HEAD.pack(9, 0) + b"{}",
        HEAD.pack(2, 0) + b"[]",
        HEAD.pack(3, 0) + b"{a}",
    ],
)
def test_a_file_that_is_not_a_journal(tmp_path: Path, data: bytes) -> None:
    """What lies beside a run may come from anybody: it is read as far as it is messages."""
    (tmp_path / "journal").write_bytes(data)
    with pytest.raises(Hostile):
        list(_messages(tmp_path / "journal"))


def test_a_run_remembers_how_its_machines_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the cache of who ran it, since the evidence names no machine.

    What is not that is passed over.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember("ab" * 8, {"b": ["ssh", "--", "node-1"]})
    assert remembered("ab" * 8) == {"b": ["ssh", "--", "node-1"]}
    for path in tmp_path.rglob("*.json"):
        path.write_text("{")
    assert remembered("ab" * 8) == {}


def test_cleaning_takes_nothing_that_is_used(tmp_path: Path) -> None:
    """The oldest goes first, beyond the size or the age.

    What a process holds, or has just asked for, stays.
    """
    for age, name in enumerate(("new", "held", "mid", "old", ".half")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(bytes(100_000))
        then = time.time() - age * 86400 - KEPT_AT_LEAST - 60
        os.utime(tmp_path / name, (then, then))
    reading, writing = os.pipe()
    holder = os.fork()
    if holder == 0:  # pragma: no cover - another process
        Uses(tmp_path).hold("held")
        then = time.time() - 90 * 86400
        os.utime(tmp_path / ".used/held", (then, then))
        os.write(writing, b".")
        time.sleep(600)
    os.read(reading, 1)
    try:
        assert Uses(tmp_path).clean(older=2.5 * 86400)[0] == 2
        assert {path.name for path in tmp_path.iterdir()} == {"new", "held", "mid", ".used"}
        gone, freed = Uses(tmp_path).clean(most=220_000)
        assert (gone, freed > 100_000) == (1, True)
        assert {path.name for path in tmp_path.iterdir()} == {"new", "held", ".used"}
    finally:
        os.kill(holder, 9)
        os.waitpid(holder, 0)
        os.close(reading)
        os.close(writing)
    assert Uses(tmp_path).clean(most=0)[0] == 2
    (tmp_path / "new").mkdir()
    Uses(tmp_path).hold("new")
    assert Uses(tmp_path).clean(most=0)[0] == 0
