"""What a machine may say at control is bounded: who says something else is lost, and nothing of it
is made right.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.rank.lifecycle import STACKS
from harness.run.machines.readiness import facts_of
from harness.world.control.names import Elsewhere
from harness.world.machines import agent, store
from harness.world.machines.agent_channel import Unreachable
from harness.world.machines.fleet import Reached
from harness.world.machines.heartbeat import MOST_WAITING, MachineLine
from harness.world.machines.machine_server import MachinePool
from harness.world.machines.relay import Relay
from harness.world.machines.roll import HandedOver, Hostile, Placed, Roll
from harness.world.machines.share import MachineShare

MARK = "0123456789abcdef"
PLACED = Placed(of=(0, 1, 0), called=("a", "b"), reached=("10.0.0.1", "10.0.0.2"))
STARTED = {"is": "started", "rank": 0, "pid": 7, "ns": 1, "world": MARK}
EXITED = {"is": "exited", "rank": 0, "pid": 7, "ns": 2, "code": 0, "signal": None}


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ([], {**STARTED, "rank": 1}),
        ([], {**STARTED, "rank": "0"}),
        ([], {**STARTED, "rank": True}),
        ([], {**STARTED, "rank": 99}),
        ([], {**STARTED, "pid": 0}),
        ([], {**STARTED, "world": "another"}),
        ([STARTED], STARTED),
        ([], EXITED),
        ([STARTED], {**EXITED, "pid": 8}),
        ([STARTED, EXITED], EXITED),
        ([STARTED, EXITED], {**STARTED, "pid": 9}),
        ([STARTED], {**EXITED, "code": None}),
        ([STARTED], {**EXITED, "signal": "SIGKILL"}),
        ([STARTED], {**EXITED, "code": "0"}),
        ([], {"is": "signalled", "ns": 1, "signal": 9, "ranks": [1]}),
        ([], {"is": "signalled", "ns": 1, "signal": "9", "ranks": []}),
        ([], {"is": "survivors", "ns": 1, "count": "0", "processes": []}),
        ([], {"is": "gone"}),
        ([], {"is": "gone", "ns": "1"}),
        ([], {"is": "hosts", "ns": 1}),
        ([], {"is": "lost", "ns": 1, "why": ""}),
        ([], ["gone"]),
        ([], {"is": "survivors", "ns": 1, "count": 1, "processes": ["x" * 300_000]}),
    ],
)
def test_a_keeper_that_says_what_it_cannot_know(before: list[dict[str, Any]], told: object) -> None:
    """A rank of another machine, a second start or end, an end that is none, what is too long: each
    is refused.
    """
    roll = Roll(PLACED, mark=MARK)
    for one in before:
        roll.check(0, dict(one))
    with pytest.raises(Hostile):
        roll.check(0, told)


def test_a_keeper_that_says_what_happened() -> None:
    """The same in their order, on the machine that has the rank, are taken.

    Who is left is known.
    """
    roll = Roll(PLACED, mark=MARK)
    assert roll.check(0, dict(STARTED))["machine"] == "a"
    assert roll.left(0) == [0, 2]
    roll.check(0, dict(EXITED))
    assert roll.left(0) == [2]


@pytest.mark.parametrize(
    "name",
    [
        "../rank-1/kept/x.npy",
        "kept/../../x",
        "kept/..",
        "kept/a/b.npy",
        "/etc/passwd",
        "spec.json",
        "kept/",
        "",
    ],
)
def test_a_file_that_no_rank_leaves(tmp_path: Path, name: str) -> None:
    """A name that leads out of a rank's folder, or is none of those that ranks leave, is
    refused.
    """
    left = _left(tmp_path)
    with pytest.raises(Hostile):
        left.begin(0, name, odd=False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "rank-0"]


def test_files_that_come_twice_or_unannounced(tmp_path: Path) -> None:
    """A file begins once, and only then grows.

    What is not a file is named, and nothing is written through it.
    """
    left = _left(tmp_path)
    left.begin(0, "kept/a.npy", odd=False)
    left.add(0, "kept/a.npy", b"12")
    left.add(0, "kept/a.npy", b"3")
    assert (tmp_path / "rank-0/kept/a.npy").read_bytes() == b"123"
    left.begin(0, "kept/link", odd=True)
    for name in ("kept/b.npy", "kept/link"):
        with pytest.raises(Hostile):
            left.add(0, name, b"x")
    with pytest.raises(Hostile):
        left.begin(0, "kept/a.npy", odd=False)
    left.stand(0, b"where it stood")
    left.begin(0, STACKS, odd=False)
    with pytest.raises(Hostile):
        left.stand(0, b"and again")


@pytest.mark.parametrize(
    "change",
    [
        {"homes": ["/"]},
        {"places": [["/home", "rm -rf"]]},
        {"root": 3},
        {"words": [["x" * 5000, "<host>"]]},
        {"homes": ["/a"] * 300},
    ],
)
def test_names_that_would_hide_evidence(change: Mapping[str, Any]) -> None:
    """A machine may name its folders and itself, within bounds, and choose nothing that stands for
    them.
    """
    told = {
        "root": "/there",
        "places": [["/there/env", ""]],
        "homes": ["/home/me"],
        "words": [["node-1", "<host>"]],
    }
    found = Elsewhere.from_message(told, code="/there/code")
    assert found.shorten("at /home/me on node-1, /there/env/x.py") == "at ~ on <host>, x.py"
    with pytest.raises((ValueError, TypeError)):
        Elsewhere.from_message({**told, **change}, code="/there/code")


def test_trees_are_kept_by_their_digest(tmp_path: Path) -> None:
    """A tree is there once it is whole, and as it was named.

    Another one is not, nor one that was changed since.
    """
    given = tmp_path / "given"
    (given / "below").mkdir(parents=True)
    (given / "below/program").write_text("#!")
    (given / "below/program").chmod(0o755)
    (given / "empty").touch()
    files = store.files_of(given)
    digest = store.digest_of(files)
    trees = store.TreeStore(tmp_path / "store")
    assert not trees.has(digest)
    for parts, content in store.pieces(files):
        trees.put(digest, parts, content)
    trees.keep(digest)
    assert trees.has(digest)
    assert (trees.place(digest) / "below/program").stat().st_mode & 0o100
    (trees.place(digest) / "empty").write_text("not any more")
    assert not trees.has(digest)
    trees.put(digest, [["empty", False, 0, 1]], b"x")
    with pytest.raises(store.BadTree):
        trees.keep(digest)
    for name in ("../out", "/out", "a/../../out"):
        with pytest.raises(store.BadTree):
            trees.put(digest, [["begun", False, 0, 1], [name, False, 0, 1]], b"xx")
    assert [one.name for one in (tmp_path / "store").iterdir()] == [
        ".used"
    ]  # of what did not come whole nothing is left
    with pytest.raises(store.BadTree):
        trees.place("../" + digest[3:])


@dataclass
class Here:
    """All that a relay knows of a line: which machine's it is, and its clock."""

    index: int
    ahead: int = 0
    within: int = 1_000
    hears: object = None
    loses: object = None
    lost: str = ""
    sent: list[Mapping[str, Any]] = field(default_factory=list)

    def send(self, message: Mapping[str, Any], _content: bytes = b"") -> None:
        self.sent.append(message)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"n": 2, "is": "events", "rank": 0}, "out of sequence"),
        ({"is": "events", "rank": 0}, "out of sequence"),
        ({"n": 1, "is": "events", "rank": 1}, "not placed on it"),
        ({"n": 1, "is": "events"}, "an unknown message"),
        ({"n": 1, "is": "log", "rank": [0]}, "not placed on it"),
        ({"n": 1, "is": "closed", "rank": 0, "what": "gates"}, "not open"),
        ({"n": 1, "is": "reboot"}, "an unknown message"),
        (
            {"n": 1, "is": "keeper", "told": {**STARTED, "ns": time.monotonic_ns() + 90 * 10**9}},
            "clock changed",
        ),
        (
            {"n": 1, "is": "keeper", "told": {**STARTED, "ns": time.monotonic_ns() - 90 * 10**9}},
            "clock changed",
        ),
        ({"n": 1, "is": "file", "rank": 0, "name": "../../escaped"}, "that no rank writes"),
    ],
)
def test_a_message_that_no_node_sends(tmp_path: Path, message: dict[str, Any], words: str) -> None:
    """Out of order, of another machine's rank, of another time or of no known kind: refused, and
    nothing is written.
    """
    with _relaying(tmp_path) as (relay, lines, pipes, _):
        with pytest.raises(Hostile, match=words):
            relay.hear(lines[0], {"world": MARK, **message}, b"forged\n")
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
            with pytest.raises(BlockingIOError):
                os.read(descriptor, 1)
    assert not (tmp_path.parent / "escaped").exists()


def test_a_machine_that_never_stops_talking(tmp_path: Path) -> None:
    """What control keeps of a machine's words has an end, of whatever kind.

    What ranks write is bounded elsewhere.
    """
    states = [
        {"world": MARK, "n": number, "is": "state", "rank": 0, "state": "S" * 200_000}
        for number in range(1, 99)
    ]
    with _relaying(tmp_path) as (relay, lines, _, _own):

        def say_all() -> None:
            for state in states:
                relay.hear(lines[0], state, b"")

        with pytest.raises(Hostile, match="more data than a world's report can contain"):
            say_all()
    roll = Roll(PLACED, mark=MARK)
    for _ in range(200):
        roll.weigh(0, {"is": "log", "why": "x" * 200_000})


def test_a_world_is_gone_when_both_shares_are(tmp_path: Path) -> None:
    """An order to all is answered once, when all have done it; survivors are added up.

    One end is told.
    """
    with _relaying(tmp_path) as (relay, lines, _, own):
        now = time.monotonic_ns()
        own.sendall(b'{"rank": null, "signal": 9}\n')
        while not all(line.sent for line in lines):
            time.sleep(0.001)
        for line, ranks in ((lines[0], [0, 2]), (lines[1], [1])):
            told = [
                {"is": "signalled", "signal": 9, "ranks": ranks},
                {"is": "survivors", "count": 1, "processes": []},
            ]
            for number, one in enumerate([*told, {"is": "gone"}], start=1):
                relay.hear(
                    line,
                    {"world": MARK, "n": number, "is": "keeper", "told": {"ns": now, **one}},
                    b"",
                )
        said = [json.loads(line) for line in own.makefile("rb")]
    assert [one["is"] for one in said] == ["signalled", "survivors", "gone"]
    assert (sorted(said[0]["ranks"]), said[1]["count"]) == ([0, 1, 2], 2)


def test_answers_that_nobody_asked_for_are_not_kept() -> None:
    """A machine that answers without end is lost before it takes memory here."""
    line = MachineLine.__new__(MachineLine)
    line._answers = queue.SimpleQueue()
    for number in range(MOST_WAITING):
        line._take({"given": number}, b"")
    with pytest.raises(ValueError, match="was not made"):
        line._take({"given": MOST_WAITING}, b"")


def test_numbers_that_no_machine_has() -> None:
    """A clock or a size that nobody could count with is refused where it is heard, and ends nothing
    later.
    """
    line = MachineLine.__new__(MachineLine)
    line._exchanges, line._walls = [], []
    beat = {"is": "beat", "echo": time.monotonic_ns(), "ns": 1, "wall": 10**400}
    line._take(beat, b"")
    assert line.offset() == {"offset": 0.0, "offset_within": 0.0}
    with pytest.raises(ValueError, match="clock"):
        line._take({**beat, "ns": 10**400}, b"")
    facts = agent.facts()
    assert facts_of(facts)["memory"] == facts["memory"]
    with pytest.raises(Unreachable):
        facts_of({**facts, "memory": 10**400})


class Keeps:
    """A line to a machine that has some trees, as far as a fleet asks it for them."""

    def __init__(self) -> None:
        self.lost, self.there = "", set[str]()

    def give(self, digest: str, _files: object, *, within: float) -> bool:
        del within
        lacks = digest not in self.there
        self.there.add(digest)
        return lacks

    def ask(self, _what: str, *, trees: list[str], within: float) -> dict[str, Any]:
        del within
        if self.lost:
            raise Unreachable(self.lost)
        return {"lacks": [digest for digest in trees if digest not in self.there]}

    def close(self) -> None:
        self.lost = "closed"


@pytest.mark.parametrize("change", ["", "changed", "changed and mended", "gone at the end"])
def test_what_ranks_change_on_a_machine_ends_the_run(tmp_path: Path, change: str) -> None:
    """Also where a world failed meanwhile, and the machine, reached anew, was given it again."""
    (tmp_path / "input").write_text("as it was")
    reached = Reached(
        name="a", called="a", command=["false"], address="", slots=1, demand=lambda _told: None
    )
    fleet, line = MachinePool([reached], lease=1.0, back_within=0.0), Keeps()
    fleet._lines[0], fleet._ready[0] = line, {}  # type: ignore[assignment]
    digest = fleet.give_tree(tmp_path / "input")
    assert fleet.changed() == []
    if change.startswith("changed"):
        line.there.clear()
    if change == "changed and mended":
        fleet._ready[0] = {}  # as after a world that failed
        fleet.give_tree(tmp_path / "input")
        assert digest in line.there
    if change == "gone at the end":
        line.lost = "no cable"
    assert fleet.changed() == (["a"] if change else [])


def test_a_pipe_is_closed_only_when_its_writer_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a machine says while its world is left goes nowhere: not into the file that has the
    pipe's number next.
    """
    seen: list[object] = []

    class SeenMachine:
        """The module `os`, with a look at what is written to and closed."""

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        @staticmethod
        def write(descriptor: int, content: memoryview) -> int:
            try:
                return os.write(descriptor, content)
            except OSError:
                seen.append("the writer is done")
                raise

        @staticmethod
        def close(descriptor: int) -> None:
            seen.append(descriptor)
            os.close(descriptor)

    with _relaying(tmp_path) as (relay, lines, reads, _):
        monkeypatch.setattr("harness.world.machines.relay.os", SeenMachine())
        pipe = relay._pipes[0][0]
        message = {"world": MARK, "n": 1, "is": "events", "rank": 0}
        writer = threading.Thread(target=relay.hear, args=(lines[0], message, bytes(2**20)))
        writer.start()
        assert select.select([reads[0]], [], [], 10)[0]
        null = os.open(os.devnull, os.O_RDONLY)
        # As the world does before it closes its relay; here, in the middle of that.
        leaves = threading.Timer(0.3, os.dup2, (null, reads[0]))
        leaves.start()
    writer.join()
    leaves.join()
    os.close(null)
    assert seen.index("the writer is done") < seen.index(pipe)


def test_a_share_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    """The world's folder goes also where what its ranks need is not there."""
    asked = {"ranks": [0], "world": MARK, "code": "not a digest"}
    server: Any = SimpleNamespace(room=None, scratch=tmp_path)
    parts: dict[str, Any] = dict.fromkeys(("inbox", "outbox", "journal"))
    with pytest.raises(store.BadTree):
        MachineShare(asked, server=server, store=store.TreeStore(tmp_path / "store"), **parts).run()
    assert [*tmp_path.iterdir()] == []


def test_who_reconnects_for_a_world_that_was_left_keeps_no_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next world has a line of its own, which must not be replaced, and the machine is not
    given up.
    """
    reached = Reached(
        name="a", called="a", command=["false"], address="", slots=1, demand=lambda _facts: None
    )
    fleet = MachinePool([reached], lease=1.0, back_within=5.0)
    closed = []

    def connect(_index: int, *, within: float) -> object:
        del within
        fleet.leave()
        return SimpleNamespace(close=lambda: closed.append("the line"))

    monkeypatch.setattr(fleet, "_connect", connect)
    assert fleet.reconnect(0) is None
    assert (closed, fleet._lines, fleet.has_lost) == (["the line"], {}, False)


def test_a_lost_machine_is_not_beaten() -> None:
    """The number of its closed descriptor may be another machine's by then."""
    line = MachineLine.__new__(MachineLine)
    reads, line._writes = os.pipe()
    line.lost = "the run is over"
    line._lease = line._heard = line._took = time.monotonic()
    line._writing = threading.Lock()
    line._rest = b""
    line.beat()
    os.close(line._writes)
    assert os.read(reads, 1) == b""
    os.close(reads)


@contextlib.contextmanager
def _relaying(folder: Path) -> Iterator[tuple[Relay, list[Any], list[int], socket.socket]]:
    own, theirs = socket.socketpair()
    ends = [os.pipe() for _ in range(9)]
    # Of gates the relay has the end that is read; of events and logs, which are written to, the
    # other.
    handed = [
        theirs.fileno(),
        *(read if place % 3 == 1 else write for place, (read, write) in enumerate(ends)),
    ]
    for rank in range(3):
        (folder / f"rank-{rank}/kept").mkdir(parents=True)
    lines: list[Any] = [Here(0), Here(1)]
    relay = Relay(
        dict(enumerate(lines)),
        PLACED,
        mark=MARK,
        begun=time.monotonic_ns(),
        descriptors=handed,
        scratch=folder,
        reconnect=lambda _index: None,
    )
    try:
        yield relay, lines, [read for place, (read, _) in enumerate(ends) if place % 3 != 1], own
    finally:
        relay.close()
        own.close()
        theirs.close()
        for pair in ends:
            for descriptor in pair:
                os.close(descriptor)


def _left(folder: Path) -> HandedOver:
    (folder / "rank-0/kept").mkdir(parents=True)
    return HandedOver(folder, size=1)
