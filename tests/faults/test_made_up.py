"""A fault over machines that nobody here knew of: one file, found by its entry point, and no edit
anywhere else.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import plugins
from harness.faults import KINDS, Fault
from harness.faults.strikes import Strikes
from harness.history import History
from harness.reason import SkipCode
from harness.registry import Registry
from harness.run.machines.over_machines import Hostfile, refusal, skip
from harness.run.preparation import Preparation
from harness.scenario import Scenario, cells, parse_scenario
from harness.world.machines.share import travels
from harness.world.starters.hostfile import Machine
from tests.kit.launches import launch_of

FILE = '''
"""`two-cables`: the machines of two ranks are cut off at the same event, the second one later."""

from typing import ClassVar, Literal

from harness.faults.fault import FaultAtEvent, FaultProperties
from harness.faults.proof import Proof


class TwoCablesFault(FaultAtEvent):
    """The machines of its ranks are cut off."""

    does: ClassVar = "pulls the cables of the machines of two ranks"
    needs: ClassVar = "test machines"
    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=False, ends_rank=True, needs_a_hub=False)
    effect: ClassVar = "stopping"
    over_machines: ClassVar = True
    test_machines: ClassVar = "two cables are pulled: run it over test machines"
    example: ClassVar = "{id: cut, kind: two-cables, ranks: [1, 2], at: step.begin}"

    kind: Literal["two-cables"]

    def description(self):
        return f"its machine cut off at {self.at}"

    def strike(self, world, *, rank, done):
        world.cut_off(rank, fault=self.id)

    def undo(self, world, *, rank):
        world.join(rank, fault=self.id)

    def proof_after(self, found, history, *, rank):
        cut = [seen for seen in history.noted("machine.cut") if seen.event.values.get("fault") == self.id]
        return Proof(proved=len(cut) == 2, description=f"{len(cut)} machines cut off", lines=found.lines)
'''
SCENARIO = b"""
schema: 1
id: two-cables
title: Two machines are lost
question: Does every rank end in time when two machines are lost?
role: upstream
subject: {entry: "subject:go"}
matrix: {ranks: [3], backend: [gloo], hosts: [3]}
seed: "1"
faults: [{id: cut, kind: two-cables, ranks: [1, 2], at: step.begin}]
checks:
  - {id: ended-in-time, kind: host-lost, ranks: every, fault: cut, limit: 5s}
"""


class World:
    """Takes what a fault does to a world."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.done.append((name, *given, *named.values()))


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    """A scenario with the fault, whose file is the only thing that was added."""
    info = tmp_path / "two_cables-1.0.dist-info"
    info.mkdir()
    (tmp_path / "two_cables.py").write_text(textwrap.dedent(FILE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: two-cables\nVersion: 1.0\n")
    (info / "RECORD").write_text("two_cables.py,,\n")
    (info / "entry_points.txt").write_text(
        "[rankproof.faults]\ntwo-cables = two_cables:TwoCablesFault\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._by_group.cache_clear()
    # As a process would read it that starts now: the registry of this one was filled before.
    started = Registry("rankproof.faults", Fault, KINDS.ours)
    monkeypatch.setattr(plugins, "TRIED", set())
    for name in ("_pending", "_brought", "plugins"):
        monkeypatch.setattr(KINDS, name, getattr(started, name))
    yield parse_scenario(SCENARIO, name="scenario.yaml")
    plugins._by_group.cache_clear()
    sys.modules.pop("two_cables", None)


def test_it_runs_over_machines_and_is_skipped_elsewhere(scenario: Scenario) -> None:
    """Its own class says where it can run; no list of ours has to name it."""
    assert refusal(scenario) == ""
    hostfile = Hostfile(
        machines=[Machine(name=name, slots=1) for name in "abc"], interpreter="python3"
    )
    preparation = Preparation.__new__(Preparation)
    object.__setattr__(preparation, "cells", cells(scenario))
    object.__setattr__(preparation, "skipped", {})
    skip(preparation, hostfile, faults=scenario.faults)
    (skipped,) = preparation.skipped.values()
    assert (skipped.code, str(skipped)) == (
        SkipCode.MACHINE_FAULT,
        "two cables are pulled: run it over test machines",
    )


def test_it_strikes_several_machines(scenario: Scenario, tmp_path: Path) -> None:
    """A launch with it travels to machines.

    Each of its ranks is struck and taken back there, and proved.
    """
    launch = launch_of(
        about={},
        size=3,
        backend="gloo",
        warm=True,
        entry="subject:go",
        folder=tmp_path,
        arguments={},
        inputs={},
        seeds=[0, 1, 2],
    )
    prepared = Strikes(scenario.faults, size=3, seed=1).prepare(launch)
    assert travels(prepared)["watch"]["gates"] == ("step.begin",)
    world = World()
    (fault,) = scenario.faults
    for rank in fault.ranks.of(3):
        fault.strike(world, rank=rank, done=lambda: None)  # type: ignore[arg-type]
        fault.undo(world, rank=rank)  # type: ignore[arg-type]
    assert world.done == [(what, rank, "cut") for rank in (1, 2) for what in ("cut_off", "join")]
    assert not fault.proof(History([], size=3), rank=1).proved
