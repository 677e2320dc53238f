"""The negative control: what it must do, what it did, and the failure as it was printed."""

from __future__ import annotations

from harness.forms.text import plural
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Figure,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Table,
    Verbatim,
)
from harness.report.figures import lanes_path
from harness.report.ranks import standing, trial_table
from harness.stats.verdict import CellVerdict


def control_section(record: Record) -> list[Block]:
    """What shows that these checks can fail."""
    section: list[Block] = [Heading(2, "Negative control")]
    if record.scenario.must_fail is None:
        return [*section, Paragraph("The scenario has no control: nothing shows that these checks can fail.")]
    section.append(
        Paragraph(
            "The same scenario on code that its author calls broken, in the same run. It must fail like this: ",
            Claim(Foreign(record.scenario.must_fail), (Evidence(SCENARIO_PATH),)),
            ".",
        )
    )
    for position, cell in enumerate(record.judgement.cells):
        if cell.control is None or not cell.control.trials:
            continue
        inner = tuple(_cell(cell))
        stated = f"{cell.id}: failed as stated in {cell.control.as_stated} of {cell.control.counted}"
        section += [Heading(3, Foreign(stated)), *inner] if position == 0 else [Details(Foreign(stated), inner)]
    return section


def _cell(cell: CellVerdict) -> list[Block]:
    control = cell.control
    assert control is not None
    section: list[Block] = []
    if control.otherwise:
        section += [
            Paragraph("What it did instead:"),
            BulletList(tuple(Foreign(f"in {plural(what.count, 'trial')}: {what.text}") for what in control.otherwise)),
        ]
    sample = cell.samples.get("control")
    if sample is None:
        return section
    trial = control.trials[sample.index]
    rows: list[tuple[Part, ...]] = [
        (
            str(moment.rank) if moment.rank is not None else "world",
            f"{moment.ms:.1f} ms",
            Claim(Foreign(moment.what, 200), (Evidence(trial.evidence, moment.line),)),
            "first" if position == 0 else "followed",
        )
        for position, moment in enumerate([trial.first, *trial.consequences])
        if moment is not None
    ]
    if rows:
        section += [
            Paragraph(
                "One trial, ",
                Claim(Verbatim(f"control {trial.index}"), (Evidence(trial.evidence),)),
                ", in order of time:",
            ),
            Table(("rank", "after", "how it failed", "order"), tuple(rows)),
        ]
    else:
        section.append(
            Paragraph(
                "One trial: ", Claim(f"no rank failed, outcome {trial.outcome}", (Evidence(trial.evidence),)), "."
            )
        )
    section.append(Figure(lanes_path(cell, "control"), "The life of each rank in this trial; a tick is an event."))
    section += standing(cell, "control")
    if sample.printed:
        # What failed first says more than what broke because of it.
        first = trial.first.rank if trial.first is not None else None
        last = next((excerpt for excerpt in sample.printed if excerpt.rank == first), sample.printed[-1])
        section += [
            Paragraph("As ", Claim(f"rank {last.rank} printed it", (Evidence(last.path),)), ":"),
            Verbatim(last.text, "text"),
        ]
    section.append(Details("Every check of this trial, rank by rank", (trial_table(sample, cell),)))
    return section
