"""The ladder: a model split over ranks is judged against the whole, and again by whoever
verifies.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.trust.key import find_signer
from tests.kit import forge
from tests.kit.commands import ROOT, Ran, run_command
from tests.kit.sums import signer

pytestmark = [pytest.mark.slow, pytest.mark.whole]  # a run, verified and forged

CELL = "ranks-2-backend-gloo"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The shipped scenario with gloo, up to two ranks."""
    holds = "subject.control.must_fail.cells={ranks: [2]}"
    # Too few for a verdict, and enough for what is asked here.
    few = ("trials.candidate=1", "trials.control=1")
    sets = ("matrix.ranks=[1, 2]", "matrix.backend=[gloo]", "matrix.exclude=[]", holds, *few)
    options = [word for one in sets for word in ("--set", one)]
    scenario = str(ROOT / "scenarios/single-vs-distributed/scenario.yaml")
    return run_command(tmp_path_factory.mktemp("ladder"), "run", scenario, *options)


def test_the_first_wrong_rung_is_named_with_what_was_found_beside_it(ran: Ran) -> None:
    """A bias that is added once per rank: right with one rank, wrong with two, in the first layer,
    on both ranks.
    """
    assert ran.code == 2, ran.out
    one, two = ran.record.judgement.cells
    assert [cell.candidate.failed for cell in (one, two) if cell.candidate is not None] == [0, 0]
    assert one.attributions == {}
    found = two.attributions["control"]
    words = {cause.what: cause.word for cause in found.causes}
    assert words["already wrong in a world with one rank"] == "excluded"
    assert words["the ranks do not have the sharded checkpoint"] == "found"
    assert words["a rank does not participate"] == "excluded"
    assert words["a collective returns wrong elements"] == "open"
    assert (found.first_rung, found.where.partition(",")[0]) == (2, "layer 0")
    shown = {row.check: row.cells[0].shown for row in two.samples["candidate"].rows if row.cells}
    assert shown["same-model"].startswith("EQUIVALENT: 32 prefill positions off by")
    smallest = "size 0.0001 (relative error in the weights of layer 1)"
    assert f"would detect a defect of {smallest}" in shown["same-model"]


def test_what_is_wrong_in_a_world_of_one_is_attributed_to_it(tmp_path: Path) -> None:
    """A rope base that each rank has wrong by itself: both rungs say so, and nothing between ranks
    is blamed.
    """
    holds = "subject.control.must_fail.cells={ranks: [1, 2]}"
    folder = ROOT / "scenarios/single-vs-distributed"
    ran = few(
        tmp_path,
        folder,
        "matrix.ranks=[1, 2]",
        "subject.control.with.defect=rope-base",
        holds=holds,
    )
    assert ran.code == 2, ran.out + ran.err
    for cell in ran.record.judgement.cells:
        assert [arm.failed for arm in (cell.candidate, cell.control) if arm is not None] == [0, 1]
        found = cell.attributions["control"]
        words = {cause.what: cause.word for cause in found.causes}
        assert (words["already wrong in a world with one rank"], found.first_rung) == ("found", 1)
        assert words["the ranks do not have the sharded checkpoint"] == "excluded"
        assert found.remains == "already wrong in a world with one rank"


# The whole model on every rank, which tells the truth of what it holds, and sums that nobody needs.
UNSPLIT = """
import subject
import torch
from model import Whole, content_of, weights

class Unsplit(subject.Distributed):
    def load(self):
        for name in self.file.keys():
            self.take(name)
        self.whole = Whole(self.weights)

    def begin(self, *, notes=False):
        self.tokens, self.hidden, self.notes = [], {}, notes

    def end_notes(self):
        self.notes = False
        return self.hidden

    def forward(self, tokens):
        self.wire.summed(torch.zeros(8))
        self.tokens += tokens
        logits, hidden, _ = self.whole.forward(self.tokens)
        for name, state in hidden.items() if self.notes else ():
            self.hidden.setdefault(name, []).append(state[-len(tokens):])
        return logits[-len(tokens):]

def distributed(context, *, unsplit=True, **given):
    if unsplit or context.size == 1:
        subject.Distributed = Unsplit
    subject.distributed(context, **given)

whole = subject.whole
"""
FEW = (
    "matrix.ranks=[2]",
    "matrix.backend=[gloo]",
    "matrix.exclude=[]",
    "trials.candidate=1",
    "trials.control=1",
)


def few(
    place: Path,
    folder: Path,
    *sets: str,
    holds: str = "subject.control.must_fail.cells={ranks: [2]}",
) -> Ran:
    """A run of one trial of each arm, in two ranks."""
    options = [word for one in (*FEW, holds, *sets) for word in ("--set", one)]
    return run_command(place, "run", str(folder / "scenario.yaml"), *options)


def test_a_model_that_lies_whole_on_every_rank_does_not_pass(tmp_path: Path) -> None:
    """Its logits are those of the whole, and it sums zeros: no rank moves another one, and
    everything lies twice.
    """
    folder = tmp_path / "scenario"
    shutil.copytree(ROOT / "scenarios/single-vs-distributed", folder)
    (folder / "unsplit.py").write_text(UNSPLIT)
    entries = ("subject.entry=unsplit:distributed", "subject.reference.entry=unsplit:whole")
    ran = few(
        tmp_path, folder, *entries, "subject.control.with={unsplit: false, defect: bias-per-rank}"
    )
    assert ran.code == 1, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.candidate is not None
    failed = {
        failure.check: failure.reasons[0]
        for trial in cell.candidate.trials
        for failure in trial.failures
    }
    assert failed.keys() == {"takes-part", "covers"}
    assert "it has no influence" in failed["takes-part"]
    assert "head is on ranks 0, 1 " in failed["covers"]


def test_two_arms_that_are_wrong_alike_do_not_pass(tmp_path: Path) -> None:
    """The same code in both is refused before it runs.

    Where the candidate fails as the control does, it is FAIL.
    """
    folder = ROOT / "scenarios/single-vs-distributed"
    ran = few(tmp_path, folder, "subject.candidate.with.defect=bias-per-rank")
    assert ran.code not in (0, 1), ran.out + ran.err
    assert not (ran.results / "latest").exists()
    ran = few(tmp_path, folder, "subject.candidate.with.defect=half-message")
    assert (ran.code, ran.record.judgement.verdict) == (1, "FAIL"), ran.out + ran.err


def edit(folder: Path, trial: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the account of `same-model` in a trial."""
    path = folder / f"evidence/{CELL}/{trial}/events.jsonl"
    lines = []
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["name"] == "artefacts.accounted" and event["values"]["check"] == "same-model":
            change(event["values"])
        lines.append(json.dumps(event, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n")


def of_the_candidate(folder: Path) -> None:
    """The control's account is that of a trial that passed."""
    accounts: list[Any] = []
    edit(folder, "candidate-00000", lambda values: accounts.append(values["account"]))
    edit(folder, "control-00000", lambda values: values.update(account=accounts[0]))


def wider(folder: Path) -> None:
    """The noise of the reference is more than it was."""
    edit(
        folder,
        "candidate-00000",
        lambda values: values["account"]["phases"]["prefill"].update(most=1.0),
    )


def of_fewer(folder: Path) -> None:
    """A file is left out, and the account with it says that it cannot be compared."""
    edit(folder, "candidate-00000", lambda values: values["files"].pop("1/prefill.logits.0"))


def missing(folder: Path) -> None:
    path = folder / f"evidence/{CELL}/control-00000/events.jsonl"
    path.write_text(
        "".join(
            f"{line}\n"
            for line in path.read_text().splitlines()
            if "artefacts.accounted" not in line
        )
    )


@pytest.mark.parametrize("forgery", [of_the_candidate, wider, of_fewer, missing])
def test_a_forged_account_is_refused_under_a_good_signature(
    ran: Ran, tmp_path: Path, forgery: Callable[[Path], None]
) -> None:
    """Whoever signs it again: the artefacts give another account, or it is not there."""
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    forgery(folder)
    forge.work_out(folder)
    place = ran.results.parent
    forge.sign(folder, signer(place))
    fingerprint = find_signer(explicit=str(signer(place))).fingerprint
    found = run_command(place, "verify", str(folder / "report.md"), "--signer", fingerprint)
    assert (found.code, "JUDGED DIFFERENTLY" in found.out) == (3, True), found.out
