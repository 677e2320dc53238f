"""What a gate decided, for machines (JSON), for people (a table, markdown) and for GitHub (annotations)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from harness.forms.model import Model
from harness.forms.text import visible
from harness.report.blocks import Block, BulletList, Code, Foreign, Heading, Paragraph, Part, Strong, Table, Text
from harness.report.markdown import render_markdown
from harness.run.gate import Decided
from harness.trust.asked import CODES, Answer, Requirement

SUMMARY_REASON = 500


class Trusted(Model):
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


class RefusalLine(Model):
    """A report that says it is of the commit, and was refused; `word` as in docs/verify.md."""

    place: str
    word: str
    message: str


class Decision(Model):
    """The decision as JSON.

    Attributes:
        answer: USAGE where nothing could be asked.
        exit: the exit code.
        problems: why there is no decision; empty where there is one.
    """

    format: Literal[1] = 1
    answer: Answer | Literal["USAGE"]
    exit: int
    commit: str | None = None
    trusted: Trusted | None = None
    policy: PolicyFile | None = None
    requirements: list[Requirement] = Field(default_factory=list)
    reports: list[ReportLine] = Field(default_factory=list)
    refused: list[RefusalLine] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)


def decision(found: Decided) -> Decision:
    """Everything a gate found."""
    return Decision(
        answer=found.answer,
        exit=CODES[found.answer],
        commit=found.commit,
        trusted=Trusted(ref=found.trusted_ref, commit=found.trusted),
        policy=PolicyFile(path=found.policy_path, sha256=found.policy_sha256),
        requirements=list(found.requirements),
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
            for one in found.reports
        ],
        refused=[
            RefusalLine(place=visible(one.place), word=one.word, message=visible(one.message)) for one in found.refusals
        ],
        notes=list(found.notes),
    )


def lines(found: Decision) -> Iterable[str]:
    """The decision as plain lines."""
    scenario: str | None = ""
    wide = max((len(one.name) for one in found.requirements), default=0)
    for one in found.requirements:
        if one.scenario != scenario:
            scenario = one.scenario
            if scenario is not None:
                yield scenario
        yield f"  {one.name:<{wide}}  {one.word:<12}  {one.reason}"
    for note in found.notes:
        yield f"note: {visible(note)}"
    yield from found.problems
    if found.commit and found.trusted and found.policy:
        yield (
            f"gate {found.answer}: commit {found.commit[:12]}, by {visible(found.policy.path)} of "
            f"{visible(found.trusted.ref)} ({found.trusted.commit[:12]})"
        )
    else:
        yield f"gate {found.answer}"


def summary(found: Decision) -> str:
    """The decision as markdown, for a step summary."""
    blocks: list[Block] = [Heading(2, f"Release gate: {found.answer}")]
    if found.commit and found.trusted and found.policy:
        blocks.append(
            Paragraph(
                "Commit ",
                Code(found.commit),
                ", by ",
                Code(found.policy.path),
                " of ",
                Code(found.trusted.ref),
                " (",
                Code(found.trusted.commit[:12]),
                ").",
            )
        )
    if found.requirements:
        rows: list[tuple[Part, ...]] = [
            (one.scenario or "all", one.name, _word(one), Foreign(one.reason, SUMMARY_REASON))
            for one in found.requirements
        ]
        blocks.append(Table(("scenario", "requirement", "word", "reason"), tuple(rows)))
    if found.notes or found.problems:
        blocks.append(BulletList(tuple(Foreign(text, SUMMARY_REASON) for text in (*found.problems, *found.notes))))
    return render_markdown(blocks)


def commands(found: Decision) -> Iterable[str]:
    """GitHub's workflow commands: one error for each requirement that is not met."""
    for one in found.requirements:
        if one.word != "MET":
            title = f"rankproof gate: {one.scenario or 'reports'}: {one.name}: {one.word}"
            yield f"::error title={_property(title)}::{_data(one.reason)}"
    for problem in found.problems:
        yield f"::error title=rankproof gate::{_data(problem)}"


def _word(one: Requirement) -> Part:
    return one.word if one.word == "MET" else Text(Strong(one.word))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def unable(answer: Answer | Literal["USAGE"], code: int, problems: Sequence[str]) -> Decision:
    """There is no decision, and why."""
    return Decision(answer=answer, exit=code, problems=[visible(problem) for problem in problems])
