"""Policies are linted like scenarios: every mistake with its place, what is allowed and what was
probably meant.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.gate.objects import NoTrustedRef
from harness.gate.policy import Policy, parse_policy
from harness.scenario import ScenarioError
from tests.kit.pull_requests import POLICY, SCENARIO, Copy, Place

MISTAKES = {
    "trails: {candidate: 5}": (
        'p.yaml:7:1: trails: is not a known key here; *did you mean "trials"?'
    ),
    "trials: {candidat: 5}": 'p.yaml:7:10: trials.candidat: *did you mean "candidate"?',
    "max_age: 7": 'p.yaml:7:10: max_age: must have a unit *did you mean "7d"?',
    "max_age: 0d": "p.yaml:7:10: max_age: must be more than 0*",
    "tree: clan": 'p.yaml:7:7: tree: must be clean or any*did you mean "clean"?',
    "challenge: yes": "p.yaml:7:12: challenge: must be optional or required*",
    "failures: ignore": "p.yaml:7:11: failures: must be refuse or newest*",
    "signatures: {keys: 0}": "p.yaml:7:20: signatures.keys: must be at least 1*",
    "signatures: {roles: []}": "p.yaml:7:21: signatures.roles: is empty*",
    "signatures: {roles: [owner]}": (
        "p.yaml:7:22: signatures.roles[[]0]: must be developer, ci or release*"
    ),
    "environment: {locks: [../other]}": "p.yaml:7:23: environment.locks[[]0]: must stay inside*",
    "max_jobs: 0": "p.yaml:7:11: max_jobs: must be at least 1*",
    "schema: 1": "p.yaml:7:1: schema: appears twice (first in line 2, column 1); keep one",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_named_with_its_place(line: str) -> None:
    """Each mistake is told with file, line, column and what is allowed."""
    import fnmatch

    with pytest.raises(ScenarioError) as refused:
        parse_policy(f"{POLICY}{line}\n".encode(), name="p.yaml")
    assert fnmatch.fnmatchcase(str(refused.value), MISTAKES[line]), str(refused.value)


def test_a_scenario_that_is_named_twice() -> None:
    """Two entries for one scenario contradict each other; they are refused."""
    with pytest.raises(ScenarioError, match="lists words twice"):
        parse_policy(f"{POLICY}  - {{scenario: words}}\n".encode(), name="p.yaml")


def test_a_role_that_nobody_has() -> None:
    """A policy that asks for a signature nobody can give is a mistake, not a gate that never
    opens.
    """
    with pytest.raises(ScenarioError, match="requires a signature by ci or release"):
        parse_policy(
            POLICY.replace("ci: [ci, ci-two], release: [release]", "ci: []").encode(), name="p.yaml"
        )


@pytest.mark.slow
@given(
    st.binary(max_size=300)
    | st.text(max_size=300).map(lambda text: POLICY.encode() + text.encode("utf-8", "replace"))
)
def test_any_bytes_are_a_policy_or_an_error(data: bytes) -> None:
    """Whatever the file holds, it is a policy or a list of problems."""
    try:
        found: Policy | tuple[object, ...] = parse_policy(data, name="p.yaml")
    except ScenarioError as error:
        found = error.problems
    assert isinstance(found, Policy) or found


def test_a_name_that_is_no_signer(place: Place, copy: Callable[[], Copy]) -> None:
    """A slip in a name would silently take its role away: it is told."""
    copy().sign()
    place.policy(base=POLICY.replace("[ci, ci-two]", "[ci, ci-tow]"))
    with pytest.raises(
        ScenarioError, match=r"origin/main:\.rankproof/policy\.yaml.*signers\.roles.*ci-tow"
    ):
        place.gate()


def test_files_that_the_trusted_branch_lacks(place: Place) -> None:
    """A policy, signers, scenario or lock that is not on the trusted branch leaves nothing to
    decide by.
    """
    place.policy(base=POLICY + "  - {scenario: more}\n")
    with pytest.raises(NoTrustedRef, match=r"scenarios/more/scenario\.yaml"):
        place.gate()
    place.policy("environment: {locks: [locks/none.txt]}")
    with pytest.raises(NoTrustedRef, match=r"locks/none.txt"):
        place.gate()
    place.policy(base=POLICY.replace("signers:\n", "signers:\n  allowed: keys\n"))
    with pytest.raises(NoTrustedRef, match=r"\.rankproof/keys"):
        place.gate()
    with pytest.raises(NoTrustedRef, match="commit the policy to the trusted branch first"):
        place.gate(policy="other.yaml")


def test_a_scenario_of_another_name(place: Place) -> None:
    """A file that holds another scenario than the policy names is a mistake of the policy."""
    place.trust({"scenarios/words/scenario.yaml": SCENARIO.replace("id: words", "id: other")})
    with pytest.raises(ScenarioError, match="is scenario other, but the policy calls it words"):
        place.gate()


def test_scenarios_that_never_count(place: Place, copy: Callable[[], Copy]) -> None:
    """A self-test that must end otherwise than PASS cannot be required: the gate says so, and stays
    closed.
    """
    copy().sign()
    text = SCENARIO.replace("schema: 1\n", "schema: 1\nrole: self-test\nexpects: FAIL\n")
    place.trust({"scenarios/words/scenario.yaml": text})
    found = {one.name: one for one in place.gate().requirements}
    assert found["verdict"].word == "REFUSED"
    assert "self-test that must end with FAIL" in found["verdict"].reason
