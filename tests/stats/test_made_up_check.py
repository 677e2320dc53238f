"""A check that keeps something over all trials of a cell, and that nobody here knew of.

It is one file, found by its entry point, with no edit anywhere else.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import plugins
from harness.checks import KINDS, Check
from harness.events import Event
from harness.plugins import PluginFailed
from harness.reason import VerdictCode
from harness.registry import Registry
from harness.scenario import Scenario, cells, parse_scenario
from harness.stats.outcome import CellFacts
from harness.stats.verdict import ArmCode, Judgement, judge
from tests.kit.histories import healthy

FILE = '''
"""`varies`: a value is not the same in all trials of the candidate."""

from typing import ClassVar, Literal

from harness.checks.check import OF_A_VALUE, RankCheck
from harness.checks.finding import RankFinding


class Seen:
    def __init__(self, name):
        self.name = name
        self.values = []

    def take(self, arm, finding, history):
        if arm == "candidate":
            self.values += [seen.event.values.get(self.name) for seen in history.said(0, "drawn")]

    def doubts(self):
        first = self.values[0]
        if set(self.values) == {first}:
            yield f"all {len(self.values)} trials drew {first}"


class VariesCheck(RankCheck):
    """Each rank draws a value, and not the same one in every trial."""

    properties: ClassVar = OF_A_VALUE
    example: ClassVar = "{id: drawn, kind: varies, ranks: every, value: number}"

    kind: Literal["varies"]
    value: str

    def judge_rank(self, history, rank):
        seen = history.said(rank, "drawn")
        return RankFinding(rank=rank, passed=bool(seen), reason="" if seen else "drew nothing")

    def over_trials(self):
        return Seen(self.value)
'''
SCENARIO = b"""
schema: 1
id: varies
title: Seeds differ
question: Does each trial draw another number?
role: upstream
subject: {entry: "subject:go"}
matrix: {ranks: [1], backend: [none]}
seed: "1"
trials: {candidate: 3}
checks: [{id: drawn, kind: varies, ranks: every, value: number}]
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    """A scenario with the check, whose file is the only thing that was added."""
    info = tmp_path / "varying-1.0.dist-info"
    info.mkdir()
    (tmp_path / "varying.py").write_text(textwrap.dedent(FILE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: varying\nVersion: 1.0\n")
    (info / "RECORD").write_text("varying.py,,\n")
    (info / "entry_points.txt").write_text("[rankproof.checks]\nvaries = varying:VariesCheck\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._by_group.cache_clear()
    # As a process would read it that starts now: the registry of this one was filled before.
    started = Registry("rankproof.checks", Check, KINDS.ours)
    monkeypatch.setattr(plugins, "TRIED", set())
    for name in ("_pending", "_brought", "plugins"):
        monkeypatch.setattr(KINDS, name, getattr(started, name))
    yield parse_scenario(SCENARIO, name="scenario.yaml")
    plugins._by_group.cache_clear()
    sys.modules.pop("varying", None)


def drew(number: int) -> Iterator[Event]:
    """The events of a trial in which the only rank drew this number."""
    for event in healthy(1):
        if event.name == "decode":
            yield event._replace(name="drawn", values={"number": number})
        else:
            yield event


def judged(scenario: Scenario, numbers: list[int]) -> Judgement:
    """The judgement of trials that drew these numbers."""
    (cell,) = cells(scenario)
    texts = {
        f"evidence/{cell.slug}/candidate-{index:05d}/events.jsonl": "".join(
            f"{event.line()}\n" for event in drew(number)
        ).encode()
        for index, number in enumerate(numbers)
    }
    facts = CellFacts(id=cell.id, skipped=None, candidate=len(numbers), control=0)
    arms = {"candidate": ArmCode(files={}, arguments={})}
    return judge(scenario, [(cell, facts)], arms=arms, read=texts.__getitem__, names=texts)


def doubts(judgement: Judgement) -> list[str]:
    """What was said of the cell by the check."""
    (cell,) = judgement.cells
    return [str(why) for why in cell.reasons if why.code == VerdictCode.OVER_TRIALS]


def test_a_check_keeps_something_over_all_trials(scenario: Scenario) -> None:
    """It doubts a cell whose trials are alike, and says nothing of one whose trials differ."""
    alike = judged(scenario, [4, 4, 4])
    assert doubts(alike) == ["check drawn: all 3 trials drew 4"]
    assert doubts(judged(scenario, [4, 4, 5])) == []


def test_each_cell_keeps_its_own(scenario: Scenario) -> None:
    """What was kept of one judgement is not there in the next."""
    judged(scenario, [1, 2, 3])
    assert doubts(judged(scenario, [4, 4])) == ["check drawn: all 2 trials drew 4"]


def test_what_it_raises_is_its_makers(scenario: Scenario) -> None:
    """Its `doubts` fails where no trial was taken."""
    with pytest.raises(PluginFailed, match=r"varying 1\.0 raised IndexError"):
        judged(scenario, [])
