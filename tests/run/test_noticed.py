"""The scenarios of ranks that die, stall, start late or differ: a part of each runs here, and is
forged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.record.witness import CONTRADICTIONS
from harness.scenario import load_scenario
from tests.kit.commands import ROOT, Ran, run_command
from tests.run.test_forgery import Forger

FOLDERS = ("bad-links", "rank-death", "rank-stall", "slow-start-and-barrier", "environment-parity")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / "scenarios" / folder).glob("*.yaml"))
# So few set the arms apart.
FEW = ("trials.candidate=3", "trials.control=4", 'trials.accept.failure_rate_below="70%"')
THREE = ("matrix.ranks=[3]", 'matrix.backend=["gloo"]')
Run = Callable[..., Ran]


def ask(*settings: str) -> list[str]:
    """What goes behind a command to change a scenario."""
    return [part for one in (*THREE, *FEW, *settings) for part in ("--set", one)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_each_has_a_world_of_three_and_runs_on_demand(file: Path) -> None:
    """Every file asks one question of worlds of three ranks at least, with a control.

    One alone runs unasked.
    """
    found = load_scenario(file).scenario
    assert 3 in found.matrix.ranks
    assert found.subject.control is not None
    assert ("on-demand" in found.tags) != (found.id == "rank-death-on-hosts")


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("rank-death/init.yaml", ()),
        # More ranks than cores, on three hosts: the bound is the same.
        ("rank-death/hosts.yaml", ("matrix.ranks=[8]", 'matrix.backend=["mlx-ring"]')),
        ("rank-stall/scenario.yaml", ()),
        ("slow-start-and-barrier/reversed.yaml", ("faults[0].gap=300ms",)),
        ("environment-parity/clock.yaml", ()),
    ],
)
def test_what_each_shows_is_shown(rankproof: Run, file: str, settings: tuple[str, ...]) -> None:
    """With few trials of three ranks on gloo, the candidate holds and the control fails as
    stated.
    """
    ran = rankproof("run", str(ROOT / "scenarios" / file), "--unsigned", *ask(*settings))
    assert ran.code == 0, ran.out + ran.err


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One honest run of a rank's death."""
    file = ROOT / "scenarios" / "rank-death" / "kill.yaml"
    ran = run_command(
        tmp_path_factory.mktemp("original"), "run", str(file), *ask('matrix.moment=["collective"]')
    )
    assert ran.code == 0, ran.out + ran.err
    return ran


def later(event: dict[str, Any]) -> dict[str, Any]:
    """Survivor 0 noticed three seconds later, it says."""
    if event["rank"] == 0 and event["name"] in ("rank.error", "rank.exited"):
        event["ns"] += 3_000_000_000
    return event


def returned(event: dict[str, Any]) -> dict[str, Any] | None:
    """Survivor 0 raised nothing, it says, and ended with 0."""
    if event["rank"] == 0 and event["name"] == "rank.exited":
        event["values"]["code"] = 0
    return None if (event["rank"], event["name"]) == (0, "rank.error") else event


def struck_too(event: dict[str, Any]) -> dict[str, Any] | None:
    """Survivor 0 was what the fault was for, it says, and raised nothing."""
    if event["name"] == "fault.struck":
        event["rank"] = 0
    return returned(event)


def never_struck(event: dict[str, Any]) -> dict[str, Any] | None:
    """The fault struck nobody."""
    return None if event["name"] == "fault.struck" else event


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [later, returned, struck_too, never_struck], ids=lambda change: change.__name__
)
def test_a_death_that_was_noticed_otherwise_is_refused(
    original: Ran,
    rankproof: Run,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> None:
    """Editing when or how a survivor failed, or who was struck, and signing again, is refused."""
    shutil.copytree(original.results.parent, tmp_path / "copy", symlinks=True)
    forger = Forger(Ran(0, "", "", tmp_path / "copy" / "results"))
    trial = original.record.judgement.cells[0].candidate.trials[0]
    events = forger.folder / trial.evidence
    changed = [
        found
        for line in events.read_text().splitlines()
        if (found := change(json.loads(line))) is not None
    ]
    changed.sort(key=lambda event: int(event["ns"]))
    events.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in changed))
    forger.sign()
    refused = rankproof("verify", str(forger.folder / "report.md"), "--signer", forger.signer)
    assert refused.code == 3
    assert any(word in refused.out for word in ("JUDGED DIFFERENTLY", *CONTRADICTIONS)), refused.out
