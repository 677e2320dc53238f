"""Measured impact: the candidate beside the control, and in words what nobody measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record, ScenarioSummary
from harness.report.blocks import (
    Block,
    Claim,
    Details,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Table,
    first_open,
)
from harness.report.words import quantity, worst_first
from harness.stats.measured import Measured, Summary

USUAL = ("load time", "memory", "bytes read and written")
# Of more ranks than these only so many are shown unfolded, for each measurement.
RANKS, MOST = 8, 3


def impact_section(record: Record) -> list[Block]:
    """The section."""
    section: list[Block] = [Heading(2, "Measured impact")]
    asked = record.scenario
    measured = [cell for cell in record.judgement.cells if cell.measured]
    if not measured:
        rows = tuple((what, "not measured") for what in USUAL)
        return [
            *section,
            Table((f"{asked.arm('candidate')} against {asked.arm('control')}", "section"), rows),
        ]
    parts: list[tuple[Foreign, list[Block]]] = []
    for cell in worst_first(measured):
        first = (
            cell.candidate.trials[0].evidence
            if cell.candidate and cell.candidate.trials
            else SCENARIO_PATH
        )
        table = _table(cell.measured, first, asked)
        if cell.ranks <= RANKS:
            parts.append((Foreign(cell.id), [table]))
            continue
        most = [
            row
            for group in _by_id(cell.measured)
            for row in sorted(group, key=_median, reverse=True)[:MOST]
        ]
        note = (
            f"The {MOST} ranks with the largest values of {asked.the('candidate')}; below them all"
            f" {cell.ranks}."
        )
        parts.append(
            (
                Foreign(cell.id),
                [Paragraph(note), _table(most, first, asked), Details("every rank", (table,))],
            )
        )
    section += first_open(parts)
    section.append(
        Note(
            "Medians over the trials that counted, with a 95 % interval from the order of the"
            " values; fewer than six values: their range. Trials ran alone, one world at a time."
            " Memory is what is private to the rank and was not there when the subject began; a"
            " rank that did not get to the end of it was not measured."
        )
    )
    return section


def _table(rows: Sequence[Measured], evidence: str, asked: ScenarioSummary) -> Table:
    arms = [asked.arm(name) for name in ("candidate", "control")]
    header = ("measured", "rank", *arms, " / ".join(arms))
    return Table(
        header,
        tuple(_row(row, evidence) for row in rows),
        ("left", "right", "right", "right", "right"),
    )


def _by_id(rows: Sequence[Measured]) -> Iterator[list[Measured]]:
    for name in dict.fromkeys(row.id for row in rows):
        yield [row for row in rows if row.id == name]


def _median(row: Measured) -> float:
    return row.arms["candidate"].median if "candidate" in row.arms else 0.0


def _row(row: Measured, evidence: str) -> tuple[Part, ...]:
    candidate, control = row.arms.get("candidate"), row.arms.get("control")
    ratio = (
        f"{candidate.median / control.median:.2f}"
        if candidate and control and control.median > 0
        else "-"
    )
    what = Foreign(f"{row.id}: {row.what}")
    return (
        what,
        str(row.rank),
        _spread(candidate, row.unit, evidence),
        _spread(control, row.unit, evidence),
        ratio,
    )


def _spread(summary: Summary | None, unit: str, evidence: str) -> Part:
    if summary is None:
        return "not measured"
    low, high = quantity(summary.low, unit), quantity(summary.high, unit)
    return Claim(
        f"{quantity(summary.median, unit)} ({low} to {high}, n = {summary.count})",
        (Evidence(evidence),),
    )
