"""Where ranks go on machines, what is refused before any starts, and what a lost machine does to a
trial.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.checks import Finding, RankFinding, world
from harness.cli import main
from harness.cli.run import arguments
from harness.cli.running import elsewhere
from harness.events import Event
from harness.faults import KINDS
from harness.forms.problem import ScenarioError
from harness.history import MACHINE_ENDED, MACHINE_LOST, MACHINES_JOINED, History
from harness.reason import DeviationCode, SkipCode
from harness.record.facts import MachineFacts, MachinesFacts
from harness.record.skips import lacks_machines, unmet
from harness.report.limits import _of_machines
from harness.run.machines.over_machines import Hostfile, skip
from harness.run.machines.readiness import Offered
from harness.run.preparation import Preparation
from harness.scenario import Cell, MustFail, Needs
from harness.scenario.matrix import machines_of
from harness.stats.stated import deviation
from harness.world.machines.share import travels
from harness.world.starters import test_machines
from harness.world.starters.hostfile import Machine, placement
from tests.kit.histories import healthy
from tests.kit.launches import changed, launch_of

EXITED = "rank.exited"


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


@pytest.mark.parametrize(
    ("rule", "slots", "size", "hosts", "of"),
    [
        ("spread", (2, 2, 2), 3, 1, None),
        ("spread", (4, 2, 2), 3, 1, (0, 0, 0)),
        ("spread", (2, 2, 2), 3, 2, (0, 1, 0)),
        ("spread", (1, 1), 3, 3, None),
        ("pack", (2, 2, 2), 3, 3, None),
        ("pack", (1, 1, 1), 3, 3, (0, 1, 2)),
        ((0, 2), (1, 1, 1), 2, 2, (0, 2)),
        ((0, 0), (2, 1, 1), 2, 2, None),
    ],
)
def test_a_cell_says_on_how_many_machines(
    rule: str | tuple[int, ...],
    slots: Sequence[int],
    size: int,
    hosts: int,
    of: tuple[int, ...] | None,
) -> None:
    """Ranks are on exactly as many machines as their cell says, or it is skipped.

    Who verifies comes to the same.
    """
    cell = Cell("c", "c", size, "gloo", {}, hosts)
    machines = [Machine(name=f"m{index}", slots=room) for index, room in enumerate(slots)]
    given = Hostfile(machines=machines, interpreter="python3", placement=rule)  # type: ignore[arg-type]
    preparation = Preparation.__new__(Preparation)
    object.__setattr__(preparation, "cells", [cell])
    object.__setattr__(preparation, "skipped", {})
    skip(preparation, given)
    facts = MachinesFacts.model_construct(
        machines=[MachineFacts.model_construct(slots=room) for room in slots], placement=rule
    )
    assert given.of(cell) == of
    assert lacks_machines(cell, facts) is (of is None)
    assert [one.code for one in preparation.skipped.values()] == (
        [] if of else [SkipCode.CELL_HOSTS]
    )
    assert lacks_machines(cell, None) is (hosts > 1)
    assert not lacks_machines(replace(cell, hosts=None), None)


@pytest.mark.parametrize("given", ["scatter", "0=a,2=b", "0=a,0=b", "0=c", "-1=a", ""])
def test_a_placement_that_is_none(given: str) -> None:
    """A rank that is left out or comes twice, and a name that the hostfile does not have, are
    refused.
    """
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
        ("moved", "should be on machine"),
        ("forgotten", "were not reached"),
    ],
)
def test_a_lost_machine_fails_the_trial(change: str, words: str) -> None:
    """However good the rest looks, a rank whose machine was lost, or another one than planned,
    fails its trial.
    """
    joined = [{"machine": "a"}, {"machine": "b"}] if change != "forgotten" else [{"machine": "a"}]
    where = {0: "a", 1: "b" if change != "moved" else "a"}
    events = [
        Event(
            ns=1,
            by="harness",
            name="world.begin",
            values={"machines": {"called": ["a", "b"], "of": [0, 1]}},
        ),
        Event(ns=2, by="harness", name=MACHINES_JOINED, values={"machines": joined}),
        *(
            Event(
                ns=3, by="server", rank=rank, pid=5, name="rank.started", values={"machine": called}
            )
            for rank, called in where.items()
        ),
    ]
    if change in (MACHINE_LOST, MACHINE_ENDED):
        events.append(
            Event(ns=4, by="harness", name=change, values={"machine": "b", "why": "no cable"})
        )
    findings = {one.check: one for one in world.judge(History(events, size=2))}
    stayed = findings["world:machines-stayed"].ranks
    assert stayed[0].passed
    assert stayed[1].passed is not bool(change)
    assert words in stayed[1].reason
    # One number of two machines is two processes; of one machine it is not.
    real = findings["world:ranks-are-processes"].ranks
    assert ("belongs to another process" in real[1].reason) is (change == "moved")


def test_a_control_that_lost_its_machine_did_not_fail_as_stated() -> None:
    """A machine ends its ranks by SIGKILL when its lease is over: nobody's statement, whatever it
    says of signals.
    """
    must_fail = MustFail.model_validate({"check": "ready", "ranks": [1], "signal": "SIGKILL"})
    events = [
        (
            event._replace(values={"code": None, "signal": "SIGKILL"})
            if (event.rank, event.name) == (1, EXITED)
            else event
        )
        for event in healthy()
        if (event.rank, event.name) != (1, "subject.end")
    ]
    held = Finding(
        check="ready",
        kind="event",
        ranks=(RankFinding(rank=1, passed=False, reason="never said it"),),
    )
    for lost in (False, True):
        stayed = Finding(
            check="world:machines-stayed",
            kind="world",
            ranks=(RankFinding(rank=1, passed=not lost, reason="lost"),),
        )
        history = History(events, size=2)
        found = deviation(
            must_fail,
            [held, stayed],
            history,
            faults={},
            silence=0.0,
            line_of=lambda _file, _line: None,
        )
        assert (found is not None and found.code == DeviationCode.EVIDENCE_NOT_WHOLE) is lost


def test_a_number_that_the_harness_has_too() -> None:
    """A rank on a machine may have the number that the harness has here.

    In a world of one machine none may.
    """
    for over in ({"machines": {"called": ["a"], "of": [0]}}, {}):
        begin = Event(ns=1, by="harness", name="world.begin", values={**over, "harness_pid": 5})
        values = {"machine": "a"}
        started = Event(ns=2, by="server", rank=0, pid=5, name="rank.started", values=values)
        ended = Event(
            ns=3, by="server", rank=0, pid=5, name=EXITED, values={"code": 0, "signal": None}
        )
        found = {one.check: one for one in world.judge(History([begin, started, ended], size=1))}
        assert found["world:ranks-are-processes"].ranks[0].passed is bool(over)


@pytest.mark.parametrize(
    ("rule", "placed", "words"),
    [
        ("spread", [(2, None)], "2 machines"),
        ("pack", [(2, None), (3, 1)], "1 machine"),
        ("pack", [(2, None), (6, None)], "1 to 2 machines"),
        ("spread", [(3, 1), (3, 3)], "1 to 3 machines"),
    ],
)
def test_machines_without_ranks_do_not_count(
    rule: str, placed: Sequence[tuple[int, int | None]], words: str
) -> None:
    """A report says on how many machines the ranks of a world were, not how many a hostfile
    names.
    """
    machines = [MachineFacts.model_construct(slots=4) for _ in range(3)]
    assert (
        _of_machines(MachinesFacts.model_construct(machines=machines, placement=rule), placed)
        == words
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--placement pack", "--placement requires --hosts"),
        (
            "--hosts-python /usr/bin/python3 --ssh-config c",
            "--hosts-python, --ssh-config requires --hosts",
        ),
        ("--on ray --placement spread", "--placement requires --hosts"),
        (
            "--hosts hosts --jobs 2",
            "with --hosts, worlds run one after another; remove this option",
        ),
        ("--hosts test:0", "makes N test machines"),
        ("--hosts test:3 --ssh-config c", "remove this option"),
    ],
)
def test_options_that_would_change_nothing(given: str, words: str) -> None:
    """What a run would pass over in silence is refused with what to do."""
    parser = argparse.ArgumentParser()
    arguments(parser)
    with pytest.raises(ValueError, match=words):
        elsewhere(parser.parse_args(given.split()), ExitStack())


@pytest.mark.parametrize(
    "change", [{"own_mounts": frozenset({1})}, {"clock_ahead": {1: 5}}, {"python": Path("/p")}]
)
def test_what_does_not_travel_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """What a fault asks of a world, a plug-in's too, acts on its ranks or ends it: it is not left
    out.
    """
    launch = launch_of(
        about={"trial": 0},
        size=2,
        backend="none",
        warm=True,
        entry="subject:go",
        folder=tmp_path,
        arguments={},
        inputs={"a": "b"},
        seeds=[1, 2],
    )
    assert travels(launch)["size"] == 2
    with pytest.raises(OSError, match=next(iter(change))):
        travels(changed(launch, **change))


def test_a_kind_of_fault_that_does_not_say_so_is_not_over_machines() -> None:
    """Each kind says by itself that it strikes ranks on machines: what it inherits counts for
    nothing.
    """
    said = {name for name, kind in KINDS.items() if kind.is_over_machines()}
    assert {"kill", "pause", "delay", "raise", "exit", "skip-call"} <= said
    assert not said & {
        "latency",
        "flip",
        "hub",
        "starve",
        "memory",
        "no-space",
        "start-late",
        "monotonic-skew",
    }

    class Another(KINDS["kill"]):  # type: ignore[misc]
        pass

    assert not Another.is_over_machines()


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({}, ""),
        ({"cores": 4, "memory": 2**30, "os": ["linux"], "nix": True, "gpus": 0}, ""),
        ({"cores": 5}, "5 cores"),
        ({"memory": 2**40}, "memory"),
        ({"os": ["darwin"]}, "darwin"),
        ({"gpus": 1}, "GPUs"),
    ],
)
def test_each_machine_is_asked_for_what_a_scenario_needs(needs: dict[str, Any], words: str) -> None:
    """What its agent says of itself is held against it, as this machine is."""
    facts = {
        "system": "Linux",
        "cores": 4,
        "memory": 2**34,
        "programs": {"nix": True, "nvidia-smi": "yes"},
    }
    lacking = unmet(Needs.model_construct(**{**Needs().__dict__, **needs}), Offered.of(facts))
    assert (lacking is None) is not bool(words)
    assert words in str(lacking)


@pytest.mark.slow
def test_what_is_not_over_machines_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scenario that needs what only one machine has is refused before anything starts, each
    reason with a remedy.
    """
    (tmp_path / "hosts").write_text("nowhere slots=4\n")
    (tmp_path / "subject.py").write_text("def go(context, slow=False): ...\n")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    code = main(
        [
            "run",
            str(tmp_path),
            "--hosts",
            str(tmp_path / "hosts"),
            "--unsigned",
            "--results",
            str(tmp_path),
        ]
    )
    said = capsys.readouterr().err
    assert code == 2
    for words in ("leave world.hosts at 1", "faults of kind latency, starve"):
        assert words in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "hosts",
        "scenario.yaml",
        "subject.py",
    ]


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


def test_an_environment_below_tmp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test machines have another /tmp: there its packages would be gone, and some other Python's
    found.
    """
    if why := test_machines.refusal():
        pytest.skip(why)
    monkeypatch.setattr(sys, "prefix", "/tmp/clone/.nox/env")  # noqa: S108
    assert "in /tmp/clone/.nox/env" in test_machines.refusal()


HOLDS = """
import sys
from harness.world.machines.machine_server import MachineServer

server = MachineServer(None)
(server.scratch / "rank-0").mkdir()
print(server._remover.pid, server.scratch, flush=True)
sys.stdin.read()
if sys.argv[1] == "ends":
    server.end()
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
def test_a_world_over_machines_leaves_no_folder_here(how: str, tmp_path: Path) -> None:
    """What its ranks left is laid out here; it goes however the process ends that asked for it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        pid, scratch = holder.stdout.readline().split()
        remover = os.pidfd_open(int(pid))
        assert list(Path(scratch).iterdir())
        if how == "killed":
            holder.kill()
        else:
            holder.stdin.close()
    # Readable when the process has ended.
    select.select([remover], [], [], 30.0)
    os.close(remover)
    assert not Path(scratch).exists()
