"""A scenario on test hosts, from its file to a verified report, and forgeries of what its wire
says.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.trust.key import find_signer
from harness.world.hosts import host as hosts
from tests.kit import forge
from tests.kit.commands import ROOT, Ran, run_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.whole,
    pytest.mark.skipif(hosts.refusal() is not None, reason="this machine cannot have test hosts"),
]
FILE = ROOT / "scenarios" / "flipped-byte" / "scenario.yaml"
CELL = "evidence/ranks-3-backend-gloo"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The scenario, run with few trials on one backend."""
    place = tmp_path_factory.mktemp("hosts")
    few = (
        "trials.candidate=3",
        "trials.control=4",
        "trials.accept.failure_rate_below=64%",
        'matrix.backend=["gloo"]',
    )
    return run_command(place, "run", str(FILE), *(word for one in few for word in ("--set", one)))


@pytest.mark.long
def test_the_control_takes_the_wrong_byte_and_the_candidate_does_not(ran: Ran) -> None:
    """PASS: with a proof for every trial, and a report that says what hosts show and what they do
    not.
    """
    assert (ran.code, ran.record.judgement.verdict) == (0, "PASS"), ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.candidate is not None
    assert cell.control is not None
    for trial in (*cell.candidate.trials, *cell.control.trials):
        assert [strike.proved for strike in trial.strikes] == [True]
        assert "was 0x" in trial.strikes[0].description
    assert all(trial.as_stated for trial in cell.control.trials)
    report = (ran.folder / "report.md").read_text()
    assert "The ranks were on 3 test hosts on one machine" in report
    assert "All ranks ran on one machine, over loopback" not in report


LINKS = ROOT / "scenarios" / "bad-links"
THREE = ("--set", "matrix.ranks=[3]", "--set", 'matrix.backend=["gloo"]')


@pytest.mark.long
def test_what_tcp_hides_breaks_datagrams_and_is_measured(tmp_path: Path) -> None:
    """Packets overtake each other: right results in the collective, wrong ones without TCP, and
    both halves timed.
    """
    few = ("trials.candidate=3", "trials.control=4", "trials.accept.failure_rate_below=70%")
    settings = [word for one in few for word in ("--set", one)]
    ran = run_command(tmp_path, "run", str(LINKS / "reorder.yaml"), "--unsigned", *THREE, *settings)
    assert ran.code == 0, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    timed = {(row.id, row.rank) for row in cell.measured}
    assert timed == {(half, rank) for half in ("clean", "struck") for rank in range(3)}


def test_a_cut_that_lasts_is_a_hang_at_its_line(tmp_path: Path) -> None:
    """Tried once: the control stands still at the stated line on every rank, for a window, which
    --try says.
    """
    ran = run_command(tmp_path, "run", str(LINKS / "unbounded.yaml"), "--try", *THREE)
    assert ran.code == 0, ran.out + ran.err
    assert "control: hung as required, judged by a window without progress" in ran.out


def unplaced(event: dict[str, Any]) -> None:
    """Ranks that were on the machine as it is."""
    if event["name"] == "world.begin":
        del event["values"]["hosts"]


def elsewhere(event: dict[str, Any]) -> None:
    """Ranks that were all on one host."""
    if event["name"] == "rank.started":
        event["values"]["host"] = "host-0"


def uncounted(event: dict[str, Any]) -> None:
    """A fault that met no packet."""
    if event["name"] == "wire.counted":
        event["values"]["struck"] = 0


def unflipped(event: dict[str, Any]) -> None:
    """A byte that became what it was."""
    if event["name"] == "wire.counted":
        event["values"]["flips"][0]["after"] = event["values"]["flips"][0]["before"]


def other_links(event: dict[str, Any]) -> None:
    """A fault of other links than the scenario asks for."""
    if event["name"] == "wire.struck":
        event["values"]["links"] = [[0, 1]]


def untouched(event: dict[str, Any]) -> None:
    """Nothing is changed: what is signed again as it is, is accepted."""


FORGERIES = (unplaced, elsewhere, uncounted, unflipped, other_links)


@pytest.mark.parametrize("change", [untouched, *FORGERIES], ids=lambda change: change.__name__)
def test_evidence_that_was_changed_is_no_verified_pass(
    ran: Ran, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """Every trial of the candidate changed alike, all made to fit and signed again: refused, or not
    PASS any more.
    """
    folder = tmp_path / "run"
    shutil.copytree(ran.folder, folder)
    for path in folder.glob(f"{CELL}/candidate-*/events.jsonl"):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events:
            change(event)
        lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        path.write_bytes(forge.marked(lines.encode()))
    key = ran.results.parent / "home/.local/share/rankproof/signing_key"
    forge.work_out(folder)
    forge.sign(folder, key)
    signer = find_signer(explicit=str(key)).fingerprint
    seen = run_command(tmp_path, "verify", str(folder / "report.md"), "--signer", signer)
    verdict = json.loads((folder / "results.json").read_text())["judgement"]["verdict"]
    passed = seen.code == 0 and verdict == "PASS"
    assert passed == (change is untouched), seen.out + seen.err
