"""The sections on what changed (revisions, the diff from control to candidate, and the libraries that
differ) and on the measured impact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.record import facts
from harness.record.arms import compared
from harness.record.facts import PATCH_FOLDER, SCENARIO_PATH, SOURCE_FOLDER, RevisionFacts
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
    Text,
    Verbatim,
    first_open,
)
from harness.report.libraries import library_diffs, library_summaries
from harness.report.words import quantity, worst_first
from harness.stats.measured import Measured, MeasuredSummary

RUN = Evidence(facts.PATH)


def changed_section(record: Record) -> list[Block]:
    """Return what the arms differ in."""
    section: list[Block] = [Heading(2, "What changed")]
    older, newer = compared(record.arms)
    if older not in record.arms:
        return [*section, Paragraph("The scenario has no control to compare the candidate with.")]
    folders = tuple(
        Evidence(f"{SOURCE_FOLDER}/{arm}/{file}")
        for arm in (newer, older)
        for file in entry_files(record, arm)
    )
    section += [*_revisions(record), *_sides(record)]
    if not record.changed:
        return [
            *section,
            Paragraph(
                Claim("The two arms are the same code with the same arguments.", folders or (RUN,))
            ),
        ]
    section += [
        Paragraph(
            Claim(
                f"From {record.scenario.the(older)} to {record.scenario.the(newer)}:",
                folders or (RUN,),
            )
        ),
        Verbatim("\n".join(record.changed), "diff"),
    ]
    return [*section, *library_summaries(record), *library_diffs(record)]


def entry_files(record: Record, arm: str) -> list[str]:
    """Files of an arm that its ranks begin with, by their paths in its folder."""
    if record.scenario.program:
        return [word for word in record.scenario.program if word in record.arms[arm].files]
    module = record.scenario.entry.partition(":")[0].replace(".", "/")
    return [
        file for file in (f"{module}.py", f"{module}/__init__.py") if file in record.arms[arm].files
    ]


def _sides(record: Record) -> list[Block]:
    """Return what a and b of a comparison are."""
    if not record.scenario.called:
        return []
    sides = compared(record.arms)
    arguments: list[Part] = [Verbatim(record.arms[name].arguments) for name in sides]
    environments_made = [record.run.environments.get(name) for name in sides]
    environments: list[Part] = [
        (
            "the environment of the harness"
            if environment is None
            else f"an environment of its own, Python {environment.python}"
        )
        for environment in environments_made
    ]
    revisions: list[Part] = [
        (
            _commit(revision)
            if (revision := record.arms[name].revision) is not None
            else "the files as they stood"
        )
        for name in sides
    ]
    rows: list[tuple[Part, ...]] = [
        ("with", *arguments),
        ("code", *revisions),
        ("ran in", *environments),
    ]
    return [Table(("", *(record.scenario.arm(name) for name in sides)), tuple(rows))]


def _commit(revision: RevisionFacts) -> Foreign:
    patched = ", patched" if revision.patch else ""
    return Foreign(f"{revision.rev}, commit {revision.commit[:12]}{patched}")


def _revisions(record: Record) -> list[Block]:
    """Which commit each arm was laid out from, where one was."""
    if not any(arm.revision for arm in record.arms.values()):
        return []
    rows: list[tuple[Part, ...]] = []
    for name, arm in sorted(record.arms.items(), reverse=True):
        if name == "control" and record.scenario.called:
            continue  # b once more
        called = record.scenario.arm(name)
        if (revision := arm.revision) is None:
            rows.append(
                (called, Claim("the files as they stood, see the commit above", (RUN,)), "", "", "")
            )
            continue
        patch: Part = "none"
        if revision.patch is not None:
            patch = Claim(
                Verbatim(f"sha256 {revision.patch[:12]}"),
                (Evidence(f"{PATCH_FOLDER}/{name}.patch"),),
            )
        repository = revision.repo or "the scenario's"
        place = Foreign(f"{repository}, {revision.folder}" if revision.folder else repository)
        commit = Claim(Text(Foreign(revision.rev), ": ", Verbatim(revision.commit[:12])), (RUN,))
        rows.append((called, commit, Verbatim(revision.tree[:12]), patch, place))
    return [Table(("arm", "revision", "tree", "patch", "repository, folder"), tuple(rows))]


USUAL = ("load time", "memory", "bytes read and written")
# Of more ranks than these only so many are shown unfolded, for each measurement.
RANKS = 8
MOST = 3


def impact_section(record: Record) -> list[Block]:
    """Return the section on measured impact."""
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
    candidate = row.arms.get("candidate")
    control = row.arms.get("control")
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


def _spread(summary: MeasuredSummary | None, unit: str, evidence: str) -> Part:
    if summary is None:
        return "not measured"
    low = quantity(summary.low, unit)
    high = quantity(summary.high, unit)
    return Claim(
        f"{quantity(summary.median, unit)} ({low} to {high}, n = {summary.count})",
        (Evidence(evidence),),
    )
