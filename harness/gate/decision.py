"""The release gate: find the reports of a commit, verify them, compare them with what is trusted,
and decide.

Order matters. First the trusted revision gives policy, keys and scenarios (`basis`). Then reports
are found and verified whole (`reports`). Then the policy is applied (`requirements`, `rules`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.forms.model import Model
from harness.forms.text import plural, visible
from harness.gate.basis import Basis, read_basis
from harness.gate.objects import Objects
from harness.gate.reports import Refusal, Report, Runs, find_runs, verified
from harness.gate.requirements import CODES, Answer, Requirement, answer, requirements


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
                place=visible(one.place),
                scenario=one.record.scenario.id,
                verdict=one.record.judgement.verdict,
                made=one.record.run.made,
                run=one.record.run.id,
                signer=one.signer,
                key=one.key,
                roles=list(one.roles),
            )
            for one in reports
        ],
        refused=refusals,
        notes=_notes(basis, runs, others),
    )


def _notes(basis: Basis, runs: Runs, others: Mapping[str, int]) -> list[str]:
    notes = []
    if basis.trusted == basis.commit:
        notes.append(
            f"The commit under test is {basis.ref} itself, so its own policy decided: whoever may"
            " push there decides. For two steps, name the last release: --trusted-ref refs/tags/…"
        )
    if others:
        reports, commits = (
            plural(sum(others.values()), "report"),
            plural(len(others), "other commit"),
        )
        notes.append(f"Left aside: {reports} of {commits}.")
    if runs.unfinished:
        notes.append(
            f"Left aside: {plural(runs.unfinished, 'unfinished run')}, which nobody signed."
        )
    return notes
