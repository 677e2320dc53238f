"""What a signer can do to a run's folder: operators, each of which changes one thing, with the
words that refuse it.

`words` is empty where the result is consistent with itself: then nothing can tell it from a run.
What an operator writes is as good as it can be: what follows from its change is mended where the
operator is about something else.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit import forge

DIFFERENT = "JUDGED DIFFERENTLY"
SCENARIO = """
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
subject:
  entry: subject:meet
  candidate: {with: {broken: false}}
  control:
    file: old.py
    with: {broken: true}
    must_fail: {check: met, ranks: nonzero, error: AssertionError, source: assert thing}
inputs: {words: {path: words.txt}}
matrix: {ranks: [2], backend: [none], flavour: [plain, salted]}
world: {deadline: 30s, start: fresh}
seed: "7"
trials: {candidate: 4, control: 3, accept: {failure_rate_below: 45%}}
checks:
  - {id: met, kind: event, ranks: every, event: met}
  - {id: thing, kind: equal, ranks: every, value: met.thing, to: thing}
  - {id: ended, kind: exit, ranks: every, code: 0}
  - {id: nobody-left, kind: no-survivors}
"""
SUBJECT = """
def meet(context, *, broken, flavour):
    print(flavour, flush=True)
    thing = None if broken and context.rank else "thing"
    assert thing
    context.emit("met", thing=thing)
"""
OLD = f"# before the fix\n{SUBJECT}"
CELLS = ("ranks=2,backend=none,flavour=plain", "ranks=2,backend=none,flavour=salted")
SECOND = 1_000_000_000
Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Copy:
    """A copy of the run, and the dice that say which trial is meant where any will do."""

    folder: Path
    dice: random.Random

    def trials(self, cell: int, arm: str) -> list[Path]:
        """The events of each trial of a cell's arm."""
        flavour = CELLS[cell].rpartition("=")[2]
        return sorted(self.folder.glob(f"evidence/*-{flavour}/{arm}-*/events.jsonl"))

    @property
    def every(self) -> list[Path]:
        """The events of every trial."""
        return sorted(self.folder.glob("evidence/*/*/events.jsonl"))

    def any(self, arm: str = "candidate") -> Path:
        """One trial."""
        return self.dice.choice(sorted(self.folder.glob(f"evidence/*/{arm}-*/events.jsonl")))

    def two(self) -> tuple[Path, Path]:
        """Two trials of the candidate."""
        one, other = self.dice.sample(
            sorted(self.folder.glob("evidence/*/candidate-*/events.jsonl")), 2
        )
        return one, other

    @property
    def facts(self) -> Any:
        return json.loads((self.folder / forge.PATH).read_text())

    def remove(self, cell: int) -> None:
        """Remove the trials of a cell."""
        for path in self.trials(cell, "candidate")[:1]:
            shutil.rmtree(path.parents[1])

    def scenario(self, old: str, new: str) -> None:
        """Change the scenario's file."""
        path = self.folder / forge.SCENARIO_PATH
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


Change = Callable[[Copy], None]


@dataclass(frozen=True)
class Operator:
    """A change, by its name, and the words that it is refused by when it is signed again."""

    change: Change
    words: frozenset[str]
    removes: bool = False
    on_record: bool = False

    @property
    def name(self) -> str:
        return self.change.__name__

    def __repr__(self) -> str:
        return self.name


OPERATORS: list[Operator] = []


def refused(
    *words: str, removes: bool = False, on_record: bool = False
) -> Callable[[Change], Change]:
    """Register an operator, refused by one of these words.

    Without any it makes what nothing can tell from a run.
    """

    def register(change: Change) -> Change:
        OPERATORS.append(Operator(change, frozenset(words), removes, on_record))
        return change

    return register


def read(path: Path) -> Events:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, events: Events, *, mended: bool = True) -> None:
    """Write a trial; `mended` lets each rank say that it is of this one."""
    lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode()
    path.write_bytes(forge.marked(lines) if mended else lines)


def shifted(events: Events, by: int) -> Events:
    return [{**event, "ns": event["ns"] + by} for event in events]


def other_pids(events: Events, by: int = 1000) -> Events:
    return [{**event, "pid": event["pid"] and event["pid"] + by} for event in events]


def jittered(events: Events, dice: random.Random) -> Events:
    """The same, every moment a little later, in the same order: what no clock would have said is
    still possible.
    """
    moved, later = [], 0
    for event in events:
        later += dice.randrange(1, 2000)
        moved.append({**event, "ns": event["ns"] + later})
    return moved


def put_over(path: Path, events: Events, *, mended: bool = True) -> None:
    """Put another trial's events below the first line of this one."""
    write(path, [{**read(path)[0], "ns": events[0]["ns"]}, *events[1:]], mended=mended)


def end_of(paths: Iterable[Path]) -> int:
    """The last moment of some trials."""
    return max(read(path)[-1]["ns"] for path in paths)
