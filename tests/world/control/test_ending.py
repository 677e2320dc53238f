"""The clock of a world."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.world.control import ending
from harness.world.control.capture import Recorder
from harness.world.control.ending import Ending
from harness.world.control.ranks import RankStates
from tests.kit.worlds import launch


class Noted:
    """Takes what a world would be told."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def note(self, name: str, **_: Any) -> None:
        self.names.append(name)

    def signal(self, number: int, *, rank: int | None = None) -> None:
        self.names.append(f"signal {number} {rank}")


@pytest.mark.parametrize(("slept", "deadline"), [(0.5, True), (60.0, False)])
def test_time_in_which_the_harness_itself_slept_is_not_its_ranks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slept: float, deadline: bool
) -> None:
    """A harness that was stopped finds ranks at gates only it opens: it gives them that time back,
    and says so.
    """
    clock = [100.0]
    monkeypatch.setattr(ending, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    world = Noted()
    roll = RankStates(size=1, started={0: 2**22 + 1})
    started = launch("", size=1, deadline=10.0, after_failure=1.0)
    recorder = Recorder(size=1, code=tmp_path, python=None)
    watch = Ending(world, roll, launch=started, recorder=recorder, scratch=tmp_path)
    clock[0] += watch.patience() + slept
    watch.judge()
    assert ("world.deadline" in world.names) is deadline
    assert ("harness.late" in world.names) is not deadline
    clock[0] += watch.patience() + 0.1
    watch.judge()
    assert "world.deadline" in world.names
