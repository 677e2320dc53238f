"""Each rule by itself, at its edges: on small records, with a policy from its text and without a
repository.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.gate.basis import GateBasis, TrustedScenario
from harness.gate.policy import Required, parse_policy
from harness.gate.reports import Report
from harness.gate.rules import RULES, Ruling, holds
from harness.record.facts import RevisionFacts
from harness.scenario import parse_scenario
from harness.trust.signers import SignerPolicy
from tests.kit.pull_requests import SCENARIO
from tests.kit.records import cell, record

NOW = datetime(2026, 1, 3, 12, 0, 0, tzinfo=UTC)
COMMIT = "ab" * 20
CELL = "ranks=2,backend=gloo"
OTHER = "ranks=4,backend=gloo"
TRUSTED = SCENARIO.replace("id: words", "id: meet")
NIX = {
    **dict.fromkeys(("shell", "flake_lock_sha256", "wheels_sha256", "nixpkgs", "source")),
    "environment": "/nix/store/x-rankproof",
    "as_locked": True,
    **{name: [] for name in ("stale", "changed", "untracked", "driver")},
}
PLUGIN = {"distribution": "brings-mine", "version": "1.0", "sha256": "0" * 64}
USED = {**PLUGIN, "group": "rankproof.checks", "name": "mine"}
START = {"name": "evil.pth", "sha256": "0" * 64}


def basis(
    *lines: str, require: str = f'{{scenario: meet, cells: ["{CELL}"]}}', **more: Any
) -> GateBasis:
    """What a gate believes that asks for one cell, with these lines more in its policy."""
    text = "\n".join(["schema: 1", "signers: {roles: {ci: [ci]}}", f"require: [{require}]", *lines])
    trusted = TrustedScenario(
        path="x", sha256="0" * 64, scenario=parse_scenario(TRUSTED.encode(), name="x"), files={}
    )
    given: dict[str, Any] = {
        "ref": "origin/main",
        "trusted": COMMIT,
        "commit": COMMIT,
        "challenge": None,
        "now": NOW,
        "policy": parse_policy(text.encode(), name="policy.yaml"),
        "policy_path": ".rankproof/policy.yaml",
        "policy_sha256": "0" * 64,
        "signers": SignerPolicy(),
        "scenarios": {"meet": trusted},
        "locks": frozenset(),
        "trusted_files": {},
        "trusted_sha256": lambda _: {},
        "commit_files": {},
        "contains": lambda _: True,
        "tree": lambda _: None,
    }
    return GateBasis(**{**given, **more})


def report(*cells: dict[str, Any], run: dict[str, Any] | None = None, **more: Any) -> Report:
    """A report of these cells, or of one that passed beside a control that failed.

    By today's rules.
    """
    found = record(*cells, run=run, **more)
    return Report(place="x", record=found, signer="ci", key="SHA256:x", roles=("ci",))


def ruled(name: str, known: GateBasis, one: Report) -> Ruling:
    """What one rule says, as a gate asks it."""
    return RULES[name](known, known.policy.require[0], one)


def not_met(known: GateBasis, one: Report) -> dict[str, str]:
    """The rules that are not met, with their words; `holds` says the same."""
    required = known.policy.require[0]
    words = {name: rule(known, required, one)[0] for name, rule in RULES.items()}
    found = {name: word for name, word in words.items() if word != "MET"}
    assert holds(known, required, one) == (not found)
    return found


def revised(one: Report, **changes: Any) -> Report:
    """The report of a candidate that was laid out from a revision."""
    facts = {
        "repo": None,
        "rev": "v1",
        "commit": COMMIT,
        "tree": "cd" * 20,
        "patch": None,
        "folder": "",
    }
    arms = one.record.arms
    candidate = arms["candidate"].model_copy(
        update={"revision": RevisionFacts.model_validate(facts | changes)}
    )
    return replace(
        one, record=one.record.model_copy(update={"arms": {**arms, "candidate": candidate}})
    )


def with_start_files(one: Report, names: list[str]) -> Report:
    """The report of a run in whose arm's own environment Python reads these files at its start."""
    environment = {
        "python": "3.11.7",
        "implementation": "cpython",
        "packages": [],
        "start_files": [{**START, "name": name} for name in names],
    }
    run = one.record.run.model_validate(
        {
            **one.record.run.model_dump(mode="json", by_alias=True),
            "environments": {"candidate": environment},
        }
    )
    return replace(one, record=one.record.model_copy(update={"run": run}))


def test_one_rule_that_is_not_met_is_enough_for_a_report_not_to_hold() -> None:
    """A report holds only if every rule is met: one of fifteen is as bad as all of them."""
    assert not_met(basis(), report()) == {}
    assert not_met(basis("max_jobs: 1"), report(run={"jobs": 2})) == {"jobs": "REFUSED"}


def test_every_rule_of_the_documentation_is_asked() -> None:
    """A rule that is left out of the table would be met by everything."""
    asked = (
        "commit tree code verdict cells control trials age challenge plugins jobs nix lock"
        " start_files"
    )
    assert list(RULES) == asked.split()


@pytest.mark.parametrize(
    ("changes", "require", "word", "words"),
    [
        ({}, "commit", "MET", "which is the candidate's revision"),
        (
            {"commit": "0" * 40},
            "commit",
            "REFUSED",
            "revision v1 = 000000000000 of the same repository",
        ),
        (
            {"repo": "./x"},
            "commit",
            "REFUSED",
            "the candidate ran revision v1 = abababababab of ./x",
        ),
        (
            {"repo": "./x"},
            "elsewhere",
            "MET",
            "as the policy allows, the candidate is revision v1 = ",
        ),
        # Another commit of this repository is not "elsewhere".
        ({"commit": "0" * 40}, "elsewhere", "REFUSED", "of the same repository"),
    ],
)
def test_the_revision_that_a_candidate_was_laid_out_from(
    changes: dict[str, str], require: str, word: str, words: str
) -> None:
    """It is the commit's, or from another repository where the policy says so, and the row names
    which.
    """
    known = basis(require=f'{{scenario: meet, cells: ["{CELL}"], candidate: {require}}}')
    found = ruled("commit", known, revised(report(), **changes))
    assert found[0] == word
    assert words in found[1]


def test_a_candidate_of_the_working_tree_has_no_revision() -> None:
    """Then the row says no more than that it ran in a checkout of the commit."""
    assert ruled("commit", basis(), report()) == (
        "MET",
        "according to the report, it ran in a checkout of abababababab",
    )


@pytest.mark.parametrize(
    ("source", "foreign", "words"),
    [
        (
            {"dirty": None, "why_unknown": "git is too old"},
            (),
            "unknown whether the working tree had uncommitted changes: git is too",
        ),
        ({"dirty": None}, (), "git did not report it"),
        ({"dirty": True}, (), "the working tree had uncommitted changes"),
        ({}, ("candidate: extra.py",), "candidate: extra.py"),
    ],
)
def test_a_tree_that_is_not_the_commit(
    source: dict[str, Any], foreign: tuple[str, ...], words: str
) -> None:
    """Changed, unknown or with files of its own: each is refused in its own words, unless any tree
    is accepted.
    """
    one = replace(report(source=source), foreign=foreign)
    word, reason = ruled("tree", basis(), one)
    assert word == "REFUSED"
    assert words in reason
    assert ruled("tree", basis("tree: any"), one) == ("MET", "not required")


def test_code_that_is_not_the_commits_is_refused_by_name() -> None:
    """What a rank loaded that is proved to be nobody's is enough.

    A policy that accepts any tree does not ask.
    """
    one = replace(report(), strangers=("engine/fast.py is not the commit's",))
    assert not_met(basis(), one) == {"code": "REFUSED"}
    assert "engine/fast.py is not the commit's" in ruled("code", basis(), one)[1]
    assert not_met(basis("tree: any"), one) == {}
    # Also where programs are allowed: what is known of the ranks' own code still counts.
    program = replace(
        report(scenario={"program": ["sh"]}), strangers=("engine/fast.py is not the commit's",)
    )
    assert not_met(basis("programs: allowed"), program) == {"code": "REFUSED"}


def test_a_subject_of_its_own_is_never_the_commits_code() -> None:
    """`subject.of` names what runs, and no policy makes that the commit's code."""
    one = report(scenario={"of": "installed"})
    assert ruled("code", basis("tree: any", "programs: allowed"), one)[0] == "REFUSED"


@pytest.mark.parametrize(
    ("program", "children", "words"),
    [
        (["sh"], [], "the code that programs loaded"),
        ([], ["ninja"], "processes that ranks started (ninja)"),
    ],
)
def test_code_that_nobody_knows(program: list[str], children: list[str], words: str) -> None:
    """Of programs, and of processes that ranks started, the gate cannot tell, and is met only by
    the policy.
    """
    ran = {"ran": {"lists": {}, "children": children}}
    one = report({**cell(), **ran}, scenario={"program": program})
    word, reason = ruled("code", basis(), one)
    assert (word, words in reason) == ("CANNOT TELL", True)
    word, reason = ruled("code", basis("programs: allowed"), one)
    assert (word, reason.startswith("accepted by the policy, although the code that")) == (
        "MET",
        True,
    )


def test_code_that_services_loaded_is_unknown() -> None:
    """The ranks may load the commit's code, and the server under test anything."""
    service = {
        "name": "engine",
        "arm": "candidate",
        "program": ["python", "/elsewhere/server.py"],
        "env": {},
        "processes": 1,
        "keep": "trial",
        "starts": 1,
        "unready": 0,
        "unhealthy": 0,
        "seconds": 1.0,
        "max_rss_kib": 1,
        "events": "evidence/cell/candidate-00000/engine.jsonl",
    }
    one = report({**cell(), "services": [service]})
    word, reason = ruled("code", basis(), one)
    assert (word, "the code that services (engine) loaded" in reason) == ("CANNOT TELL", True)
    assert ruled("code", basis("programs: allowed"), one)[0] == "MET"


def test_children_of_a_cell_that_is_not_asked_for_are_not_in_the_way() -> None:
    """A policy that names one cell asks about the code of that cell only."""
    other = {**cell(OTHER), "ran": {"lists": {}, "children": ["ninja"]}}
    assert not_met(basis(), report(cell(), other)) == {}
    both = basis(require=f'{{scenario: meet, cells: ["{CELL}", "{OTHER}"]}}')
    assert not_met(both, report(cell(), other)) == {"code": "CANNOT TELL"}


def test_the_row_names_whose_code_ran() -> None:
    """The commit's, a patched one, another repository's, a ready subject's.

    And what its build alone wrote.
    """
    own = "the candidate ran the commit's code, according to the files that ranks report"
    assert ruled("code", basis(), report())[1].startswith(own)
    assert ruled("code", basis(), revised(report()))[1].startswith(own)
    patched = revised(report(), patch="0" * 64)
    assert (
        "the commit's code with the scenario's patch, according"
        in ruled("code", basis(), patched)[1]
    )
    assert "ran code of ./x, according" in ruled("code", basis(), revised(report(), repo="./x"))[1]
    built = replace(report(), built=(("pkg/_version.py", "0" * 64),))
    assert (
        ", and 1 file that the build of its packages wrote (sha256 "
        in ruled("code", basis(), built)[1]
    )
    # Where any tree is accepted, no row says whose code it was.
    assert ruled("code", basis("tree: any"), report()) == ("MET", "not required")


def test_a_scenario_that_is_no_claim_never_counts() -> None:
    """A finding about others, or a self-test that must not pass, opens no gate, whoever states it:
    branch or record.
    """
    for role, expects, is_met in (
        ("claim", None, True),
        ("claim", "PASS", True),
        ("upstream", None, False),
        ("selftest", "FAIL", False),
    ):
        one = report(scenario={"role": role, "expects": expects})
        assert (not_met(basis(), one) == {}) is is_met, (role, expects)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [("FAIL", "REFUSED"), ("INCONCLUSIVE", "CANNOT TELL"), ("SKIPPED", "CANNOT TELL")],
)
def test_any_other_verdict_than_pass(verdict: str, word: str) -> None:
    """A FAIL refuses, what is open cannot tell.

    The reasons of the judgement are the reason of the row.
    """
    reasons = ["5 trials are too few"]
    judgement = {"verdict": verdict, "as_expected": False, "reasons": reasons, "cells": [cell()]}
    assert ruled("verdict", basis(), report(judgement=judgement)) == (
        word,
        f"{verdict}: 5 trials are too few",
    )
    bare = report(judgement={**judgement, "reasons": []})
    assert ruled("verdict", basis(), bare) == (word, verdict)


def skipped(name: str) -> dict[str, Any]:
    why = {"code": "skip:machine-gpus", "text": "no GPU"}
    return {
        **cell(name),
        "verdict": "SKIPPED",
        "reasons": [why],
        "candidate": None,
        "control": None,
    }


MET_CELLS = ("MET", "2 required cells, none missing and none skipped")
BOTH = f'{{scenario: meet, cells: ["{CELL}", "{OTHER}"]}}'


def test_a_cell_that_did_not_run() -> None:
    """It is missing where the report lacks it, and cannot tell where it was skipped.

    Neither is a PASS.
    """
    both = basis(require=BOTH)
    assert ruled("cells", both, report()) == ("MISSING", f"the report lacks the cells {OTHER}")
    assert ruled("cells", both, report(cell(), skipped(OTHER))) == (
        "CANNOT TELL",
        f"SKIPPED: {OTHER}: no GPU",
    )
    assert ruled("cells", both, report(cell(), cell(OTHER))) == MET_CELLS
    failed = cell(OTHER, candidate=("fail",) * 5)
    assert ruled("cells", both, report(cell(), failed)) == MET_CELLS


def held(name: str) -> dict[str, Any]:
    """A cell in which the control is stated to hold, and did."""
    made = cell(name, control=("pass",) * 5)
    control = {**made["control"], "as_stated": 5}
    return {**made, "verdict": "PASS", "control": control, "control_holds": True}


def test_a_control_that_failed_as_stated_in_every_cell() -> None:
    """It failed in each required cell, or held as required beside one where it failed, and the row
    counts those.
    """
    both = basis(require=BOTH)
    said = "a control failed as required in every required cell that ran"
    assert ruled("control", both, report(cell(), cell(OTHER))) == ("MET", said)
    assert ruled("control", both, report(cell(), held(OTHER))) == ("MET", f"{said}, or passed (1)")
    assert ruled("control", both, report(cell(), skipped(OTHER))) == ("MET", said)
    assert ruled("control", both, report(skipped(CELL), skipped(OTHER))) == ("MET", said)


def test_a_control_that_shows_nothing() -> None:
    """None at all, one that did not do as required in one cell, or one that holds in all of them."""
    both = basis(require=BOTH)
    idle = cell(OTHER, control=("pass",) * 5)
    assert ruled("control", both, report(cell(), idle)) == (
        "REFUSED",
        f"no control failed as required: {OTHER}",
    )
    bare = {**cell(OTHER), "control": None}
    assert ruled("control", both, report(cell(), bare)) == (
        "REFUSED",
        f"no control failed as required: {OTHER}",
    )
    word, reason = ruled("control", both, report(held(CELL), held(OTHER)))
    assert word == "REFUSED"
    assert (
        reason
        == f"the scenario expects the control to pass in every required cell: {CELL}; {OTHER}"
    )
    whole = report()
    alone = whole.record.model_copy(update={"arms": {"candidate": whole.record.arms["candidate"]}})
    found = ruled("control", basis(), replace(whole, record=alone))
    assert found == ("REFUSED", "no control failed as required: the scenario has none")


@pytest.mark.parametrize("arm", ["candidate", "control"])
def test_trials_are_counted_in_each_arm_and_cell(arm: str) -> None:
    """As many as are asked are enough, one fewer in one arm of one cell is not.

    A void one is not counted.
    """
    known = basis(f"trials: {{{arm}: 5}}", require=BOTH)
    assert ruled("trials", known, report(cell(), cell(OTHER)))[0] == "MET"
    good = ("pass",) if arm == "candidate" else ("fail",)
    void = cell(OTHER, **{arm: (*good * 4, "void")})
    found = ruled("trials", known, report(cell(), void))
    assert found == ("REFUSED", f"{OTHER}: 4 {arm} trials were counted, but 5 are required")
    # An arm that is not there has no trials; a cell that was skipped is the matter of another rule.
    absent = {**cell(OTHER), arm: None}
    assert ruled("trials", known, report(cell(), absent))[1].startswith(f"{OTHER}: 0 {arm} trials")
    assert ruled("trials", known, report(cell(), skipped(OTHER)))[0] == "MET"


def of_age(seconds: float) -> Report:
    made = NOW - timedelta(seconds=seconds)
    return report(run={"made": f"{made:%Y-%m-%dT%H:%M:%SZ}"})


@pytest.mark.parametrize(
    ("seconds", "is_met"), [(-601, False), (-600, True), (86400, True), (86401, False)]
)
def test_the_edges_of_an_age(seconds: int, *, is_met: bool) -> None:
    """A clock may be ten minutes ahead and a report as old as the policy says, and neither a second
    more.
    """
    assert (ruled("age", basis("max_age: 1d"), of_age(seconds))[0] == "MET") is is_met


def test_an_age_in_words() -> None:
    """A report of the future is new, and one without a limit says none."""
    assert ruled("age", basis(), of_age(-60)) == (
        "MET",
        "according to the report, it was made 0 seconds ago",
    )
    limited = ruled("age", basis("max_age: 1d"), of_age(60))
    assert limited == (
        "MET",
        "according to the report, it was made 1 minute ago, at most 1 day is allowed",
    )
    assert ruled("age", basis(), report(run={"made": "yesterday"}))[0] == "REFUSED"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (59, "59 seconds"),
        (61, "1 minute 1 second"),
        (9 * 60 + 59, "9 minutes 59 seconds"),
        (10 * 60 + 59, "10 minutes"),
        (3600, "1 hour"),
        (9 * 3600 + 60, "9 hours 1 minute"),
        (10 * 3600 + 60, "10 hours"),
        (86400 + 3600, "1 day 1 hour"),
    ],
)
def test_a_span_in_words(seconds: int, words: str) -> None:
    """The largest unit, with the next one below ten of them.

    Never a unit of which there are none.
    """
    assert (
        ruled("age", basis(), of_age(seconds))[1]
        == f"according to the report, it was made {words} ago"
    )


def test_a_challenge_is_borne_by_the_report() -> None:
    """The one that is asked for, and no other.

    Where the policy requires one, not asking is not enough.
    """
    asked = basis(challenge="run 7")
    assert ruled("challenge", asked, report(run={"challenge": "run 7"}))[0] == "MET"
    assert "has no challenge," in ruled("challenge", asked, report())[1]
    other = ruled("challenge", asked, report(run={"challenge": "run 6"}))
    assert (other[0], "the challenge 'run 6'," in other[1]) == ("REFUSED", True)
    assert ruled("challenge", basis(), report(run={"challenge": "run 6"})) == (
        "MET",
        "not required",
    )
    required = basis("challenge: required")
    assert ruled("challenge", required, report(run={"challenge": "run 7"}))[0] == "MISSING"
    both = basis("challenge: required", challenge="run 7")
    assert ruled("challenge", both, report(run={"challenge": "run 7"}))[0] == "MET"


@pytest.mark.parametrize(
    ("run", "refused"),
    [
        ({"plugins": [USED]}, "the policy does not list the plug-in"),
        ({"imported": [PLUGIN]}, "the run had imported brings-mine 1.0"),
    ],
)
def test_a_plugin_that_the_policy_does_not_list(run: dict[str, Any], refused: str) -> None:
    """Used or only imported, each is refused unless listed.

    One that is listed does not speak for another.
    """
    listed = basis("plugins: [{distribution: brings-mine}]")
    assert not_met(basis(), report(run=run)) == {"plugins": "REFUSED"}
    assert refused in ruled("plugins", basis(), report(run=run))[1]
    assert not_met(listed, report(run=run)) == {}
    two = {name: [*ones, {**ones[0], "distribution": "brings-more"}] for name, ones in run.items()}
    assert "brings-more" in ruled("plugins", listed, report(run=two))[1]
    either = basis("plugins: [{distribution: brings-more}, {distribution: brings-mine}]")
    assert not_met(either, report(run=two)) == {}


def test_the_row_of_plugins_counts_them() -> None:
    """It says what was used and what was imported, and where there is neither, that."""
    listed = basis("plugins: [{distribution: brings-mine}]")
    counts = "0 plug-ins used, 1 distribution with plug-ins imported, accepted by the policy"
    assert ruled("plugins", listed, report(run={"imported": [PLUGIN]})) == ("MET", counts)
    counts = "1 plug-in used, 0 distributions with plug-ins imported, accepted by the policy"
    assert ruled("plugins", listed, report(run={"plugins": [USED]})) == ("MET", counts)
    assert ruled("plugins", listed, report()) == (
        "MET",
        "the record lists no plug-in that was used or imported",
    )


def test_as_many_worlds_at_a_time_as_are_allowed() -> None:
    """The number itself is allowed; without a limit nothing is asked."""
    assert ruled("jobs", basis("max_jobs: 2"), report(run={"jobs": 2})) == (
        "MET",
        "2 worlds at a time",
    )
    assert ruled("jobs", basis("max_jobs: 2"), report(run={"jobs": 3}))[0] == "REFUSED"
    assert ruled("jobs", basis(), report(run={"jobs": 99})) == ("MET", "not required")


@pytest.mark.parametrize(
    ("nix", "word"),
    [
        (None, "REFUSED"),
        (NIX, "MET"),
        ({**NIX, "as_locked": False}, "REFUSED"),
        ({**NIX, "stale": ["flake.lock"]}, "REFUSED"),
    ],
)
def test_the_nix_environment_of_a_run(nix: dict[str, Any] | None, word: str) -> None:
    """It is there, as pinned and not stale, where it is asked for; else nothing is asked."""
    one = report(environment={"nix": nix})
    assert ruled("nix", basis("environment: {nix: true}"), one)[0] == word
    assert ruled("nix", basis(), one) == ("MET", "not required")


def test_the_lock_of_a_run() -> None:
    """It has the digest of one of the trusted locks, whatever it is called."""
    asked = basis("environment: {locks: [locks/cpu.txt]}", locks=frozenset({"1" * 64, "2" * 64}))
    good = {"lock": "cpu.txt", "lock_sha256": "1" * 64}
    assert ruled("lock", asked, report(environment=good))[0] == "MET"
    assert (
        ruled("lock", asked, report(environment={**good, "lock_sha256": "3" * 64}))[0] == "REFUSED"
    )
    assert (
        ruled("lock", asked, report())[1]
        == "the run's environment was not created from a lock file"
    )
    assert ruled("lock", basis(), report()) == ("MET", "not required")


@pytest.mark.parametrize("by", ["harness", "arm"])
def test_start_files_of_every_environment_are_the_policys(by: str) -> None:
    """A list, also an empty one, allows what it names: in the harness's environment, and in an
    arm's own.
    """

    def with_files(names: list[str]) -> Report:
        if by == "arm":
            return with_start_files(report(), names)
        return report(environment={"start_files": [{**START, "name": name} for name in names]})

    one = with_files(["evil.pth"])
    assert ruled("start_files", basis(), one) == ("MET", "not required")
    assert ruled("start_files", basis("environment: {start_files: []}"), one)[0] == "REFUSED"
    listed = basis("environment: {start_files: [{name: good.pth}, {name: evil.pth}]}")
    assert ruled("start_files", listed, one) == (
        "MET",
        "1 file that Python may read at its start, accepted by the policy",
    )
    two = ruled("start_files", listed, with_files(["evil.pth", "worse.pth"]))
    assert (two[0], "worse.pth" in two[1], "evil.pth" in two[1]) == ("REFUSED", True, False)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"machines": {"machines": [], "placement": "spread", "lease": 1.0, "ready": 1.0}},
        {"farm": {"starter": "ray", "version": "2", "nodes": []}},
    ],
)
def test_start_files_of_other_machines_are_not_known(elsewhere: dict[str, Any]) -> None:
    """The record has those of this machine only: a list cannot be met by ranks or trials that were
    elsewhere.
    """
    one = report(run=elsewhere)
    assert ruled("start_files", basis(), one) == ("MET", "not required")
    assert ruled("start_files", basis("environment: {start_files: []}"), one)[0] == "CANNOT TELL"
    assert ruled("start_files", basis("environment: {start_files: []}"), report())[0] == "MET"


def test_cells_of_a_policy_that_names_none_are_all_cells() -> None:
    """Without a list every cell of the trusted matrix and of the run is required."""
    known = basis(require="{scenario: meet}")
    (required,) = known.policy.require
    assert isinstance(required, Required)
    wanted = known.cells(required, report(cell("ranks=9,backend=gloo")).record)
    assert wanted == (*known.scenarios["meet"].cells, "ranks=9,backend=gloo")
