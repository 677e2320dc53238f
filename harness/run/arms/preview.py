"""Arms laid out in a folder that is gone afterwards: what a run from here would run, or why there would be none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.run.arms.staging import StagedArm, stage_arms
from harness.scenario import Scenario


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, data: bytes) -> None:
        """Write a file, by its path from there."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@contextmanager
def previewed(scenario: Scenario, *, folder: Path) -> Iterator[dict[str, StagedArm]]:
    """Lay the arms out as a run from this folder would.

    Raises:
        ArmError: as `harness.run.arms.staging.stage_arms`.
    """
    inputs = [folder / one.path for one in scenario.inputs.values() if one.path is not None]
    with tempfile.TemporaryDirectory(prefix="rankproof-source-") as text:
        yield stage_arms(scenario, folder=folder, inputs=inputs, results=_Folder(Path(text)))
