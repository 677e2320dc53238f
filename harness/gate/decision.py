"""The release gate: find the reports of a commit, verify them, compare them with what is trusted,
and decide.

Order matters. First the trusted revision gives policy, keys and scenarios (`basis`). Then reports
are found and verified whole (`reports`). Then the policy is applied, requirement by requirement
(`requirements`, which is pure: no file, no process, no clock).

For each required scenario the newest report in a role that counts decides, and every rule (`rules`)
is held against it. A rule answers with one word:

    MET            it holds
    REFUSED        it does not
    MISSING        what it asks for is not there
    CANNOT TELL    the run was INCONCLUSIVE or a cell was skipped
    NOT VERIFIED   a report of this commit was refused by verification

The gate is OPEN where every rule is met. What is not in the list of passed scenarios is missing: an
empty list of failures proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.forms.model import Model
from harness.forms.text import plural, visible
from harness.gate.basis import GateBasis, read_basis
from harness.gate.objects import Objects
from harness.gate.policy import Required
from harness.gate.reports import Refusal, Report, Runs, find_runs, some, verified
from harness.gate.rules import RULES, Ruling, Word, holds


class TrustedRevision(Model):
    """The revision that decided."""

    ref: str
    commit: str


class PolicyFile(Model):
    """The policy, by its path in the trusted revision."""

    path: str
    sha256: str


class ReportLine(Model):
    """A verified report of the commit. `made` is the signer's own claim."""

    place: str
    scenario: str
    verdict: str
    made: str
    run: str
    signer: str
    key: str
    roles: list[str]


class Decision(Model):
    """What a gate decided, as `rankproof gate --json` prints it.

    Attributes:
        answer: USAGE where nothing could be asked.
        exit: the exit code.
        problems: why nothing was decided; empty where something was.
    """

    format: Literal[1] = 1
    answer: Answer | Literal["USAGE"]
    exit: int
    commit: str | None = None
    trusted: TrustedRevision | None = None
    policy: PolicyFile | None = None
    requirements: list[Requirement] = Field(default_factory=list)
    reports: list[ReportLine] = Field(default_factory=list)
    refused: list[Refusal] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)


# What may be asked, and the folder and time that a test sets; all but the paths by name.
def decide(
    paths: Sequence[Path],
    *,
    commit: str,
    policy: str,
    trusted_ref: str,
    challenge: str | None = None,
    folder: Path = Path(),
    now: datetime | None = None,
) -> Decision:
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
        NoTrustedRef: the trusted revision, or something it must hold, is not there.
        NoCommit: no repository, or no such commit.
        ScenarioError: the policy, or a required scenario, has mistakes.
        GateError: a folder that is not there, or with too many runs.
    """
    when = now or datetime.now(UTC)
    basis = read_basis(
        Objects(folder), commit=commit, path=policy, ref=trusted_ref, challenge=challenge, now=when
    )
    runs = find_runs(paths, basis.commit)
    reports: list[Report] = []
    refusals: list[Refusal] = []
    others = dict(runs.elsewhere)
    for run in runs.claimed:
        report = verified(run, basis)
        if isinstance(report, Refusal):
            refusals.append(report)
        elif report.record.run.source.commit != basis.commit:
            other = report.record.run.source.commit or "unknown"
            others[other] = others.get(other, 0) + 1
        else:
            reports.append(report)
    rows = requirements(basis, reports, refusals, elsewhere=sorted(others))
    word = answer(rows)
    return Decision(
        answer=word,
        exit=CODES[word],
        commit=basis.commit,
        trusted=TrustedRevision(ref=basis.ref, commit=basis.trusted),
        policy=PolicyFile(path=basis.policy_path, sha256=basis.policy_sha256),
        requirements=rows,
        reports=[
            ReportLine(
                place=visible(report.place),
                scenario=report.record.scenario.id,
                verdict=report.record.judgement.verdict,
                made=report.record.run.made,
                run=report.record.run.id,
                signer=report.signer,
                key=report.key,
                roles=list(report.roles),
            )
            for report in reports
        ],
        refused=refusals,
        notes=_notes(basis, runs, others),
    )


def _notes(basis: GateBasis, runs: Runs, others: Mapping[str, int]) -> list[str]:
    notes = []
    if basis.trusted == basis.commit:
        notes.append(
            f"The commit under test is {basis.ref} itself, so its own policy decided, and a push"
            f" to {basis.ref} can change that policy. To require a second step, trust the last"
            " release: --trusted-ref refs/tags/…"
        )
    if others:
        reports = plural(sum(others.values()), "report")
        commits = plural(len(others), "other commit")
        notes.append(f"Not counted: {reports} for {commits}.")
    if runs.unfinished:
        notes.append(
            f"Not counted: {plural(runs.unfinished, 'unfinished run')}, which are unsigned."
        )
    return notes


Answer = Literal["OPEN", "CLOSED", "CANNOT TELL", "NOT VERIFIED"]
CODES: dict[Answer, int] = {"OPEN": 0, "CLOSED": 1, "CANNOT TELL": 2, "NOT VERIFIED": 3}
# Rules whose reasons are those of the report's cells.
OF_CELLS = ("verdict", "cells")


class Requirement(Model):
    """One rule, and what became of it.

    Attributes:
        scenario: the required scenario it is about; None for a rule about the whole.
        name: the rule's name, one of RULES and those that `decide` adds.
        reason: why the word is what it is.
        codes: of what the reports give as reasons for it (docs/reading.md), and the words of those
            that were refused.
    """

    scenario: str | None
    name: str
    word: Word
    reason: str
    codes: list[str] = Field(default_factory=list)


def requirements(
    basis: GateBasis,
    reports: Sequence[Report],
    refusals: Sequence[Refusal],
    *,
    elsewhere: Sequence[str] = (),
) -> list[Requirement]:
    """Hold every rule of the policy against the verified reports of the commit, and those of it
    that were refused.

    `elsewhere` are other commits that reports in the folder say they are of, for messages.
    """
    rows = [_verified(reports, refusals)]
    for required in basis.policy.require:
        mine = sorted(
            (report for report in reports if report.record.scenario.id == required.scenario),
            key=lambda report: report.age,
        )
        rows += _of_scenario(basis, required, mine, elsewhere)
    return rows


def answer(requirements: Sequence[Requirement]) -> Answer:
    """Return what all words come to. A report that was refused weighs most: something is wrong
    beyond this commit.
    """
    words = {requirement.word for requirement in requirements}
    if "NOT VERIFIED" in words:
        return "NOT VERIFIED"
    if words & {"REFUSED", "MISSING"}:
        return "CLOSED"
    # Never open by having nothing to say.
    return "OPEN" if words == {"MET"} else "CANNOT TELL"


def _verified(reports: Sequence[Report], refusals: Sequence[Refusal]) -> Requirement:
    if not refusals:
        what = (
            f"{plural(len(reports), 'report')} for this commit, all verified"
            if reports
            else "no report for this commit"
        )
        return Requirement(scenario=None, name="verified", word="MET", reason=what)
    reasons = [f"{refusal.place}: {refusal.word}: {refusal.message}" for refusal in refusals]
    words = sorted({refusal.word for refusal in refusals})
    return Requirement(
        scenario=None, name="verified", word="NOT VERIFIED", reason=some(reasons), codes=words
    )


def _of_scenario(
    basis: GateBasis, required: Required, mine: Sequence[Report], elsewhere: Sequence[str]
) -> list[Requirement]:
    def row(name: str, ruling: Ruling) -> Requirement:
        word, reason = ruling
        cells = (
            deciding.record.judgement.cells if mine and name in OF_CELLS and word != "MET" else ()
        )
        codes = sorted({str(why.code) for cell in cells for why in cell.reasons})
        return Requirement(
            scenario=required.scenario, name=name, word=word, reason=visible(reason), codes=codes
        )

    if not mine:
        others = (
            f"; the folder has reports for {some([commit[:12] for commit in elsewhere])}"
            if elsewhere
            else ""
        )
        reason = f"it has no verified report for commit {basis.commit[:12]}{others}"
        return [row("report", ("MISSING", reason))]
    counting = [report for report in mine if set(report.roles) & set(basis.policy.signatures.roles)]
    deciding = (counting or mine)[-1]
    rows = [row("report", ("MET", f"{deciding.place}, made {deciding.record.run.made}"))]
    rows += [
        row("signer", _signer(basis, deciding)),
        row("failures", _failures(basis, mine, deciding)),
    ]
    rows += [row(name, rule(basis, required, deciding)) for name, rule in RULES.items()]
    rows.append(row("scenario", _scenario(basis, required, deciding, mine)))
    rows.append(row("keys", _keys(basis, required, deciding, counting)))
    return rows


def _signer(basis: GateBasis, report: Report) -> Ruling:
    who = f"{report.signer} ({report.key})"
    wanted = basis.policy.signatures.roles
    if not report.roles:
        return (
            "REFUSED",
            (
                f"{who} has no role in the policy of {basis.ref}; the policy requires the role"
                f" {' or '.join(wanted)}"
            ),
        )
    if not set(report.roles) & set(wanted):
        return (
            "REFUSED",
            (
                f"{who} signs as {', '.join(report.roles)}; the policy requires the role"
                f" {' or '.join(wanted)}"
            ),
        )
    return "MET", f"{who}, {', '.join(report.roles)}"


def _failures(basis: GateBasis, mine: Sequence[Report], deciding: Report) -> Ruling:
    """Never retry until green: a FAIL of this commit stays one, whoever ran it how often
    afterwards.
    """
    # What ran with changes was not this commit.
    clean = [report for report in mine if report.record.run.source.dirty is not True]
    failed = [report for report in clean if report.record.judgement.verdict == "FAIL"]
    changed = (
        f"; {plural(len(mine) - len(clean), 'report')} of a changed tree not counted"
        if mine != clean
        else ""
    )
    if not failed:
        return "MET", f"none of {plural(len(clean), 'report')} for this commit is a FAIL{changed}"
    later = [report for report in failed if report.age > deciding.age]
    if basis.policy.failures == "newest" and not later:
        return (
            "MET",
            (
                f"{len(failed)} of {plural(len(mine), 'report')} are a FAIL, but the policy counts"
                " only the newest"
            ),
        )
    return (
        "REFUSED",
        (
            "a trusted report for this commit is a FAIL:"
            f" {some([report.place for report in later or failed])}"
        ),
    )


def _scenario(
    basis: GateBasis, required: Required, deciding: Report, mine: Sequence[Report]
) -> Ruling:
    """Refuse a scenario that is not the trusted one, unless somebody who may release signed for it:
    it asks another question.
    """
    if not deciding.differs:
        return "MET", f"the scenario of {basis.ref}"
    how = f"not the scenario of {basis.ref}: {some(deciding.differs)}"
    for report in mine:
        same = report is deciding or (
            _question(report) == _question(deciding) and holds(basis, required, report)
        )
        if "release" in report.roles and same:
            return "MET", f"{how}; {report.signer} signed for it as release"
    return "REFUSED", f"{how}. A key with the role release may sign for a changed scenario"


def _question(report: Report) -> tuple[object, ...]:
    """Return what makes two runs ask the same: the scenario file, what was set over it, and the
    code of both arms.
    """
    record = report.record
    code = tuple(
        (name, tuple(sorted(arm.files.items())), arm.arguments)
        for name, arm in sorted(record.arms.items())
    )
    inputs = tuple((given.name, given.digest) for given in record.run.inputs)
    return record.scenario.sha256, tuple(record.run.overrides), code, inputs


def _keys(
    basis: GateBasis, required: Required, deciding: Report, counting: Sequence[Report]
) -> Ruling:
    """Different keys whose newest report passes. The deciding one is judged by its own rows."""
    wanted = basis.policy.signatures.keys
    newest = {report.key: report for report in counting}
    also = {
        key
        for key, report in newest.items()
        if key != deciding.key and _vouches(basis, required, report, deciding)
    }
    keys = sorted(also | ({deciding.key} if deciding in counting else set()))
    if wanted > 1 and len(keys) < wanted:
        return (
            "REFUSED",
            (
                f"the signatures of {plural(len(keys), 'key')} count, but {wanted} different keys"
                f" are required: {some(keys)}"
            ),
        )
    return "MET", f"{plural(len(keys), 'key')}, {wanted} required"


def _vouches(basis: GateBasis, required: Required, report: Report, deciding: Report) -> bool:
    same = not report.differs or _question(report) == _question(deciding)
    return same and holds(basis, required, report)
