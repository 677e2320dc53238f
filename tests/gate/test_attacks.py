"""What the author of a pull request tries, and what comes of it.

No key of theirs is known to the trusted branch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.gate.objects import NoCommit, NoTrustedRef
from tests.kit.pull_requests import ENGINE, POLICY, SCENARIO, Copy, Keys, Place, not_met, row
from tests.kit.repositories import arm_with_traps, git

pytestmark = pytest.mark.slow  # together they take more than the inner loop has

Make = Callable[[], Copy]


@pytest.mark.slow
def test_own_key_added_in_the_same_commit(place: Place, copy: Make, gate_keys: Keys) -> None:
    """A key that the pull request itself allows is unknown to the trusted branch."""
    path = place.repo / ".rankproof/allowed_signers"
    commit = place.propose(
        {
            ".rankproof/allowed_signers": path.read_text() + gate_keys.line("mallory"),
            ".rankproof/policy.yaml": POLICY.replace("ci: [ci,", "ci: [mallory, ci,"),
        }
    )
    copy().facts(source={"commit": commit}).sign("mallory")
    found = place.gate()
    assert found.answer == "NOT VERIFIED"
    assert "UNKNOWN SIGNER" in row(found, "verified").reason
    assert "origin/main:.rankproof/allowed_signers" in row(found, "verified").reason


@pytest.mark.slow
def test_policy_weakened(place: Place, copy: Make) -> None:
    """A policy that the pull request weakens, or removes, is not the one that decides."""
    place.policy("trials: {candidate: 59}")
    commit = place.propose({".rankproof/policy.yaml": POLICY + "tree: any\n"})
    copy().facts(source={"commit": commit}).sign()
    assert not_met(place.gate()) == {"trials": "REFUSED"}
    git(place.repo, "rm", "-q", ".rankproof/policy.yaml")
    git(place.repo, "commit", "-qm", "no policy")
    copy().facts(source={"commit": git(place.repo, "rev-parse", "HEAD")}).sign()
    assert not_met(place.gate()) == {"trials": "REFUSED"}


WEAKER: dict[str, Callable[[str], str]] = {
    "fewer trials": (
        lambda text: text.replace("candidate: 5,", "candidate: 4,").replace("50%", "60%")
    ),
    "a check removed": lambda text: text.replace(
        "  - {id: ended, kind: exit, ranks: every, code: 0}\n", ""
    ),
    "a weaker bound": lambda text: text.replace(
        "failure_rate_below: 50%", "failure_rate_below: 90%"
    ),
    "another title": lambda text: text.replace("Ranks say yes", "Ranks say so"),
}


def _ran(made: Copy, weaker: str) -> Copy:
    made.scenario(lambda _: weaker)
    if "candidate: 4," in weaker:
        for folder in made.folder.glob("evidence/ranks-*/candidate-00004"):
            shutil.rmtree(folder)
        cells = [
            {"id": f"ranks={ranks},backend=none", "skipped": None, "candidate": 4, "control": 5}
            for ranks in (1, 2)
        ]
        made.facts(cells=cells)
    return made


@pytest.mark.parametrize("change", WEAKER.values(), ids=WEAKER.keys())
def test_scenario_weakened(place: Place, copy: Make, change: Callable[[str], str]) -> None:
    """A scenario that the pull request changed asks another question: only a release key may sign
    for it.
    """
    weaker = change(SCENARIO)
    assert weaker != SCENARIO
    commit = place.propose({"scenarios/words/scenario.yaml": weaker})
    _ran(copy(), weaker).facts(source={"commit": commit}).sign()
    found = place.gate()
    assert not_met(found) == {"scenario": "REFUSED"}
    assert "scenarios/words/scenario.yaml" in row(found, "scenario").reason
    _ran(copy(), weaker).facts(source={"commit": commit}).sign("release")
    found = place.gate()
    assert not_met(found) == {}
    assert "release signed for it" in row(found, "scenario").reason


def test_release_signs_for_what_it_saw(place: Place, copy: Make) -> None:
    """A release key that signed for one change does not sign for the next."""
    first, second = WEAKER["a weaker bound"](SCENARIO), WEAKER["another title"](SCENARIO)
    commit = place.propose({"scenarios/words/scenario.yaml": second})
    _ran(copy(), first).facts(source={"commit": commit}).sign("release")
    _ran(copy(), second).facts(source={"commit": commit}).sign("ci")
    assert not_met(place.gate()) == {"scenario": "REFUSED"}


def test_kind_that_nobody_here_knows(place: Place, copy: Make) -> None:
    """A report that rests on a check this version cannot judge does not count, and accuses
    nobody.
    """
    made = copy().scenario(lambda text: text.replace("kind: exit", "kind: telepathy")).sign()
    found = place.gate()
    assert found.answer == "NOT VERIFIED"
    assert [(one.place, one.word) for one in found.refused] == [(str(made.folder), "NOT JUDGED")]
    assert "check 'telepathy'" in found.refused[0].message


def test_control_removed(place: Place, copy: Make) -> None:
    """A scenario without its control is neither the trusted one nor able to PASS."""
    lines = SCENARIO.splitlines(keepends=True)
    bare = "".join(
        line
        for line in lines
        if not line.lstrip().startswith(("control:", 'with: {word: "no"}', "must_f"))
    )
    bare = bare.replace("schema: 1\n", "schema: 1\nrole: upstream\n")
    commit = place.propose({"scenarios/words/scenario.yaml": bare})
    made = copy().scenario(lambda _: bare)
    for folder in (
        *made.folder.glob("evidence/ranks-*/control-*"),
        made.folder / "evidence/source/control",
    ):
        shutil.rmtree(folder)
    cells = [
        {"id": f"ranks={ranks},backend=none", "skipped": None, "candidate": 5, "control": 0}
        for ranks in (1, 2)
    ]
    facts = {"cells": cells, "source": {"commit": commit}}
    run = made.facts(**facts)
    path = made.folder / "evidence/run.json"
    found = json.loads(path.read_text())
    del found["arguments"]["control"], found["provenance"]["control"]
    path.write_text(json.dumps(found))
    run.sign()
    assert {"scenario", "control"} <= not_met(place.gate()).keys()


def test_another_file_of_the_scenarios_folder(place: Place, copy: Make) -> None:
    """A file beside the scenario is part of it: a pull request that changes one changed the
    scenario.
    """
    commit = place.propose({"scenarios/words/notes.txt": "harmless\n"})
    copy().facts(source={"commit": commit}).sign()
    assert not_met(place.gate()) == {"scenario": "REFUSED"}


def test_weakened_on_the_command_line(place: Place, copy: Make) -> None:
    """What was set on the command line is in the record, and makes another scenario of it."""
    made = copy().facts(overrides=["trials.accept.failure_rate_below=90%"]).sign()
    found = place.gate()
    assert not_met(found) == {"scenario": "REFUSED"}
    assert "trials.accept.failure_rate_below=90%" in row(found, "scenario").reason
    made.sign("release")
    assert not_met(place.gate()) == {}


def test_a_cell_deselected_on_the_command_line(place: Place, copy: Make) -> None:
    """A cell that was left out is missing, whoever signs."""
    made = copy().facts(overrides=["matrix.ranks=[1]"])
    for folder in made.folder.glob("evidence/ranks-2*"):
        shutil.rmtree(folder)
    made.facts(
        cells=[{"id": "ranks=1,backend=none", "skipped": None, "candidate": 5, "control": 5}]
    ).sign("release")
    found = place.gate()
    assert not_met(found) == {"cells": "MISSING"}
    assert "ranks=2" in row(found, "cells").reason


def test_the_same_scenario_from_another_folder(place: Place, copy: Make) -> None:
    """A scenario of the right name from another folder is not the required one."""
    copy().facts(source={"scenario": "scenarios/mine"}).sign()
    assert not_met(place.gate())["scenario"] == "REFUSED"


@pytest.mark.whole
def test_a_control_that_only_a_name_says(place: Place, copy: Make) -> None:
    """A commit of the pull request that is sure to fail cannot be named as the control's
    revision.
    """
    old = place.trusted
    own = place.propose({"engine/extra": "sure to fail"})

    def ran(commit: str, *, rev: str = "HEAD~1", repo: str | None = None) -> dict[str, str]:
        given = f"rev: {rev}" if repo is None else f"rev: {rev}\n    repo: {repo}"
        named = f"# {commit}" + SCENARIO.replace(
            'with: {word: "no"}', f'{given}\n    with: {{word: "no"}}'
        )
        place.trust({"scenarios/words/scenario.yaml": named})
        place.propose(
            {"scenarios/words/scenario.yaml": named, "engine/extra": f"mended {commit} {given}"}
        )
        commit = commit or place.commit
        facts = {
            "repo": repo,
            "rev": rev,
            "commit": commit,
            "tree": "1" * 40,
            "patch": None,
            "folder": "engine",
        }
        made = (
            copy()
            .scenario(lambda _: named)
            .facts(revisions={"control": facts}, source={"commit": place.commit})
        )
        made.sign()
        return not_met(place.gate())

    assert ran(own) == {"scenario": "REFUSED"}
    assert own[:12] in row(place.gate(), "scenario").reason
    assert ran(old) == {}, "in the history of the trusted branch"
    assert ran("") == {}, "the commit under test, which a patch would break"
    assert ran(own, rev=own) == {}, "the trusted scenario names it whole"
    assert ran(old, rev="v1", repo="./x") == {"scenario": "REFUSED"}
    assert ran(own, rev=own, repo="./x") == {}


def test_report_of_another_commit(place: Place, copy: Make) -> None:
    """A PASS of the commit before says nothing about this one, and the message says which commit it
    is of.
    """
    copy().sign()
    before = place.commit
    place.propose({"engine/rank.sh": ENGINE.replace("version 1", "version 3")})
    found = place.gate()
    assert not_met(found) == {"report": "MISSING"}
    assert before[:12] in row(found, "report").reason
    assert not_met(place.gate(commit=before)) == {}


def test_code_of_another_commit_under_this_ones_name(place: Place, copy: Make) -> None:
    """A signer who is wrong about the commit is found out: the code that ran is not the
    commit's.
    """
    commit = place.propose({"engine/rank.sh": ENGINE.replace("version 1", "version 3")})
    copy().facts(source={"commit": commit}).sign()
    assert not_met(place.gate()) == {"tree": "REFUSED"}


def test_old_report_replayed(place: Place, copy: Make) -> None:
    """An older PASS of the same commit is stopped by its age, or by the challenge it does not
    bear.
    """
    place.policy("max_age: 1d", "challenge: required")
    made = copy().facts(challenge="release 1").made(datetime.now(UTC) - timedelta(days=2)).sign()
    assert not_met(place.gate(challenge="release 1")) == {"age": "REFUSED"}
    made.made(datetime.now(UTC)).sign()
    assert not_met(place.gate(challenge="release 2")) == {"challenge": "REFUSED"}


def test_old_report_with_a_new_date(place: Place, copy: Make) -> None:
    """Without the key, the date of a report cannot be changed."""
    made = copy().made(datetime.now(UTC) - timedelta(days=2)).sign()
    made.report.write_bytes(made.report.read_bytes().replace(b"Made: `20", b"Made: `21"))
    assert not_met(place.gate()) == {"verified": "NOT VERIFIED", "report": "MISSING"}


def test_scenario_deselected(place: Place, copy: Make) -> None:
    """Running something else in its place leaves the required scenario missing."""
    other = SCENARIO.replace("id: words", "id: easy")
    made = copy().scenario(lambda _: other)
    for path in made.folder.glob("evidence/ranks-*/*/events.jsonl"):
        path.write_text(path.read_text().replace('"scenario":"words"', '"scenario":"easy"'))
    from harness.scenario import derive_seed

    for cell in ("ranks=1,backend=none", "ranks=2,backend=none"):
        for index in range(5):
            old, new = (str(derive_seed("7", name, cell, index)) for name in ("words", "easy"))
            for path in made.folder.glob(
                f"evidence/{cell[:7].replace('=', '-')}*/*-0000{index}/events.jsonl"
            ):
                path.write_text(path.read_text().replace(old, new))
    made.sign()
    found = place.gate()
    assert not_met(found) == {"report": "MISSING"}
    assert row(found, "verified").reason == "1 report for this commit, all verified"


def test_shallow_clone(place: Place, copy: Make, tmp_path: Path) -> None:
    """In a shallow clone the gate refuses, and says what to fetch."""
    copy().sign()
    shallow = tmp_path / "shallow"
    git(place.repo, "branch", "-f", "main", "refs/remotes/origin/main")
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", "-b", "main", f"file://{place.repo}", str(shallow)],
        check=True,
    )
    with pytest.raises(NoTrustedRef, match="git fetch --unshallow origin"):
        place.gate(folder=shallow)


def test_trusted_ref_that_is_not_there(place: Place, copy: Make) -> None:
    """Without the trusted branch the gate refuses, and says what to fetch.

    Nothing else is taken in its place.
    """
    copy().sign()
    git(place.repo, "update-ref", "-d", "refs/remotes/origin/main")
    for kind in ("tag", "branch"):
        # `git rev-parse origin/main` would take either.
        git(place.repo, kind, "origin/main", "HEAD")
        assert git(place.repo, "rev-parse", "origin/main") == place.commit
        with pytest.raises(
            NoTrustedRef, match=r"git fetch origin \+refs/heads/main:refs/remotes/origin/main"
        ):
            place.gate()
        git(place.repo, kind, "-d" if kind == "tag" else "-D", "origin/main")
    assert not_met(place.gate(trusted_ref="refs/heads/main")) == {}


def test_replaced_objects(place: Place, copy: Make) -> None:
    """A replacement of the trusted commit that somebody put into the clone is not looked at."""
    copy().sign("alice")
    weak = place.propose({".rankproof/policy.yaml": POLICY + "signatures: {roles: [developer]}\n"})
    git(place.repo, "checkout", "-q", "--detach", "HEAD~1")
    git(place.repo, "replace", place.trusted, weak)
    assert not_met(place.gate()) == {"signer": "REFUSED"}


def test_nothing_of_the_repository_runs(place: Place, copy: Make, tmp_path: Path) -> None:
    """Hooks, filters and monitors of the clone do not run, and the gate leaves it as it was."""
    copy().sign()
    tripped = tmp_path / "tripped"
    arm_with_traps(place.repo, tripped)
    assert not_met(place.gate()) == {}
    assert not tripped.exists()


def test_no_working_tree_is_needed(place: Place, copy: Make, tmp_path: Path) -> None:
    """A bare clone and the results are enough: the gate never needs the pull request's files."""
    copy().sign()
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(place.repo), str(bare)], check=True)
    git(bare, "fetch", "-q", str(place.repo), "HEAD")
    git(bare, "update-ref", "refs/remotes/origin/main", place.trusted)
    assert not_met(place.gate(folder=bare, commit=place.commit)) == {}


def test_a_commit_that_is_not_there(place: Place) -> None:
    """A commit that the clone lacks, and a folder that is not a clone, are said by name."""
    with pytest.raises(NoCommit, match="is not a commit in this clone"):
        place.gate(commit="0" * 40)
    with pytest.raises(NoCommit, match="not in a git repository"):
        place.gate(folder=place.results.parent.parent)


def test_one_good_and_one_forged_report(place: Place, copy: Make) -> None:
    """A forged report of the commit beside a good one is not passed over: exit 3, and its name."""
    copy().sign()
    copy().sign("mallory")
    found = place.gate()
    assert (found.answer, not_met(found)) == ("NOT VERIFIED", {"verified": "NOT VERIFIED"})
    assert "run-2: UNKNOWN SIGNER" in row(found, "verified").reason


def _edited(made: Copy) -> None:
    made.report.write_bytes(made.report.read_bytes().replace(b"PASS", b"pass", 1))


def _evidence(made: Copy) -> None:
    next(made.folder.glob("evidence/ranks-1*/candidate-00000/events.jsonl")).write_text("")


def _prose(made: Copy) -> None:
    (made.folder / "evidence/extra.txt").write_text("reviewed by QA")


@pytest.mark.parametrize("tamper", [_edited, _evidence, _prose])
def test_tampered_with(place: Place, copy: Make, tamper: Callable[[Copy], None]) -> None:
    """Whatever `verify` refuses closes the gate with exit 3."""
    tamper(copy().sign())
    assert not_met(place.gate()) == {"verified": "NOT VERIFIED", "report": "MISSING"}


def test_a_record_that_cannot_be_judged_again(place: Place, copy: Make) -> None:
    """A report of a format this version does not know is refused, not accepted unread."""
    made = copy().sign()
    path = made.folder / "evidence/run.json"
    text = path.read_text()
    made.facts(format=9)
    assert path.read_text() != text
    assert not_met(place.gate())["verified"] == "NOT VERIFIED"


def test_a_test_of_ones_own_beside_the_code(place: Place, copy: Make) -> None:
    """A file of the code under test that takes the place of the scenario's own is another test."""
    place.trust({"scenarios/words/rank.sh": "# the real test\n" + ENGINE})
    commit = place.propose({"scenarios/words/rank.sh": "# the real test\n" + ENGINE})
    copy().facts(source={"commit": commit}).sign()
    found = place.gate()
    assert not_met(found) == {"scenario": "REFUSED"}
    assert "candidate: rank.sh differs from the scenario's file" in row(found, "scenario").reason


def test_another_file_of_the_same_name(place: Place, copy: Make) -> None:
    """Files that are not the subject may have the same name beside the scenario and in the code
    under test.
    """
    files = {"scenarios/words/README": "of the scenario\n", "engine/README": "of the code\n"}
    place.trust(files)
    commit = place.propose(files)
    copy().facts(source={"commit": commit}).sign()
    assert not_met(place.gate()) == {}
