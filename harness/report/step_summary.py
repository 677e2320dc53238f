"""A few lines for the summary of a CI job, where links into the results folder lead nowhere."""

from __future__ import annotations

from harness.report.blocks import (
    Block,
    BulletList,
    Foreign,
    Heading,
    Paragraph,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.report.issue import alone
from harness.report.markdown import render_markdown
from harness.report.summary import control_in_words
from harness.report.view import Basis, View
from harness.report.words import answer, percent, worst_first

REASONS_SHOWN = 10
CELLS_SHOWN = 50


def render_step_summary(basis: Basis) -> bytes:
    """The lines, as markdown that ends with a blank line."""
    record = basis.record
    judgement = record.judgement
    rows = tuple(
        (
            Foreign(cell.id),
            Strong(cell.verdict),
            f"{cell.candidate.failed} / {cell.candidate.counted}" if cell.candidate else "-",
            percent(cell.candidate.upper) if cell.candidate else "-",
            f"{cell.control.as_stated} / {cell.control.counted}" if cell.control else "-",
        )
        for cell in worst_first(judgement.cells)[:CELLS_SHOWN]
    )
    arms = [record.scenario.arm(name) for name in ("candidate", "control")]
    counts = [
        f"{arms[0]}: failed / counted",
        "failure rate below",
        f"{arms[1]}: as stated / counted",
    ]
    header = ("cell", "verdict", *counts)
    expected = f", expected {record.scenario.expects}" if record.scenario.expects else ""
    reasons = [Foreign(reason, 400) for reason in judgement.reasons[:REASONS_SHOWN]]
    word = (
        f"Finding ({judgement.verdict})"
        if record.scenario.role == "upstream"
        else judgement.verdict
    )
    blocks: list[Block] = [
        Heading(3, Text(Strong(word), " ", Foreign(record.scenario.title, 200))),
        Paragraph(answer(record), f" Role: {record.scenario.role}{expected}."),
        Paragraph(
            f"{'Defect' if record.scenario.called else 'Control'}: ", control_in_words(record)
        ),
        Table(header, rows, ("left", "left", "right", "right", "right")),
        *([BulletList(tuple(reasons))] if reasons else []),
        Paragraph("Report: ", Verbatim(basis.report), ", run ", Verbatim(record.run.id), "."),
    ]
    return (render_markdown(map(alone, blocks)) + "\n").encode()


VIEW = View(
    name="step-summary.md", media_type="text/markdown", checked=False, render=render_step_summary
)
