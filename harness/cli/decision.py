"""What a gate decided, for people (a table, markdown) and for GitHub (annotations)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.forms.text import visible
from harness.gate.decision import Decision
from harness.gate.requirements import Requirement
from harness.report.blocks import Block, BulletList, Foreign, Heading, Paragraph, Part, Strong, Table, Text, Verbatim
from harness.report.markdown import render_markdown

SUMMARY_REASON = 500


def lines(decision: Decision) -> Iterable[str]:
    """The decision as plain lines."""
    scenario: str | None = ""
    wide = max((len(one.name) for one in decision.requirements), default=0)
    for one in decision.requirements:
        if one.scenario != scenario:
            scenario = one.scenario
            if scenario is not None:
                yield scenario
        yield f"  {one.name:<{wide}}  {one.word:<12}  {one.reason}"
    for note in decision.notes:
        yield f"note: {visible(note)}"
    yield from decision.problems
    if decision.commit and decision.trusted and decision.policy:
        yield (
            f"gate {decision.answer}: commit {decision.commit[:12]}, by {visible(decision.policy.path)} of "
            f"{visible(decision.trusted.ref)} ({decision.trusted.commit[:12]})"
        )
    else:
        yield f"gate {decision.answer}"


def summary(decision: Decision) -> str:
    """The decision as markdown, for a step summary."""
    blocks: list[Block] = [Heading(2, f"Release gate: {decision.answer}")]
    if decision.commit and decision.trusted and decision.policy:
        blocks.append(
            Paragraph(
                "Commit ",
                Verbatim(decision.commit),
                ", by ",
                Verbatim(decision.policy.path),
                " of ",
                Verbatim(decision.trusted.ref),
                " (",
                Verbatim(decision.trusted.commit[:12]),
                ").",
            )
        )
    if decision.requirements:
        rows: list[tuple[Part, ...]] = [
            (one.scenario or "all", one.name, _word(one), Foreign(one.reason, SUMMARY_REASON))
            for one in decision.requirements
        ]
        blocks.append(Table(("scenario", "requirement", "word", "reason"), tuple(rows)))
    if decision.notes or decision.problems:
        blocks.append(
            BulletList(tuple(Foreign(text, SUMMARY_REASON) for text in (*decision.problems, *decision.notes)))
        )
    return render_markdown(blocks)


def commands(decision: Decision) -> Iterable[str]:
    """GitHub's workflow commands: one error for each requirement that is not met."""
    for one in decision.requirements:
        if one.word != "MET":
            title = f"rankproof gate: {one.scenario or 'reports'}: {one.name}: {one.word}"
            yield f"::error title={_property(title)}::{_data(one.reason)}"
    for problem in decision.problems:
        yield f"::error title=rankproof gate::{_data(problem)}"


def _word(one: Requirement) -> Part:
    return one.word if one.word == "MET" else Text(Strong(one.word))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
