"""The release gate: find the reports of a commit, verify them, compare them with what is trusted, and decide.

Order matters. First the trusted revision gives policy, keys and scenarios. Then reports are found, and nothing they say
is believed before the whole of each is verified as `rankproof verify` does it. Then the policy is applied.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from harness.forms.problem import Problem
from harness.forms.strict_json import NotStrict, strict_json
from harness.record.facts import PATH as RUN_PATH
from harness.record.model import Record
from harness.run.again import Again
from harness.run.compared import Basis, TrustedScenario, differs, foreign, strangers
from harness.run.provenance import Tree
from harness.run.revision import LINK, SUBMODULE
from harness.run.trusted import NotTrusted, Objects, below
from harness.scenario import ScenarioError, cells, parse_scenario
from harness.trust import gate, signers
from harness.trust.asked import Answer, Asked, Refusal, Report, Requirement, Trusted, counted
from harness.trust.folder import Folder, Unreadable, verify_folder
from harness.trust.policy import Policy, parse_policy
from harness.trust.signers import SignerPolicy, SignersMalformed
from harness.trust.verification import Read

REPORT = "report.md"
UNFINISHED = ".unfinished"
DEEPEST = 5
MOST_FOLDERS = 20_000
LARGEST_CLAIM = 8 * 2**20


class GateError(Exception):
    """The gate was asked something that makes no sense; the message says what, where and what to do."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What the gate found.

    Attributes:
        answer: OPEN, CLOSED, CANNOT TELL or NOT VERIFIED.
        commit: full id of the commit under test.
        trusted: full id of the revision that decided.
        policy_sha256: of the policy file as trusted.
        notes: what a reader should know and no rule asks.
    """

    answer: Answer
    commit: str
    trusted_ref: str
    trusted: str
    policy_path: str
    policy_sha256: str
    requirements: Sequence[Requirement]
    reports: Sequence[Report]
    refusals: Sequence[Refusal]
    notes: Sequence[str]


@dataclass
class _Found:
    """What a results folder holds."""

    claimed: list[Path] = field(default_factory=list)
    elsewhere: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0


def decide(
    paths: Sequence[Path],
    *,
    commit: str,
    policy: str,
    trusted_ref: str,
    challenge: str | None = None,
    folder: Path = Path(),
    now: datetime | None = None,
) -> Decided:
    """Apply the trusted policy to the reports of a commit.

    Args:
        paths: results folders, or folders of runs.
        commit: the commit under test: a name or an id.
        policy: path of the policy, from `folder`; it is read from the trusted revision.
        trusted_ref: the revision that is believed.
        challenge: the text that every report must bear.
        folder: a folder of the repository.
        now: the time by which signers and ages are judged; by default the clock.

    Raises:
        NotTrusted: the trusted revision, or something it must hold, is not there.
        NoCommit: no repository, or no such commit.
        ScenarioError: the policy, or a required scenario, has mistakes.
        GateError: a folder that is not there, or with too many runs.
    """
    when = now or datetime.now(UTC)
    basis = _basis(Objects(folder), commit=commit, path=policy, ref=trusted_ref)
    found = _find(paths, basis.commit)
    reports: list[Report] = []
    refusals: list[Refusal] = []
    others = dict(found.elsewhere)
    for place in found.claimed:
        one = _take(place, basis, when)
        if isinstance(one, Refusal):
            refusals.append(one)
        elif one.record.run.source.commit != basis.commit:
            other = one.record.run.source.commit or "unknown"
            others[other] = others.get(other, 0) + 1
        else:
            reports.append(one)
    asked = Asked(
        policy=basis.policy,
        commit=basis.commit,
        challenge=challenge,
        now=when,
        scenarios={name: _trusted(known) for name, known in basis.scenarios.items()},
        locks=basis.locks,
        trusted=basis.ref,
    )
    requirements = gate.decide(asked, reports, refusals, elsewhere=sorted(others))
    return Decided(
        answer=gate.answer(requirements),
        commit=basis.commit,
        trusted_ref=basis.ref,
        trusted=basis.trusted,
        policy_path=basis.policy_path,
        policy_sha256=basis.policy_sha256,
        requirements=requirements,
        reports=reports,
        refusals=refusals,
        notes=_notes(basis, found, others),
    )


def lint(path: Path) -> None:
    """Check a policy file of the working tree, and the files it names beside it and below the current folder.

    Raises:
        ScenarioError: with every problem.
    """
    from harness.forms.source import read_source

    policy = parse_policy(read_source(path), name=str(path))
    listed = path.parent / policy.signers.allowed
    try:
        content = listed.read_bytes()
    except OSError as error:
        raise ScenarioError([_problem(str(listed), f"cannot be read ({error.strerror})")]) from None
    _demand_known(policy, content, name=str(listed), policy_name=str(path))


# --- what is trusted ----------------------------------------------------------------------------------------------


def _basis(objects: Objects, *, commit: str, path: str, ref: str) -> Basis:
    trusted = objects.trusted(ref)
    under_test = objects.commit(commit)
    files = objects.files(trusted)
    place = posixpath.normpath(posixpath.join(objects.prefix, path))
    if posixpath.isabs(path) or place.startswith(".."):
        raise GateError(f"--policy {path}: give its path inside the repository; it is read from {ref}")
    name = f"{ref}:{place}"
    if place not in files:
        raise NotTrusted(f"{name} is not there: commit the policy to the trusted branch first")
    text = objects.read([files[place].blob])[files[place].blob]
    policy = parse_policy(text, name=name)

    def beside(given: str) -> str:
        found = posixpath.normpath(posixpath.join(posixpath.dirname(place), given))
        if found not in files:
            raise NotTrusted(f"{ref}:{found}, which the policy names, is not there")
        return found

    allowed = beside(policy.signers.allowed)
    revoked = beside(policy.signers.revoked) if policy.signers.revoked else None
    paths = [allowed, *([revoked] if revoked else [])]
    for required in policy.require:
        if required.path not in files:
            raise NotTrusted(f"{ref}:{required.path}, the file of required scenario {required.scenario}, is not there")
        paths.append(required.path)
    for lock in policy.environment.locks:
        if lock not in files:
            raise NotTrusted(f"{ref}:{lock}, which the policy names as a lock, is not there")
        paths.append(lock)
    content = objects.read([files[one].blob for one in paths])
    texts = {one: content[files[one].blob] for one in paths}
    _demand_known(policy, texts[allowed], name=f"{ref}:{allowed}", policy_name=name)
    known = {}
    for required in policy.require:
        scenario = parse_scenario(texts[required.path], name=f"{ref}:{required.path}")
        if scenario.id != required.scenario:
            message = f"is scenario {scenario.id}, the policy names it as {required.scenario}"
            raise ScenarioError([_problem(f"{ref}:{required.path}", message)])
        known[scenario.id] = TrustedScenario(
            path=required.path,
            sha256=hashlib.sha256(texts[required.path]).hexdigest(),
            scenario=scenario,
            files=below(files, posixpath.dirname(required.path)),
        )

    def digests(blobs: Sequence[str]) -> dict[str, str]:
        return {blob: hashlib.sha256(data).hexdigest() for blob, data in objects.read(blobs).items()}

    return Basis(
        ref=ref,
        trusted=trusted,
        commit=under_test,
        policy=policy,
        policy_path=place,
        policy_sha256=hashlib.sha256(text).hexdigest(),
        signers=SignerPolicy(
            allowed=texts[allowed], allowed_from=f"{ref}:{allowed}", revoked=texts[revoked] if revoked else None
        ),
        scenarios=known,
        locks=frozenset(hashlib.sha256(texts[lock]).hexdigest() for lock in policy.environment.locks),
        trusted_files=files,
        trusted_sha256=digests,
        commit_files=files if under_test == trusted else objects.files(under_test),
        contains=lambda commit: objects.contains(trusted, commit),
        tree=cache(lambda commit: _tree_of(objects, commit)),
    )


def _tree_of(objects: Objects, commit: str) -> Tree:
    files = {path: file for path, file in objects.files(commit).items() if file.mode not in (LINK, SUBMODULE)}

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        content = objects.read([files[path].blob for path in wanted])
        return {path: content[files[path].blob] for path in wanted}

    return Tree(files, read)


def _demand_known(policy: Policy, allowed: bytes, *, name: str, policy_name: str) -> None:
    """Every name with a role must be one of the allowed signers: a slip would silently take the role away."""
    try:
        names = {line.principals for line in signers.read(allowed)}
    except SignersMalformed as error:
        raise ScenarioError([_problem(name, str(error))]) from None
    roles = policy.signers.roles
    unknown = sorted({*roles.developer, *roles.ci, *roles.release} - names)
    if unknown:
        message = f"no line of {name} is for {', '.join(unknown)}"
        raise ScenarioError([_problem(policy_name, message, key="signers.roles")])


def _problem(file: str, message: str, *, key: str = "") -> Problem:
    return Problem(file, 1, 1, key, "", message)


def _trusted(known: TrustedScenario) -> Trusted:
    scenario = known.scenario
    counts = ""
    if scenario.role == "upstream":
        counts = "its role is upstream: a finding about somebody else's code does not count"
    elif scenario.expects not in (None, "PASS"):
        counts = f"it is a self-test that must end {scenario.expects}; a gate asks for PASS"
    return Trusted(cells=tuple(cell.id for cell in cells(scenario)), counts=counts)


# --- the reports --------------------------------------------------------------------------------------------------


def _find(paths: Sequence[Path], commit: str) -> _Found:
    """Runs whose own facts say that they are of the commit, and those that cannot be asked.

    What a run says here is only used to leave it aside: whoever could write another commit into it could as well
    remove it.
    """
    found = _Found()
    seen: set[tuple[int, int]] = set()
    budget = [MOST_FOLDERS]
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise GateError(f"{path}: {error.strerror}: name a results folder, or a run") from None
        if not stat.S_ISDIR(status.st_mode):
            raise GateError(f"{path}: is no folder: name a results folder, or a run")
        for run in _runs(path, budget, found):
            status = run.stat()
            # The same run by two names is one run.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            claim = _claim(run)
            if claim is None or claim == commit:
                found.claimed.append(run)
            else:
                found.elsewhere[claim] = found.elsewhere.get(claim, 0) + 1
    return found


def _runs(path: Path, budget: list[int], found: _Found, depth: int = 0) -> Iterator[Path]:
    """Folders that hold a report, never through a link (`latest` is one)."""
    budget[0] -= 1
    if budget[0] < 0:
        raise GateError(f"more than {MOST_FOLDERS} folders: name the runs, or the scenarios' folders, one by one")
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise GateError(f"{path} cannot be listed: {error.strerror}") from None
    if any(entry.name == REPORT for entry in entries):
        yield path
        return
    if path.name.endswith(UNFINISHED):
        found.unfinished += 1
        return
    for entry in entries:
        if depth < DEEPEST and entry.is_dir(follow_symlinks=False):
            yield from _runs(Path(entry.path), budget, found, depth + 1)


def _claim(run: Path) -> str | None:
    """The commit that a run says it is of; None where it says none that can be read, so that it is verified."""
    try:
        with Folder(run) as folder:
            commit = strict_json(folder.read(RUN_PATH, LARGEST_CLAIM))["source"]["commit"]
    except (OSError, Unreadable, NotStrict, KeyError, TypeError):
        return None
    return commit if isinstance(commit, str) and commit else None


def _take(run: Path, basis: Basis, now: datetime) -> Report | Refusal:
    """Verify a run, and compare it with what is trusted from the very bytes that were verified."""
    again = Again()
    kept: list[tuple[Record, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = []

    def render(read: Read, digest: str) -> bytes:
        body = again.render(read, digest)
        record = again.record
        assert record is not None  # it was rendered
        known = basis.scenarios.get(record.scenario.id)
        ways = differs(record, known, basis, read) if known else ()
        files = foreign(record, known, basis, read) if known else ()
        kept.append((record, ways, files, strangers(record, basis, read) if known else ()))
        return body

    found = verify_folder(
        run / REPORT,
        policy=basis.signers,
        judge=again.judge,
        render=render,
        rebuild=again.rebuild,
        views=again.views,
        now=now,
    )
    if not found.ok or not kept:
        return Refusal(place=str(run), word=found.word, message=found.message)
    record, ways, files, others = kept[0]
    name = found.signer or ""
    return Report(
        place=str(run),
        record=record,
        signer=name,
        key=found.key or "",
        roles=basis.policy.signers.roles.of(name),
        differs=ways,
        foreign=files,
        strangers=others,
    )


def _notes(basis: Basis, found: _Found, others: Mapping[str, int]) -> list[str]:
    notes = []
    if basis.trusted == basis.commit:
        notes.append(
            f"The commit under test is {basis.ref} itself, so its own policy decided: whoever may push there decides. "
            "For two steps, name the last release: --trusted-ref refs/tags/…"
        )
    if others:
        reports, commits = counted(sum(others.values()), "report"), counted(len(others), "other commit")
        notes.append(f"Left aside: {reports} of {commits}.")
    if found.unfinished:
        notes.append(f"Left aside: {counted(found.unfinished, 'unfinished run')}, which nobody signed.")
    return notes


__all__ = ["Decided", "GateError", "NotTrusted", "decide", "lint"]
