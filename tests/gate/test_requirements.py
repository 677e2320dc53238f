"""For each requirement of a policy, a report in which exactly that one refuses."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from harness.gate.basis import read_basis
from harness.gate.decision import Decision, Requirement, requirements
from harness.gate.objects import Objects
from harness.gate.reports import Report
from harness.reason import Skip, SkipCode
from harness.record.facts import RevisionFacts
from harness.record.model import Record
from harness.stats.verdict import CellVerdict
from tests.kit.pull_requests import CELLS, POLICY, SCENARIO, Copy, Keys, Place, not_met, row
from tests.kit.repositories import git

pytestmark = pytest.mark.slow  # together they take more than the inner loop has

Make = Callable[[], Copy]


def test_the_gate_opens_for_a_real_run_as_it_was_signed(place: Place, original: object) -> None:
    """A run of the pull request, signed by CI and untouched, opens the gate.

    Every requirement says why it is met.
    """
    from pathlib import Path

    assert isinstance(original, Path)
    shutil.copytree(original / "results", place.results, symlinks=True, dirs_exist_ok=True)
    found = place.gate()
    assert (found.answer, not_met(found)) == ("OPEN", {})
    assert all(one.reason for one in found.requirements)
    assert (found.commit, found.trusted and found.trusted.commit) == (place.commit, place.trusted)


def test_a_copy_that_is_signed_again_opens_it_too(place: Place, copy: Make) -> None:
    """What these tests change is all that differs: an unchanged copy opens the gate."""
    copy().sign()
    assert not_met(place.gate()) == {}


STRANGE = {"distribution": "brings-mine", "version": "1.0", "sha256": "0" * 64}


@pytest.mark.parametrize("listed", [False, True])
def test_what_a_run_had_imported_is_the_policys_to_allow(
    place: Place, copy: Make, listed: bool
) -> None:
    """A distribution with kinds that was imported may have changed what judges, whether or not a
    kind of it is used.
    """
    if listed:
        place.policy(base=POLICY + "plugins: [{distribution: brings-mine}]\n")
    copy().facts(imported=[STRANGE]).sign()
    found = place.gate()
    assert not_met(found) == ({} if listed else {"plugins": "REFUSED"})
    counted = "0 plug-ins used, 1 distribution with plug-ins imported, accepted by the policy"
    assert (counted if listed else "had imported brings-mine 1.0") in row(found, "plugins").reason


EVIL_PTH = {"name": "evil.pth", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("listed", "met"),
    [
        ("[{name: evil.pth}]", True),
        (f"[{{name: evil.pth, sha256: '{'0' * 64}'}}]", True),
        (f"[{{name: evil.pth, sha256: '{'1' * 64}'}}]", False),
        ("[{name: good.pth}]", False),
        ("[]", False),
        (None, True),
    ],
)
def test_what_python_read_at_its_start(
    place: Place, copy: Make, listed: str | None, met: bool
) -> None:
    """A `.pth` file may import anything before anybody's code runs: a policy can list those that
    may be there.
    """
    if listed is not None:
        place.policy(base=POLICY + f"environment: {{start_files: {listed}}}\n")
    copy().facts(environment={"start_files": [EVIL_PTH]}).sign()
    assert not_met(place.gate()) == ({} if met else {"start_files": "REFUSED"})


def test_a_scenario_without_a_report_is_missing(place: Place) -> None:
    """No report at all closes the gate: nothing failed is not the same as something passed."""
    found = place.gate()
    assert (found.answer, not_met(found)) == ("CLOSED", {"report": "MISSING"})


def test_one_of_two_scenarios_is_missing(place: Place, copy: Make) -> None:
    """A scenario that was not run closes the gate, however well the others passed."""
    place.trust(
        {
            ".rankproof/policy.yaml": POLICY + "  - {scenario: more}\n",
            "scenarios/more/scenario.yaml": SCENARIO.replace("id: words", "id: more"),
        }
    )
    copy().sign()
    found = place.gate()
    assert found.answer == "CLOSED"
    assert [(one.scenario, one.word) for one in found.requirements if one.word != "MET"] == [
        ("more", "MISSING")
    ]


@pytest.mark.parametrize(("key", "why"), [("alice", "signs as developer"), ("ci-two", "")])
def test_the_role_of_the_signer(place: Place, copy: Make, key: str, why: str) -> None:
    """A developer's report does not count where CI or release is asked.

    Any key of a role that is asked does.
    """
    copy().sign(key)
    found = place.gate()
    assert not_met(found) == ({"signer": "REFUSED"} if why else {})
    assert why in row(found, "signer").reason


def test_a_signer_without_a_role(place: Place, copy: Make) -> None:
    """A key that is allowed and has no role in the policy counts for nothing."""
    place.policy(base=POLICY.replace(", ci-two]", "]"))
    copy().sign("ci-two")
    assert not_met(place.gate()) == {"signer": "REFUSED"}


def test_a_candidate_from_another_revision(place: Place, copy: Make) -> None:
    """A candidate that was laid out from a revision must be of the commit under test."""
    base = git(place.repo, "rev-parse", "HEAD~1")
    tree = git(place.repo, "rev-parse", "HEAD~1^{tree}")
    weaker = SCENARIO.replace(
        'candidate: {with: {word: "yes"}}', 'candidate: {rev: HEAD~1, with: {word: "yes"}}'
    )
    place.trust({"scenarios/words/scenario.yaml": weaker})
    place.propose({"scenarios/words/scenario.yaml": weaker})
    facts = {
        "repo": None,
        "rev": "HEAD~1",
        "commit": base,
        "tree": tree,
        "patch": None,
        "folder": "engine",
    }
    made = (
        copy()
        .scenario(lambda _: weaker)
        .facts(revisions={"candidate": facts}, source={"commit": place.commit})
    )
    made.sign()
    found = place.gate()
    assert not_met(found) == {"commit": "REFUSED"}
    assert base[:12] in row(found, "commit").reason
    made.facts(revisions={"candidate": {**facts, "commit": place.commit}}).sign()
    assert not_met(place.gate()) == {}


def test_a_candidate_from_another_repository(place: Place, copy: Make) -> None:
    """Code of another repository is not the commit; a policy may say that it is meant."""
    theirs = SCENARIO.replace(
        'candidate: {with: {word: "yes"}}', 'candidate: {repo: ../../../x, with: {word: "yes"}}'
    )
    place.trust({"scenarios/words/scenario.yaml": theirs})
    place.propose({"scenarios/words/scenario.yaml": theirs})
    facts = {
        "repo": "./x",
        "rev": "HEAD",
        "commit": "0" * 40,
        "tree": "1" * 40,
        "patch": None,
        "folder": "engine",
    }
    copy().scenario(lambda _: theirs).facts(
        revisions={"candidate": facts}, source={"commit": place.commit}
    ).sign()
    assert not_met(place.gate()) == {"commit": "REFUSED"}
    place.policy(
        base=POLICY.replace("{scenario: words}", "{scenario: words, candidate: elsewhere}")
    )
    found = place.gate()
    assert not_met(found) == {}
    assert "./x" in row(found, "commit").reason


@pytest.mark.parametrize("dirty", [True, None])
def test_a_tree_that_was_changed(place: Place, copy: Make, dirty: bool | None) -> None:
    """A changed tree, or one that git could not speak of, is not the commit.

    A policy may accept it.
    """
    copy().facts(source={"dirty": dirty}).sign()
    assert not_met(place.gate()) == {"tree": "REFUSED"}
    place.policy("tree: any")
    found = place.gate()
    assert not_met(found) == {}
    # No row says that the commit's code ran.
    assert (
        row(found, "commit").reason
        == f"according to the report, it ran in a checkout of {place.commit[:12]}"
    )
    assert row(found, "tree").reason == "not required"
    assert "the candidate ran" not in row(found, "code").reason


def test_code_that_is_not_the_commits(place: Place, copy: Make) -> None:
    """Code that git ignores leaves the tree clean.

    It is found by comparing what ran with the commit.
    """
    made = copy()
    for arm in ("candidate", "control"):
        (made.folder / "evidence/source" / arm / "extra.sh").write_text("exit 0\n")
    events = made.folder.glob("evidence/ranks-*/*/events.jsonl")
    fold = hashlib.sha256(
        b"".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n".encode()
            for path in sorted((made.folder / "evidence/source/candidate").iterdir())
        )
    ).hexdigest()
    script = hashlib.sha256(
        (made.folder / "evidence/source/candidate/rank.sh").read_bytes()
    ).hexdigest()
    before = hashlib.sha256(f"{script}  rank.sh\n".encode()).hexdigest()
    for path in events:
        path.write_text(path.read_text().replace(before, fold))
    made.sign()
    found = place.gate()
    assert not_met(found) == {"tree": "REFUSED"}
    assert "candidate: extra.sh" in row(found, "tree").reason


@pytest.mark.parametrize(
    ("revision", "use", "ran"),
    [
        (None, None, "the commit's code"),
        ({"patch": "a.patch"}, None, "the commit's code with the scenario's patch"),
        ({"repo": "./x"}, None, "code of ./x"),
        (None, "torch-pipeline", "the ready-made subject torch-pipeline"),
    ],
)
def test_the_row_names_whose_code_ran(
    place: Place, copy: Make, revision: dict[str, str] | None, use: str | None, ran: str
) -> None:
    """Where a patch, another repository or a ready-made subject was the candidate, the row does not say
    the commit alone.
    """
    record = Record.decode((copy().sign().folder / "results.json").read_bytes())
    if revision is not None:
        facts = {
            "repo": None,
            "rev": "HEAD",
            "commit": place.commit,
            "tree": "1" * 40,
            "patch": None,
            "folder": "x",
        }
        arm = record.arms["candidate"].model_copy(
            update={"revision": RevisionFacts.model_validate(facts | revision)}
        )
        record = record.model_copy(update={"arms": {**record.arms, "candidate": arm}})
    scenario = record.scenario.model_copy(update={"use": use, "program": []})
    rows = _rows(place, record.model_copy(update={"scenario": scenario}))
    reason = next(found.reason for found in rows if found.name == "code")
    assert reason.startswith(f"the candidate ran {ran}, according to the files that ranks report")


def test_a_finding_counts_for_no_release(place: Place, copy: Make) -> None:
    """A PASS of role `upstream` is about somebody else's code: the rule about verdicts refuses it
    by itself.
    """
    record = Record.decode((copy().sign().folder / "results.json").read_bytes())
    assert record.judgement.verdict == "PASS"
    finding = record.model_copy(
        update={"scenario": record.scenario.model_copy(update={"role": "upstream"})}
    )
    assert _decided(place, record) == {}
    assert _decided(place, finding) == {"verdict": "REFUSED"}


def test_a_failure(place: Place, copy: Make) -> None:
    """A FAIL closes the gate."""
    copy().fails().sign()
    assert place.gate().answer == "CLOSED"


def test_an_inconclusive_run_cannot_tell(place: Place, copy: Make) -> None:
    """A control that did not fail leaves the gate unable to tell: exit 2, and never open."""
    copy().is_inconclusive().sign()
    found = place.gate()
    assert not_met(found) == {"verdict": "CANNOT TELL", "control": "REFUSED"}


def test_too_few_trials_to_pass_cannot_tell(place: Place, copy: Make) -> None:
    """A run that was INCONCLUSIVE for want of trials, beside a control that failed, is exit 2 and
    nothing else.
    """
    strict = SCENARIO.replace("failure_rate_below: 50%", "failure_rate_below: 40%")
    place.trust({"scenarios/words/scenario.yaml": strict})
    place.propose({"scenarios/words/scenario.yaml": strict})
    copy().scenario(lambda _: strict).facts(source={"commit": place.commit}).sign()
    found = place.gate()
    assert (found.answer, not_met(found)) == ("CANNOT TELL", {"verdict": "CANNOT TELL"})


def _rows(place: Place, record: Record) -> list[Requirement]:
    """The rows for a report with this record, whoever could have signed it."""
    basis = read_basis(
        Objects(place.repo),
        commit="HEAD",
        path=".rankproof/policy.yaml",
        ref="origin/main",
        now=datetime.now(UTC),
    )
    report = Report(place="x", record=record, signer="ci", key="SHA256:x", roles=("ci",))
    return requirements(replace(basis, locks=frozenset()), [report], [])


def _decided(place: Place, record: Record) -> dict[str, str]:
    """What is not met by a report with this record."""
    return {found.name: found.word for found in _rows(place, record) if found.word != "MET"}


def _with_cells(record: Record, *cells: CellVerdict) -> Record:
    return record.model_copy(
        update={"judgement": record.judgement.model_copy(update={"cells": list(cells)})}
    )


def test_a_skipped_cell_cannot_tell(place: Place, copy: Make) -> None:
    """A skipped cell is not PASS; a policy that names the other cells does not ask for it."""
    record = Record.decode((copy().sign().folder / "results.json").read_bytes())
    first, second = record.judgement.cells
    left_out = {
        "verdict": "SKIPPED",
        "reasons": [Skip(SkipCode.MACHINE_GPUS, "no GPU")],
        "candidate": None,
        "control": None,
    }
    skipped = _with_cells(record, first, second.model_copy(update=left_out))
    assert _decided(place, skipped) == {"cells": "CANNOT TELL"}
    # Control and trials speak of what ran: the skipped cell has neither.
    reasons = {found.name: found.reason for found in _rows(place, skipped)}
    assert reasons["control"] == "a control failed as required in every required cell that ran"
    assert reasons["trials"].endswith("in every required cell that ran")
    place.policy(
        base=POLICY.replace("{scenario: words}", f'{{scenario: words, cells: ["{CELLS[0]}"]}}')
    )
    assert _decided(place, skipped) == {}


def test_a_cell_that_is_called_skipped_beside_one_that_ran(place: Place, copy: Make) -> None:
    """A cell deleted and called skipped, for want of a program that the other cell had, is refused,
    named or not.
    """
    place.policy(
        base=POLICY.replace("{scenario: words}", f'{{scenario: words, cells: ["{CELLS[0]}"]}}')
    )
    made = copy()
    for folder in made.folder.glob("evidence/ranks-2*"):
        shutil.rmtree(folder)
    one = {"id": CELLS[0], "skipped": None, "candidate": 5, "control": 5}
    why = {"code": "skip:machine-program", "text": "program sh: it is not in PATH"}
    made.facts(cells=[one, {"id": CELLS[1], "skipped": why, "candidate": 0, "control": 0}]).sign()
    found = place.gate()
    assert (found.answer, [one.word for one in found.refused]) == (
        "NOT VERIFIED",
        ["SKIP CONTRADICTED"],
    )


def test_a_cell_that_the_scenario_does_not_have(place: Place, copy: Make) -> None:
    """A cell that the policy names and the report lacks is missing."""
    place.policy(
        base=POLICY.replace(
            "{scenario: words}", '{scenario: words, cells: ["ranks=9,backend=none"]}'
        )
    )
    copy().sign()
    found = place.gate()
    assert (found.answer, not_met(found)) == ("CLOSED", {"cells": "MISSING"})


def test_a_control_is_required(place: Place, copy: Make) -> None:
    """Without a control that failed as required, the rule about controls refuses by itself."""
    record = Record.decode((copy().sign().folder / "results.json").read_bytes())
    first, *rest = record.judgement.cells
    bare = _with_cells(record, first.model_copy(update={"control": None}), *rest)
    assert _decided(place, record) == {}
    assert _decided(place, bare)["control"] == "REFUSED"


@pytest.mark.parametrize(
    ("line", "name"), [("trials: {candidate: 6}", "candidate"), ("trials: {control: 6}", "control")]
)
def test_too_few_trials(place: Place, copy: Make, line: str, name: str) -> None:
    """Fewer counted trials than the policy asks for, of either arm and in any cell, refuse."""
    place.policy(line)
    copy().sign()
    found = place.gate()
    assert not_met(found) == {"trials": "REFUSED"}
    assert name in row(found, "trials").reason


def test_a_report_that_is_too_old(place: Place, copy: Make) -> None:
    """A report older than the policy allows refuses; without a limit it counts."""
    copy().made(datetime.now(UTC) - timedelta(days=8)).sign()
    assert not_met(place.gate()) == {}
    place.policy("max_age: 7d")
    found = place.gate()
    assert not_met(found) == {"age": "REFUSED"}
    assert (
        row(found, "age").reason == "it was made 8 days ago, but the policy allows at most 7 days"
    )


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(days=1501, hours=2), "1501 days"),
        (timedelta(days=7, hours=1, minutes=59), "7 days 1 hour"),
        (timedelta(hours=3, seconds=59, microseconds=9), "3 hours"),
        (timedelta(minutes=90), "1 hour 30 minutes"),
        (timedelta(minutes=59, seconds=30), "59 minutes"),
    ],
)
def test_an_age_is_told_in_plain_words(
    place: Place, copy: Make, ago: timedelta, words: str
) -> None:
    """Days, hours and minutes, and no digits that nobody reads: of the past and of a time that is
    still to come.
    """
    made = datetime.now(UTC).replace(microsecond=0)
    copy().made(made).sign()
    assert (
        row(place.gate(now=made + ago), "age").reason
        == f"according to the report, it was made {words} ago"
    )
    assert (
        row(place.gate(now=made - ago), "age").reason
        == f"according to the report, it was made {words} from now"
    )


def test_a_report_from_the_future(place: Place, copy: Make) -> None:
    """A report that says it will be made tomorrow would stay the newest for a day: it refuses,
    limit or no limit.
    """
    copy().made(datetime.now(UTC) + timedelta(days=1)).sign()
    assert not_met(place.gate()) == {"age": "REFUSED"}


def test_a_challenge(place: Place, copy: Make) -> None:
    """A report without the challenge that is asked for, or with another one, refuses.

    The gate may demand one.
    """
    made = copy().sign()
    assert not_met(place.gate(challenge="v1.2 run 7")) == {"challenge": "REFUSED"}
    made.facts(challenge="v1.1 run 6").sign()
    assert not_met(place.gate(challenge="v1.2 run 7")) == {"challenge": "REFUSED"}
    made.facts(challenge="v1.2 run 7").sign()
    assert not_met(place.gate(challenge="v1.2 run 7")) == {}
    place.policy("challenge: required")
    assert not_met(place.gate()) == {"challenge": "MISSING"}
    assert not_met(place.gate(challenge="v1.2 run 7")) == {}


def test_too_many_worlds_at_a_time(place: Place, copy: Make) -> None:
    """More worlds at the same time than the policy allows refuse."""
    place.policy("max_jobs: 2")
    copy().facts(jobs=3).sign()
    assert not_met(place.gate()) == {"jobs": "REFUSED"}


def test_the_nix_environment(place: Place, copy: Make) -> None:
    """A run outside the Nix environment refuses where it is asked for."""
    place.policy("environment: {nix: true}")
    made = copy().sign()
    assert not_met(place.gate()) == {"nix": "REFUSED"}
    nix = {
        "environment": "/nix/store/x-rankproof", "shell": None, "flake_lock_sha256": None, "wheels_sha256": None,
        "nixpkgs": None, "as_locked": True, "source": None, "stale": [], "changed": [], "untracked": [], "driver": [],
    }  # fmt: skip
    made.facts(environment={"nix": nix}).sign()
    assert not_met(place.gate()) == {}
    for wrong in ({"stale": ["flake.lock"]}, {"as_locked": False}):
        made.facts(environment={"nix": nix | wrong}).sign()
        assert not_met(place.gate()) == {"nix": "REFUSED"}


def test_the_lock(place: Place, copy: Make) -> None:
    """The environment's lock must be one of the policy's, as the trusted revision has it."""
    place.policy("environment: {locks: [locks/cpu.txt]}")
    made = copy().facts(environment={"lock": None, "lock_sha256": None}).sign()
    assert not_met(place.gate()) == {"lock": "REFUSED"}
    made.facts(
        environment={"lock": "cpu.txt", "lock_sha256": hashlib.sha256(b"another\n").hexdigest()}
    ).sign()
    assert not_met(place.gate()) == {"lock": "REFUSED"}
    made.facts(
        environment={"lock": "cpu.txt", "lock_sha256": hashlib.sha256(b"a lock\n").hexdigest()}
    ).sign()
    assert not_met(place.gate()) == {}


def test_a_threshold_of_keys(place: Place, copy: Make) -> None:
    """Two keys means two keys: the same one twice is one."""
    place.policy("signatures: {keys: 2}")
    copy().sign("ci")
    copy().sign("ci")
    assert not_met(place.gate()) == {"keys": "REFUSED"}
    copy().sign("ci-two")
    assert not_met(place.gate()) == {}


def test_one_key_under_two_names_is_one_key(place: Place, copy: Make, gate_keys: Keys) -> None:
    """Keys are counted by fingerprint, so a second name for a key adds nothing."""
    place.trust(
        {
            ".rankproof/policy.yaml": (
                POLICY.replace("ci-two", "ci-again") + "signatures: {keys: 2}\n"
            ),
            ".rankproof/allowed_signers": (
                "".join(gate_keys.line(name) for name in ("alice", "ci", "release"))
                + gate_keys.line("ci-again", "ci")
            ),
        }
    )
    copy().sign("ci")
    copy().sign("ci")
    assert not_met(place.gate()) == {"keys": "REFUSED"}


def test_a_key_whose_newest_report_does_not_pass_does_not_count(place: Place, copy: Make) -> None:
    """A second key vouches with its newest report only: an older PASS of it is not taken
    instead.
    """
    place.policy("signatures: {keys: 2}")
    copy().sign("ci-two")
    copy().is_inconclusive().sign("ci-two")
    copy().sign("ci")
    assert not_met(place.gate()) == {"keys": "REFUSED"}


def _words(found: Decision) -> tuple[str, dict[str, str]]:
    return found.answer, not_met(found)


def test_never_retry_until_green(place: Place, copy: Make) -> None:
    """A trusted FAIL of the commit closes the gate, also after a PASS, and by whichever role it was
    signed.
    """
    copy().fails().sign("alice")
    copy().sign("ci")
    assert _words(place.gate()) == ("CLOSED", {"failures": "REFUSED"})


def test_a_policy_may_let_the_newest_count(place: Place, copy: Make) -> None:
    """With `failures: newest` a PASS after a FAIL opens the gate, and a FAIL after a PASS closes
    it.
    """
    place.policy("failures: newest")
    copy().fails().sign()
    copy().sign()
    assert _words(place.gate()) == ("OPEN", {})
    copy().fails().sign("alice")
    assert _words(place.gate()) == ("CLOSED", {"failures": "REFUSED"})


def test_a_later_inconclusive_run_is_not_outvoted(place: Place, copy: Make) -> None:
    """The newest report decides: an older PASS does not speak against a later INCONCLUSIVE, and a
    newer one does.
    """
    copy().sign()
    copy().is_inconclusive().sign()
    assert place.gate().requirements[-1].word == "MET"
    assert row(place.gate(), "verdict").word == "CANNOT TELL"
    copy().sign()
    assert _words(place.gate()) == ("OPEN", {})


def test_a_failure_of_a_changed_tree_is_not_the_commits(place: Place, copy: Make) -> None:
    """What failed while somebody was changing things says nothing about the commit."""
    copy().facts(source={"dirty": True}).fails().sign("alice")
    copy().sign()
    found = place.gate()
    assert _words(found) == ("OPEN", {})
    said = "none of 1 report for this commit is a FAIL; 1 report of a changed tree not counted"
    assert row(found, "failures").reason == said
