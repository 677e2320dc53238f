"""What a gate believes: policy, keys, scenarios and locks of the trusted revision, all read before
any report.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.git import GitEntry, through_links
from harness.forms.problem import Problem
from harness.forms.source import read_source
from harness.gate.objects import NoTrustedRef, Objects
from harness.gate.policy import Policy, Required, parse_policy
from harness.record.model import Record
from harness.run.arms.code import LINK, SUBMODULE, below
from harness.run.arms.provenance import Tree
from harness.scenario import Scenario, ScenarioError, cells, parse_scenario
from harness.trust import signers
from harness.trust.signers import SignerPolicy, SignersMalformed


class GateError(Exception):
    """The gate was asked something that makes no sense.

    The message says what, where and what to do.
    """


@dataclass(frozen=True, kw_only=True)
class TrustedScenario:
    """Required scenario as the trusted revision has it.

    Attributes:
        path: of its file, from the top of the repository.
        sha256: of its file.
        files: of its folder, by their path from there.
    """

    path: str
    sha256: str
    scenario: Scenario
    files: Mapping[str, GitEntry]

    @property
    def folder(self) -> str:
        """Folder of its file."""
        return posixpath.dirname(self.path)

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """Ids of all cells of its matrix."""
        return tuple(cell.id for cell in cells(self.scenario))

    @property
    def no_claim(self) -> str:
        """Why it cannot count at all, or empty: it is a finding about others, or expects something
        but PASS.
        """
        if self.scenario.role == "upstream":
            return "its role is upstream, and a finding about third-party code does not count"
        if self.scenario.expects not in (None, "PASS"):
            return (
                f"it is a self-test that must end with {self.scenario.expects}, but a gate"
                " requires PASS"
            )
        return ""


@dataclass(frozen=True, kw_only=True)
class GateBasis:
    """Everything that is believed: from the trusted revision, but for the ids of the commit's
    files, and what is asked.

    Attributes:
        ref: name of the trusted revision, for messages.
        trusted: full id of its commit.
        commit: full id of the commit under test.
        challenge: the text that every report must bear, or None.
        now: by which signers and ages are judged.
        locks: sha256 of the policy's lock files as trusted.
        contains: whether a commit is the trusted one or in its history.
        tree: the files of a commit; raises NoCommit where it is not in this clone.
    """

    ref: str
    trusted: str
    commit: str
    challenge: str | None
    now: datetime
    policy: Policy
    policy_path: str
    policy_sha256: str
    signers: SignerPolicy
    scenarios: Mapping[str, TrustedScenario]
    locks: frozenset[str]
    trusted_files: Mapping[str, GitEntry]
    trusted_sha256: Callable[[Sequence[str]], Mapping[str, str]]
    commit_files: Mapping[str, GitEntry]
    contains: Callable[[str], bool]
    tree: Callable[[str], Tree]

    def cells(self, required: Required, record: Record) -> tuple[str, ...]:
        """Cells that must be PASS: those of the policy, else every one of the trusted matrix
        and of the run's.
        """
        if required.cells is not None:
            return required.cells
        judged = (cell.id for cell in record.judgement.cells)
        return tuple(dict.fromkeys((*self.scenarios[required.scenario].cells, *judged)))


def lint(path: Path) -> None:
    """Check a policy file of the working tree, and the files it names beside it and below the
    current folder.

    Raises:
        ScenarioError: with every problem.
    """
    policy = parse_policy(read_source(path), name=str(path))
    listed = path.parent / policy.signers.allowed
    try:
        content = listed.read_bytes()
    except OSError as error:
        raise ScenarioError([_problem(str(listed), f"cannot be read ({error.strerror})")]) from None
    _demand_known(policy, content, name=str(listed), policy_name=str(path))


def read_basis(
    objects: Objects,
    *,
    commit: str,
    path: str,
    ref: str,
    challenge: str | None = None,
    now: datetime,
) -> GateBasis:
    """Return what the trusted revision says.

    Args:
        objects: of the repository.
        commit: the commit under test: a name or an id.
        path: of the policy, from the folder that the repository was opened at.
        ref: the trusted revision.
        challenge: the text that every report must bear.
        now: by which signers and ages are judged.

    Raises:
        NoTrustedRef: the trusted revision, or something it must hold, is not there.
        NoCommit: no such commit.
        ScenarioError: the policy, or a required scenario, has mistakes.
        GateError: the policy lies outside of the repository.
    """
    trusted = objects.trusted(ref)
    under_test = objects.commit(commit)
    files = objects.files(trusted)
    place = posixpath.normpath(posixpath.join(objects.prefix, path))
    if posixpath.isabs(path) or place.startswith(".."):
        raise GateError(
            f"--policy {path}: this is not a path inside the repository; pass a path inside it,"
            f" because the policy is read from {ref}"
        )
    name = f"{ref}:{place}"
    if place not in files:
        raise NoTrustedRef(f"{name} does not exist; commit the policy to the trusted branch first")
    text = objects.read([files[place].blob])[files[place].blob]
    policy = parse_policy(text, name=name)

    def there(path: str, what: str) -> str:
        if path not in files:
            raise NoTrustedRef(f"{ref}:{path}, {what}, does not exist")
        return path

    def beside(given: str) -> str:
        return there(
            posixpath.normpath(posixpath.join(posixpath.dirname(place), given)),
            "which the policy names",
        )

    allowed = beside(policy.signers.allowed)
    revoked = beside(policy.signers.revoked) if policy.signers.revoked else None
    paths = [allowed, *([revoked] if revoked else [])]
    paths += [
        there(required.path, f"the file of required scenario {required.scenario}")
        for required in policy.require
    ]
    paths += [
        there(lock, "which the policy lists as a lock file") for lock in policy.environment.locks
    ]
    content = objects.read([files[path].blob for path in paths])
    texts = {path: content[files[path].blob] for path in paths}
    _demand_known(policy, texts[allowed], name=f"{ref}:{allowed}", policy_name=name)
    known = {}
    for required in policy.require:
        scenario = parse_scenario(texts[required.path], name=f"{ref}:{required.path}")
        if scenario.id != required.scenario:
            message = f"is scenario {scenario.id}, but the policy calls it {required.scenario}"
            raise ScenarioError([_problem(f"{ref}:{required.path}", message)])
        known[scenario.id] = TrustedScenario(
            path=required.path,
            sha256=sha256(texts[required.path]),
            scenario=scenario,
            files=below(files, posixpath.dirname(required.path)),
        )

    def digests(blobs: Sequence[str]) -> dict[str, str]:
        return {blob: sha256(data) for blob, data in objects.read(blobs).items()}

    return GateBasis(
        ref=ref,
        trusted=trusted,
        commit=under_test,
        challenge=challenge,
        now=now,
        policy=policy,
        policy_path=place,
        policy_sha256=sha256(text),
        signers=SignerPolicy(
            allowed=texts[allowed],
            allowed_from=f"{ref}:{allowed}",
            revoked=texts[revoked] if revoked else None,
        ),
        scenarios=known,
        locks=frozenset(sha256(texts[lock]) for lock in policy.environment.locks),
        trusted_files=files,
        trusted_sha256=digests,
        commit_files=files if under_test == trusted else objects.files(under_test),
        contains=lambda commit: objects.contains(trusted, commit),
        tree=cache(lambda commit: _tree_of(objects, commit)),
    )


def _tree_of(objects: Objects, commit: str) -> Tree:
    listed = objects.files(commit)
    links = {path: file.blob for path, file in listed.items() if file.mode == LINK}
    targets = objects.read(list(links.values()))
    files = through_links(
        {path: file for path, file in listed.items() if file.mode not in (LINK, SUBMODULE)},
        {path: os.fsdecode(targets[blob]) for path, blob in links.items() if blob in targets},
    )

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        content = objects.read([files[path].blob for path in wanted])
        return {path: content[files[path].blob] for path in wanted}

    return Tree(files, read)


def _demand_known(policy: Policy, allowed: bytes, *, name: str, policy_name: str) -> None:
    """Every name with a role must be one of the allowed signers: a slip would silently take the
    role away.
    """
    try:
        names = {line.principals for line in signers.read(allowed)}
    except SignersMalformed as error:
        raise ScenarioError([_problem(name, str(error))]) from None
    roles = policy.signers.roles
    unknown = sorted({*roles.developer, *roles.ci, *roles.release} - names)
    if unknown:
        message = f"{name} has no line for {', '.join(unknown)}"
        raise ScenarioError([_problem(policy_name, message, key="signers.roles")])


def _problem(file: str, message: str, *, key: str = "") -> Problem:
    return Problem(file, 1, 1, key, "", message)
