"""The proof of a hang that somebody edited: whoever signs it again is refused, and a run as it was
made is not.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.run.replay import RecordReplay
from harness.trust.verification import Refused
from tests.kit import forge
from tests.kit.commands import Ran

pytestmark = [pytest.mark.slow, pytest.mark.whole]

SCENARIO = """
schema: 1
id: waits
title: Every rank gets its word
question: Does every rank get the word that it waits for?
subject:
  entry: subject:wait
  candidate: {with: {said: true}}
  control: {with: {said: false}, must_fail: {hang: {function: hear}, ranks: every, within: 4s}}
matrix: {ranks: [2], backend: [none]}
trials: {candidate: 5, control: 3, accept: {failure_rate_below: 50%}}
checks:
  - {id: heard, kind: event, ranks: every, event: heard}
"""
SUBJECT = """
import threading


def wait(context, said):
    word = threading.Event()
    if said:
        word.set()
    hear(word)
    context.emit("heard")


def hear(word):
    word.wait()
"""
SLEEPS = """

import ctypes
import os
import struct
import time


def wait(context, said):
    if not said:
        hear()
    context.emit("heard")


def hear():
    WAY
"""
WAYS = {
    "time.sleep": "time.sleep(100000)",
    "nanosleep": (
        "ctypes.CDLL(None).syscall(35 if os.uname().machine == 'x86_64' else 101,"
        " struct.pack('qq', 100000, 0), None)"
    ),
}
Edit = Callable[[list[Any]], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the results of one run are kept, to be copied."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def evidence(
    made: Path, scenario: Callable[..., Path], rankproof: Callable[..., Ran]
) -> Iterator[Path]:
    """A copy of the results of one run, made once."""
    kept = made / "run"
    if not kept.exists():
        ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO, "subject.py": SUBJECT})))
        assert ran.code == 0, ran.out + ran.err
        assert (
            "one trial stood still for 4 s, two for 2 s each"
            in (ran.folder / "report.md").read_text()
        )
        shutil.copytree(ran.folder, kept)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield Path(folder)


def refusal(folder: Path) -> str:
    """Why the evidence of a folder is refused, whoever signs it; empty where it is not."""
    try:
        return (
            RecordReplay().judge(lambda name: (folder / name).read_bytes(), [*forge.names(folder)])
            or ""
        )
    except Refused as error:
        return str(error)


def events_of(folder: Path, arm: str) -> Path:
    (found,) = folder.glob(f"evidence/*/{arm}/events.jsonl")
    return found


def edited(folder: Path, edit: Edit, *, arm: str = "control-00000") -> str:
    """Why an edit of the events of a trial is refused."""
    path = events_of(folder, arm)
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    before = json.dumps(events)
    edit(events)
    assert json.dumps(events) != before
    path.write_bytes(
        b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in events)
    )
    return refusal(folder)


def named(events: list[Any], name: str) -> Any:
    return next(event for event in events if event["name"] == name)


def still(**values: Any) -> Edit:
    """Put values into the proof."""

    def edit(events: list[Any]) -> None:
        named(events, "world.still")["values"].update(values)

    return edit


def without(name: str, **where: Any) -> Edit:
    """Leave events out."""

    def edit(events: list[Any]) -> None:
        events[:] = [
            one
            for one in events
            if one["name"] != name
            or any(one.get(key, one["values"].get(key)) != value for key, value in where.items())
        ]

    return edit


def frames(**values: Any) -> Edit:
    """Put values into the innermost frame of the subject, in every stack of rank 1."""

    def edit(events: list[Any]) -> None:
        for event in events:
            if event["name"] == "rank.stack" and event["rank"] == 1:
                for thread in event["values"]["threads"]:
                    next(one for one in thread["frames"] if one["subject"]).update(values)

    return edit


def unasked(events: list[Any]) -> None:
    """Rank 1 was never asked, and its stacks are not there."""
    next(one for one in events if one["name"] == "rank.state" and one["rank"] == 1)["values"][
        "asked"
    ] = False
    without("rank.stack", rank=1)(events)


def empty(events: list[Any]) -> None:
    for event in events:
        if event["name"] == "rank.stack" and event["rank"] == 1:
            event["values"]["threads"] = []


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_sleeps_is_not_proved_to_hang(
    way: str, scenario: Callable[..., Path], rankproof: Callable[..., Ran]
) -> None:
    """Longer than the deadline, by either call: the cell is INCONCLUSIVE with the doubt in words,
    and the run of an honest author is accepted.
    """
    subject = SLEEPS.replace("WAY", WAYS[way])
    ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO, "subject.py": subject})))
    assert ran.code == 2, ran.out + ran.err
    assert "sleeps in" in (ran.folder / "report.md").read_text(), ran.out + ran.err
    assert refusal(ran.folder) == ""


@pytest.mark.long
def test_ranks_in_a_proof_are_numbers(evidence: Path) -> None:
    """A list in their place is a contradiction like another, and no bug of ours."""
    waits = {"0": "futex", "1": "futex", "[1]": "futex"}
    assert "which are not numbers" in edited(evidence, still(ranks=[0, 1, [1]], waits=waits))


def test_a_run_as_it_was_made_is_not_refused(evidence: Path) -> None:
    """Its proofs hang together with the scenario, the stacks and the code."""
    assert refusal(evidence) == ""


FORGED: dict[str, tuple[Edit, str]] = {
    "spins": (still(spins=True), "spins: True"),
    "no spins": (still(spins=None), "spins: None"),
    "polls": (still(polls=["hear"]), "polls: ['hear']"),
    "watched": (still(watched="yes"), "whether the trial was watched"),
    "a timed wait": (still(ends={"0": None, "1": -3.0}), "ended before"),
    "a wait that ends now": (still(ends={"0": 0.0, "1": None}), "ended before"),
    "no end": (still(ends={"0": "never", "1": None}), "ended before"),
    "a sleep": (still(waits={"0": "nanosleep", "1": "futex"}), "waited in nanosleep"),
    "an unknown call": (still(waits={"0": "system call 219", "1": "futex"}), "system call 219"),
    "nothing": (still(waits={"0": "none", "1": "futex"}), "did not wait in any call"),
    "a wait left out": (still(waits={"0": "futex"}), "which call each rank waited in"),
    "a negative time": (still(seconds=-4.0), "seconds: -4.0"),
    "a negative beginning": (still(after=-0.1), "after: -0.1"),
    "no number": (still(seconds="4"), "seconds: 4"),
    "a truth": (still(after=True), "after: True"),
    "more than there was": (still(seconds=400.0), "had run for"),
    "negative ticks": (still(spinning={"0": {"user": -1, "system": 2}}), "was busy for"),
    "a rank left out": (still(ranks=[0], waits={"0": "futex"}, ends={"0": None}), "had not ended"),
    "stacks left out": (without("rank.stack", rank=1), "but they are missing"),
    "one of two stacks": (without("rank.stack", rank=1, sample=2), "but they are missing"),
    "the question left out": (
        without("rank.state", rank=1),
        "the stacks of rank 1 were never requested",
    ),
    "not asked": (unasked, "were not requested, but a hang was proved"),
    "empty stacks": (empty, "but they are empty"),
    "a line beyond the end": (frames(line=4000), "the file has"),
    "line 0": (frames(line=0), "the file has"),
    "another line": (frames(line=6), "the function is not at that line"),
    "another function": (frames(function="speak"), "the function is not at that line"),
}


@pytest.mark.parametrize("what", FORGED)
def test_an_edited_proof_is_refused(evidence: Path, what: str) -> None:
    """Whatever the harness would not have written is a contradiction, by the name of the trial and
    in words.
    """
    edit, words = FORGED[what]
    found = edited(evidence, edit)
    assert words in found
    assert "control-00000" in found


@pytest.mark.parametrize("what", ["watch", "all watches", "moved", "a candidate"])
def test_a_proof_that_is_of_no_hang_is_judged_otherwise_or_refused(
    evidence: Path, what: str
) -> None:
    """Without a trial that was watched, with one that moved, or in a candidate, the record does not
    follow any more.
    """
    if what == "watch":
        found = edited(evidence, still(seconds=2.1, watched=False))
    elif what == "all watches":
        found = edited(evidence, without("world.still"))
    elif what == "moved":

        def move(events: list[Any]) -> None:
            named(events, "world.still").update(
                name="world.unproved", values={"code": "doubtful", "why": "rank 0 has set a timer"}
            )

        found = edited(evidence, move, arm="control-00001")
    else:
        proof = named(
            [
                json.loads(one)
                for one in events_of(evidence, "control-00000").read_text().splitlines()
            ],
            "world.still",
        )
        found = edited(
            evidence,
            lambda events: events.insert(-1, {**proof, "ns": events[-1]["ns"]}),
            arm="candidate-00000",
        )
    assert found
