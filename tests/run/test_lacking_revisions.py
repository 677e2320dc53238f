"""Scenarios whose arms are alike until a run is given two revisions: skipped with the reason, never
a PASS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.plan import RunSettings
from harness.run.progress import Progress
from harness.run.run import RevisionsMissing, run
from harness.run.tried import attempt
from harness.scenario import load_scenario
from tests.kit.commands import SCENARIO, Ran

LACKING = SCENARIO.replace("id: meet", "id: releases").replace("{broken: true}", "{broken: false}")


@pytest.mark.slow
def test_the_others_of_a_folder_run(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran]
) -> None:
    """What lacks its revisions is told with the remedy; the others get their reports.

    The whole is not a PASS.
    """
    folder = scenario({"releases.yaml": LACKING})
    ran = rankproof("run", str(folder))
    assert ran.code == 2, ran.out + ran.err
    assert "rankproof run: releases: SKIPPED: both arms have the same code and arguments" in ran.err
    assert "--candidate REV --control REV" in ran.err
    assert "1 scenario, 1 not run: INCONCLUSIVE" in ran.out
    assert [
        path.name for path in ran.results.iterdir() if path.is_dir() and not path.is_symlink()
    ] == ["meet"]
    assert (ran.results / "meet" / "latest" / "report.md").exists()
    linted = rankproof("lint", str(folder))
    assert linted.code == 0, linted.out
    assert "note: subject.control: runs the same code with the same arguments" in linted.out


def test_no_trial_is_made_of_it(scenario: Callable[..., Path], tmp_path: Path) -> None:
    """Neither a run nor a try begins, whoever asks for it; no folder is left."""
    loaded = load_scenario(scenario({"scenario.yaml": LACKING}))
    with pytest.raises(RevisionsMissing):
        run(loaded, RunSettings(results=tmp_path / "results", signer=None))
    with pytest.raises(RevisionsMissing):
        attempt(loaded, cell=None, jobs=1, progress=Progress())
    assert not (tmp_path / "results").exists()
