"""Where ranks go on machines, what is refused before any starts, and what a lost machine does to a trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.checks import world
from harness.cli import main
from harness.events import Event
from harness.forms.problem import ScenarioError
from harness.history import MACHINE_ENDED, MACHINE_LOST, MACHINES_JOINED, History
from harness.scenario.placement import machines_of
from harness.starters.hostfile import Machine, placement


@pytest.mark.parametrize(
    ("rule", "slots", "size", "of"),
    [
        ("spread", (2, 2, 2), 4, (0, 1, 2, 0)),
        ("spread", (1, 3), 4, (0, 1, 1, 1)),
        ("pack", (2, 2, 2), 3, (0, 0, 1)),
        ("pack", (1, 1), 3, None),
        ((1, 0, 1), (1, 2), 3, (1, 0, 1)),
        ((1, 1), (1, 1), 2, None),
        ((0,), (4,), 2, None),
        ((0, 5), (4, 4), 2, None),
    ],
)
def test_ranks_are_placed(
    rule: str | Sequence[int], slots: Sequence[int], size: int, of: tuple[int, ...] | None
) -> None:
    """spread, pack and a list keep to the slots; without room there is no world."""
    assert machines_of(rule, slots=slots, size=size) == of


@pytest.mark.parametrize("given", ["scatter", "0=a,2=b", "0=a,0=b", "0=c", "-1=a", ""])
def test_a_placement_that_is_none(given: str) -> None:
    """A rank that is left out or comes twice, and a name that the hostfile does not have, are refused."""
    machines = [Machine(name=name, slots=1) for name in "ab"]
    assert placement("1=a,0=b", machines=machines) == (1, 0)
    with pytest.raises(ScenarioError):
        placement(given, machines=machines)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", ""),
        (MACHINE_LOST, "was lost"),
        (MACHINE_ENDED, "ended its ranks by itself"),
        ("moved", "was to be on machine"),
        ("forgotten", "were not reached"),
    ],
)
def test_a_lost_machine_fails_the_trial(change: str, words: str) -> None:
    """However good the rest looks, a rank whose machine was lost, or another one than planned, fails its trial."""
    joined = [{"machine": "a"}, {"machine": "b"}] if change != "forgotten" else [{"machine": "a"}]
    where = {0: "a", 1: "b" if change != "moved" else "a"}
    events = [
        Event(ns=1, by="harness", name="world.begin", values={"machines": {"called": ["a", "b"], "of": [0, 1]}}),
        Event(ns=2, by="harness", name=MACHINES_JOINED, values={"machines": joined}),
        *(
            Event(ns=3, by="server", rank=rank, pid=5, name="rank.started", values={"machine": called})
            for rank, called in where.items()
        ),
    ]
    if change in (MACHINE_LOST, MACHINE_ENDED):
        events.append(Event(ns=4, by="harness", name=change, values={"machine": "b", "why": "no cable"}))
    findings = {one.check: one for one in world.judge(History(events, size=2))}
    stayed = findings["world:machines-stayed"].ranks
    assert stayed[0].passed
    assert stayed[1].passed is not bool(change)
    assert words in stayed[1].reason
    # One number of two machines is two processes; of one machine it is not.
    real = findings["world:ranks-are-processes"].ranks
    assert ("is not its own" in real[1].reason) is (change == "moved")


@pytest.mark.slow
def test_what_is_not_over_machines_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scenario that needs what only one machine has is refused before anything starts, each reason with a remedy."""
    (tmp_path / "hosts").write_text("nowhere slots=4\n")
    (tmp_path / "subject.py").write_text("def go(context, slow=False): ...\n")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    code = main(["run", str(tmp_path), "--hosts", str(tmp_path / "hosts"), "--unsigned", "--results", str(tmp_path)])
    said = capsys.readouterr().err
    assert code == 2
    for words in ("leave world.hosts at 1", "faults of kind latency, starve"):
        assert words in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts", "scenario.yaml", "subject.py"]


SCENARIO = """
schema: 1
id: not-over-machines
title: A question for test hosts
question: Does it bear a slow link?
role: claim
subject:
  entry: subject:go
  candidate: {}
  control: {with: {slow: true}, must_fail: {check: ended, ranks: every, code: 1}}
matrix: {ranks: [2], backend: [gloo]}
world: {deadline: 20s, hosts: 2}
seed: "1"
trials: {candidate: 1, control: 1, accept: {failure_rate_below: 99%, confidence: 50%}}
faults:
  - {id: slow, kind: latency, ranks: [1], at: begin, for: 1s, by: 10ms}
  - {id: busy, kind: starve, ranks: [1], at: begin, for: 1s}
checks:
  - {id: ended, kind: exit, ranks: every, code: 0}
"""
