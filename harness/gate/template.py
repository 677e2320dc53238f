"""A policy to begin with, made of the scenarios and the key that are here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness.gate.policy import parse_policy
from harness.scenario import Scenario, ScenarioError, load_scenario, scenario_files
from harness.trust.key import KeyProblem, find_signer

POLICY = """\
schema: 1
# Which scenarios must have passed for the gate to open. Taken, like the keys, from the trusted branch.
signers:
  allowed: allowed_signers              # beside this file; revoked: revoked_signers where a key was given up
  roles:                                # names of allowed_signers; a name without a role counts for nothing
    developer: []
    ci: [{name}]
    release: []                         # may also sign for a changed scenario
signatures: {{keys: 1, roles: [ci, release]}}
require:
{require}
trials: {{candidate: {candidate}, control: {control}}}
max_age: 7d
challenge: optional                     # required: the gate asks for a text that the run has signed
tree: clean
max_jobs: 8
environment: {{nix: false{locks}}}
failures: refuse                        # a trusted FAIL of the commit stays one, also after a PASS
"""
SIGNERS = """\
# One line for each key: name, options, key. The names have their roles in policy.yaml.
{line}
"""


class TemplateError(Exception):
    """A policy that cannot be written; the message says what, where and what to do."""


def write(path: Path) -> Iterator[Path]:
    """Write a policy and a list of signers, and name each once it is there.

    Nothing that is there is written over.

    Raises:
        TemplateError: there is a policy, there is nothing that it could require, or it cannot be
            written.
    """
    if path.exists():
        raise TemplateError(f"{path} is there already: check it with `rankproof gate --lint`")
    claims = _claims()
    if not claims:
        raise TemplateError("scenarios/ holds no claim that a gate could require")
    require = "\n".join(
        f"  - {{scenario: {scenario.id}{_file(file, scenario)}}}" for file, scenario in claims
    )
    locks = sorted(
        file.as_posix()
        for file in Path("locks").glob("*.txt")
        if file.stem in ("cpu", "cuda", "metal")
    )
    text = POLICY.format(
        name="ci@example.org",
        require=require,
        candidate=min(scenario.trials.candidate for _, scenario in claims),
        control=min(scenario.trials.control for _, scenario in claims),
        locks=f", locks: {json.dumps(locks)}" if locks else "",
    )
    parse_policy(text.encode(), name=str(path))
    listed = path.parent / "allowed_signers"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        yield path
        if not listed.exists():
            listed.write_text(SIGNERS.format(line=_line()), encoding="utf-8")
            yield listed
    except OSError as error:
        raise TemplateError(f"{path} cannot be written: {error.strerror}") from None


def _claims() -> list[tuple[Path, Scenario]]:
    """Scenarios that can be required: they count, and must pass."""
    claims = []
    try:
        files = scenario_files(Path("scenarios"))
    except ScenarioError:
        return []
    for file in files:
        try:
            loaded = load_scenario(file)
        except ScenarioError:
            continue
        scenario = loaded.scenario
        # A gate takes nothing that was set on the command line.
        if scenario.role == "claim" and not loaded.lacks_revisions:
            claims.append((file, scenario))
    return claims


def _file(file: Path, scenario: Scenario) -> str:
    usual = f"scenarios/{scenario.id}/scenario.yaml"
    return "" if file.as_posix() == usual else f", file: {json.dumps(file.as_posix())}"


def _line() -> str:
    """The key that would sign here, as a line to be turned on: nobody should trust a key because a
    program wrote it.
    """
    try:
        key = find_signer(make=False).public_key
    except (KeyProblem, OSError):
        key = "ssh-ed25519 AAAA..."
    return f'# ci@example.org namespaces="report@rankproof,attestation@rankproof" {key}'
