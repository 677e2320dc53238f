"""Scenarios with faults, from the file to a verified report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.forms import manifest
from harness.record.model import Record
from harness.report.report import render
from harness.trust import footer
from harness.trust.key import find_signer
from tests.kit.commands import SCENARIO, SUBJECT, Ran

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Write = Callable[..., Path]
PAUSE = "faults: [{id: late, kind: pause, ranks: [1], at: met, for: 50ms}]\n"


def signer(ran: Ran) -> str:
    return next(
        line.split("--signer ")[1].strip() for line in ran.out.splitlines() if "--signer " in line
    )


def sign_again(ran: Ran) -> None:
    """Make manifest and report again from what lies in the folder, signed with the key that signed
    before.
    """
    folder = ran.folder
    for name in ("attestation.dsse.json", "report.html", "junit.xml"):
        (folder / name).unlink(missing_ok=True)
    digests = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("report.md", "MANIFEST.sha256")
    }
    listing = manifest.encode(digests)
    record = Record.decode((folder / "results.json").read_bytes())
    body = render(record, manifest_digest=hashlib.sha256(listing).hexdigest())
    key = find_signer(explicit=str(ran.results.parent / "home/.local/share/rankproof/signing_key"))
    (folder / "MANIFEST.sha256").write_bytes(listing)
    (folder / "report.md").write_bytes(footer.attach(body, key.sign(footer.signed_part(body))))


@pytest.mark.whole
def test_a_pause_is_proved_in_a_report_that_verifies(scenario: Write, rankproof: Run) -> None:
    """PASS; every strike is proved by lines the report links to.

    A control that fails before the strike counts.
    """
    ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO + PAUSE})))
    assert ran.code == 0, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    assert cell.candidate is not None
    assert cell.control is not None
    strikes = [strike for trial in cell.candidate.trials for strike in trial.strikes]
    assert [strike.proved and strike.struck and strike.undone for strike in strikes] == [True] * 5
    assert (cell.control.counted, cell.control.as_stated) == (2, 2)
    assert not any(strike.struck for trial in cell.control.trials for strike in trial.strikes)
    report = (ran.folder / "report.md").read_text()
    section = report.partition("## Faults\n")[2].partition("\n## ")[0]
    assert (
        report.index("## Negative control")
        < report.index("## Faults")
        < report.index("## What changed")
    )
    assert "| `late` | candidate | 5 | 5 | 5 | 5 | trial 0, rank 1: stopped" in section.replace(
        "[trial 0", "trial 0"
    )
    for line in strikes[0].lines[-2:]:
        assert f"candidate-00000/events.jsonl#L{line}" in section
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out
    assert "judged     ok" in verified.out


@pytest.mark.whole
def test_evidence_without_the_proof_is_refused(scenario: Write, rankproof: Run) -> None:
    """Taking any event of the proof out of one trial, and signing again with the allowed key, is
    refused.
    """
    ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO + PAUSE})))
    events = (
        ran.folder
        / "evidence"
        / ran.record.judgement.cells[0].slug
        / "candidate-00003"
        / "events.jsonl"
    )
    whole = events.read_text()
    for name in ("rank.stopped", "rank.continued", "fault.struck", "fault.undone"):
        kept = [line for line in whole.splitlines(keepends=True) if f'"name":"{name}"' not in line]
        assert len(kept) == len(whole.splitlines()) - 1
        events.write_text("".join(kept))
        sign_again(ran)
        refused = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
        assert refused.code == 3, name
        # Without its proof the trial is void, and no other was made in its place.
        assert "TRIALS NOT PLANNED" in refused.out


def test_a_fault_that_cannot_land_makes_its_trials_void(scenario: Write, rankproof: Run) -> None:
    """An event that is never said: every trial is void and says why, two are replaced,
    INCONCLUSIVE.
    """
    text = SCENARIO + PAUSE.replace("at: met", "at: never.said")
    ran = rankproof("run", str(scenario({"scenario.yaml": text})))
    assert ran.code == 2, ran.out + ran.err
    candidate = ran.record.judgement.cells[0].candidate
    assert candidate is not None
    assert (len(candidate.trials), candidate.voids, candidate.counted) == (7, 7, 0)
    why = "fault late on rank 1 has no proof: it never emitted never.said, and returned"
    assert {str(trial.void) for trial in candidate.trials} == {why}
    assert why in ran.out
    report = (ran.folder / "report.md").read_text()
    assert "NOT proved: it never emitted never.said" in report
    assert "candidate 0: fault late on rank 1 has no proof" in report
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out


@pytest.mark.parametrize(
    "how",
    ["raise LookupError", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"],
    ids=["raise", "exit", "kill"],
)
def test_a_candidate_that_dies_before_the_strike_is_a_fail(
    scenario: Write, rankproof: Run, how: str
) -> None:
    """No candidate voids its own failure by failing before the fault can land, however many voids
    are allowed.
    """
    subject = SUBJECT.replace("    assert thing", f"    assert thing\n    if context.rank: {how}")
    folder = scenario({"scenario.yaml": SCENARIO + PAUSE, "subject.py": subject})
    ran = rankproof("run", str(folder), "--set", "trials.max_voids=50")
    assert ran.code == 1, ran.out + ran.err
    candidate = ran.record.judgement.cells[0].candidate
    assert candidate is not None
    assert (candidate.failed, candidate.voids) == (5, 0)


def test_a_candidate_that_avoids_the_strike_and_fails_is_a_fail(
    scenario: Write, rankproof: Run
) -> None:
    """A candidate that never says its event and fails a check fails: the missing proof takes
    nothing away from that.
    """
    subject = SUBJECT.replace("    context.emit", "    if context.rank == 0:\n        context.emit")
    ran = rankproof(
        "run", str(scenario({"scenario.yaml": SCENARIO + PAUSE, "subject.py": subject}))
    )
    assert ran.code == 1, ran.out + ran.err


def test_a_rank_that_a_fault_kills_need_not_return(scenario: Write, rankproof: Run) -> None:
    """What rank 0 does when rank 1 is killed can be a claim: the killed rank is not a failure, says
    the report.
    """
    text = SCENARIO.replace("ended, kind: exit, ranks: every", "ended, kind: exit, ranks: [0]")
    fault = "faults: [{id: gone, kind: kill, ranks: [1], at: met}]\n"
    ran = rankproof("run", str(scenario({"scenario.yaml": text + fault})))
    assert ran.code == 0, ran.out + ran.err
    assert "ended by fault gone" in (ran.folder / "report.md").read_text()


def test_what_a_fault_ended_is_not_blamed_on_nobody(scenario: Write, rankproof: Run) -> None:
    """Where the others do not survive a fault, the first failure is named as the fault's, the rest
    as consequences.
    """
    fault = "faults: [{id: gone, kind: kill, ranks: [1], at: met}]\n"
    ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO + fault})))
    assert ran.code == 1, ran.out + ran.err
    candidate = ran.record.judgement.cells[0].candidate
    assert candidate is not None
    first = candidate.trials[0].first
    assert first is not None
    assert (first.rank, first.what) == (1, "ended by fault gone: SIGKILL")


@pytest.mark.whole
def test_a_variable_that_is_read_at_import_makes_the_run_fresh(
    scenario: Write, rankproof: Run
) -> None:
    """Such a fault starts every rank in a new interpreter, which the record and `lint` say."""
    fault = 'faults: [{id: other, kind: env, ranks: [1], set: {OMP_NUM_THREADS: "2"}}]\n'
    text = SCENARIO.replace("candidate: 5,", "candidate: 2,").replace(", start: fresh", "")
    folder = scenario({"scenario.yaml": text + fault})
    ran = rankproof("run", str(folder), "--set", "trials.accept.failure_rate_below=90%")
    assert ran.record.run.start == "fresh"
    candidate = ran.record.judgement.cells[0].candidate
    assert candidate is not None
    assert [strike.description for strike in candidate.trials[0].strikes] == [
        "there OMP_NUM_THREADS is '2'"
    ]
    assert "so every rank starts in a" in rankproof("lint", str(folder)).out


@pytest.mark.whole
def test_the_late_rank_scenario_passes(rankproof: Run) -> None:
    """The shipped scenario ends as it claims, with every strike proved in both arms."""
    ran = rankproof("run", str(Path(__file__).parents[2] / "scenarios" / "late-rank"))
    assert ran.code == 0, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    arms = [arm for arm in (cell.candidate, cell.control) if arm is not None]
    strikes = [strike for arm in arms for trial in arm.trials for strike in trial.strikes]
    assert len(strikes) == 19
    assert all(strike.proved for strike in strikes)


def test_a_fault_of_one_arm_strikes_that_arm_alone(scenario: Write, rankproof: Run) -> None:
    """An upstream finding may ask what a fault alone does: the same code in both arms, one of them
    struck.
    """
    text = SCENARIO.replace("question:", "role: upstream\nquestion:", 1)
    text = text.replace("with: {broken: true}", "with: {broken: false}")
    text = text.replace(
        "error: AssertionError, source: assert thing", "error: OSError, message: torn"
    )
    struck = (
        "faults: [{id: torn, kind: raise, arm: control, ranks: nonzero, at: met, error: OSError,"
        " message: torn}]\n"
    )
    text = text.replace("check: met,", "check: ended,")
    ran = rankproof("run", str(scenario({"scenario.yaml": text + struck})))
    cell = ran.record.judgement.cells[0]
    assert (cell.verdict, cell.reasons) == ("PASS", [])
    assert cell.candidate is not None
    assert cell.control is not None
    assert not any(trial.strikes for trial in cell.candidate.trials)
    assert all(strike.proved for trial in cell.control.trials for strike in trial.strikes)
    section = (
        (ran.folder / "report.md").read_text().partition("## Faults\n")[2].partition("\n## ")[0]
    )
    assert "Injected into both arms, except where one arm is named:" in section
    assert "of the control only" in section
    assert "| candidate |" not in section
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out
