"""Ledgers as evidence: a run that observes calls, verified again from the files, and forged in many
ways.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.record.artefacts import FOLDER
from harness.record.assemble import assemble
from harness.record.model import Record, RecordError
from harness.report.appendix import evidence_among
from harness.trust.key import find_signer
from tests.kit import forge
from tests.kit.commands import ROOT, Ran, run_command

pytestmark = [pytest.mark.slow, pytest.mark.whole]  # several runs, verified and forged

SUBJECT = """
import torch
import torch.distributed as dist

def reduce(context, *, stale):
    total = torch.ones(4)
    dist.all_reduce(total)
    dist.all_reduce(total, op=dist.ReduceOp.MAX if stale and context.rank else dist.ReduceOp.SUM)
    context.emit("reduced", total=total.tolist())
"""
SCENARIO = """
schema: 1
id: same-calls
title: Every rank makes the same calls
question: Does every rank make the same calls?
subject:
  entry: subject:reduce
  candidate: {with: {stale: false}}
  control:
    with: {stale: true}
    must_fail: {check: in-step, ranks: every}
matrix: {ranks: [2], backend: [gloo]}
observe: [collectives, digests]
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 3, accept: {failure_rate_below: 50%}}
checks:
  - {id: in-step, kind: ledger-agrees, ranks: every}
  - {id: intact, kind: transfers-intact, ranks: every}
"""
NOTE, FOUND = "ledgers.compared", "artefact.found"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(scope="module")
def ran(place: Path) -> Ran:
    """One run of it."""
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(SUBJECT)
    return run_command(place, "run", str(folder))


def worked_out(folder: Path) -> Record:
    """The record that the evidence gives."""
    names = evidence_among(forge.names(folder))
    return assemble(lambda name: (folder / name).read_bytes(), names)


def trial(folder: Path, name: str) -> Path:
    return folder / f"evidence/ranks-2-backend-gloo/{name}/events.jsonl"


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trial(folder, name).read_text().splitlines()]


def rewrite(folder: Path, name: str, made: list[dict[str, Any]]) -> None:
    trial(folder, name).write_text(
        "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in made)
    )


def digest(folder: Path, name: str, rank: int) -> str:
    (found,) = [one for one in events(folder, name) if one["name"] == FOUND and one["rank"] == rank]
    return str(found["values"]["sha256"])


@pytest.mark.long
def test_the_report_names_the_first_call_that_differs(ran: Ran, place: Path) -> None:
    """Both ranks, both calls, both lines.

    The verifier holds the ledgers against each other again.
    """
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    lines = [1 + number for number, line in enumerate(SUBJECT.splitlines()) if "MAX" in line]
    at = f"at subject.py:{lines[0]}"
    assert (
        f"rank 0 made all_reduce #2 of 4 float32 (sum) {at}, rank 1 made all_reduce #2 of 4 float32"
        f" (max) {at}" in report
    )
    assert len(list((ran.folder / FOLDER).iterdir())) == 16
    fingerprint = find_signer(
        explicit=str(place / "home/.local/share/rankproof/signing_key")
    ).fingerprint
    found = run_command(place, "verify", str(ran.folder / "report.md"), "--signer", fingerprint)
    assert (found.code, "the ledgers of 8 trials compared again" in found.out) == (
        0,
        True,
    ), found.out


def changed_file(folder: Path) -> None:
    path = folder / FOLDER / f"{digest(folder, 'control-00000', 1)}.bin"
    path.write_bytes(path.read_bytes().replace(b"max", b"sum"))


def missing_file(folder: Path) -> None:
    (folder / FOLDER / f"{digest(folder, 'control-00000', 1)}.bin").unlink()


def changed_note(folder: Path) -> None:
    """No difference any more."""
    made = events(folder, "control-00000")
    for one in made:
        if one["name"] == NOTE:
            one["values"]["checks"]["in-step"] = {"matched": [2, 2], "difference": None}
    rewrite(folder, "control-00000", made)


def changed_stand(folder: Path) -> None:
    """Another call in which a rank stood, which no check looks at."""
    made = events(folder, "candidate-00000")
    for one in made:
        if one["name"] == NOTE:
            one["values"]["ranks"][0]["calls"] = 3
    rewrite(folder, "candidate-00000", made)


def changed_transfers(folder: Path) -> None:
    """As if the digests of the control's second call had been compared."""
    made = events(folder, "control-00000")
    for one in made:
        if one["name"] == NOTE:
            one["values"]["checks"]["intact"] = {"compared": [2, 2], "left": [0, 0], "damage": None}
    rewrite(folder, "control-00000", made)


def no_note(folder: Path) -> None:
    rewrite(
        folder,
        "control-00000",
        [one for one in events(folder, "control-00000") if one["name"] != NOTE],
    )


def two_notes(folder: Path) -> None:
    made = events(folder, "candidate-00000")
    rewrite(
        folder,
        "candidate-00000",
        [again for one in made for again in [one] * (1 + (one["name"] == NOTE))],
    )


def not_stored(folder: Path) -> None:
    """There was room for them: what is left out could be anything."""
    for name in [path.parent.name for path in folder.glob("evidence/*/*/events.jsonl")]:
        made = events(folder, name)
        for one in made:
            if one["name"] == FOUND:
                one["values"]["stored"] = False
        rewrite(folder, name, made)
    shutil.rmtree(folder / FOLDER)


def of_another_trial(folder: Path) -> None:
    """The control's ledgers in the candidate's place, with everything that the events say of
    them.
    """
    swap(folder, "candidate-00000", "control-00000")


def swap(folder: Path, name: str, source: str) -> None:
    """Give a trial the ledgers of another one and its note."""
    donor = {(one["name"], one["rank"]): one["values"] for one in events(folder, source)}
    made = events(folder, name)
    gone = {digest(folder, name, rank) for rank in range(2)}
    for one in made:
        if one["name"] in (FOUND, NOTE):
            one["values"] = donor[one["name"], one["rank"]]
    rewrite(folder, name, made)
    for one in gone:
        (folder / FOLDER / f"{one}.bin").unlink()


def good_ledgers_for_broken_code(folder: Path) -> None:
    swap(folder, "control-00000", "candidate-00000")


@pytest.mark.parametrize(
    "forgery",
    [
        *(
            changed_file,
            missing_file,
            changed_note,
            changed_transfers,
            changed_stand,
            no_note,
            two_notes,
            not_stored,
        ),
        *(of_another_trial, good_ledgers_for_broken_code),
    ],
)
def test_a_changed_ledger_or_note_is_refused(
    ran: Ran, tmp_path: Path, forgery: Callable[[Path], None]
) -> None:
    """Whatever is signed again: the files give another note, or are not those that the events
    name.
    """
    folder = tmp_path / "copy"
    shutil.copytree(ran.folder, folder)
    assert worked_out(folder).judgement.verdict == "PASS"
    forgery(folder)
    with pytest.raises((RecordError, FileNotFoundError)):
        worked_out(folder)


HOSTILE = """
import os
from pathlib import Path
import torch.distributed as dist

def serve(context, *, how, taken):
    dist.barrier()
    if not taken:
        return
    ledger = context._kept / "collectives.ledger.bin"
    if how == "keeps":
        context.keep("collectives.ledger", b"mine")
    elif how == "writes":
        ledger.write_bytes(b"\\xff" * 5000)
    elif how == "links":
        ledger.unlink()
        ledger.symlink_to("/etc/passwd")
    elif how == "moves":
        context._kept.rename(context._kept.with_name("elsewhere"))
        Path(context._kept).symlink_to(os.environ["HOME"])
"""


TAKEN = {
    "keeps": "it raised CannotKeep",
    "writes": "the file that it left is not a ledger: it does not begin with the header of a ledger",
    "links": "it left no ledger",
    "moves": "it left no ledger",
}


@pytest.mark.long
def test_a_subject_that_takes_its_ledger_away_does_not_pass(tmp_path: Path) -> None:
    """The name is taken, and whatever lies in its place is not a ledger.

    Nothing is written where a link points to.
    """
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "subject.py").write_text(HOSTILE)
    text = SCENARIO.replace("subject:reduce", "subject:serve")
    text = text.replace("stale: false", "taken: true").replace("stale: true", "taken: false")
    text = text.replace("backend: [gloo]", f"backend: [gloo], how: [{', '.join(TAKEN)}]")
    text = text.replace("candidate: 5, control: 3", "candidate: 1, control: 1")
    (folder / "scenario.yaml").write_text(text)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 1, ran.out + ran.err
    for cell, why in zip(ran.record.judgement.cells, TAKEN.values(), strict=True):
        assert cell.candidate is not None
        assert cell.control is not None
        reasons = [" ".join(one.reasons) for one in cell.candidate.trials[0].failures]
        assert [one for one in reasons if why in one], reasons
        # Of the arm that leaves it alone, it has the one call.
        (left,) = cell.control.trials[0].failures
        assert "none of its calls (1) was compared" in left.reasons[0]
    assert (
        "an artefact named collectives.ledger was already saved"
        in (ran.folder / "report.md").read_text()
    )


@pytest.mark.whole
def test_the_shipped_scenario_says_in_which_call_each_rank_hung(tmp_path: Path) -> None:
    """With fewer trials: the control's hang is proved, and above each stack stands the call in
    which the rank was.
    """
    few = ("--set", "trials.candidate=5", "--set", "trials.control=2", "--set", "matrix.ranks=[3]")
    few = (*few, "--set", "trials.accept.failure_rate_below=50%")
    ran = run_command(tmp_path, "run", str(ROOT / "scenarios" / "one-sided-cancel"), *few)
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "by its ledger in barrier #7 at subject.py:24" in report
    assert "by its ledger in all_reduce #7 of 8 float32 (sum) at subject.py:44" in report
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    (failure,) = [one for one in cell.control.trials[0].failures if one.check == "in-step"]
    assert failure.ranks == [0]
