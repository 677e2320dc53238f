"""The sections on what changed (revisions, the diff from control to candidate, and the libraries that
differ) and on the measured impact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.forms.text import plural
from harness.record import facts
from harness.record.arms import compared
from harness.record.facts import PATCH_FOLDER, SCENARIO_PATH, SOURCE_FOLDER, RevisionFacts
from harness.record.model import Record, ScenarioSummary
from harness.report.blocks import (
    Block,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Table,
    Text,
    Verbatim,
)
from harness.report.libraries import library_summaries
from harness.report.words import quantity, worst_first
from harness.stats.measured import Measured, MeasuredSummary
from harness.stats.verdict import CellVerdict

RUN = Evidence(facts.PATH)
DIFF_SHOWN = 40
"""Lines of the difference between the arms in the report; the appendix has all that the record has.
"""


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
                f"Difference from {record.scenario.the(older)} to {record.scenario.the(newer)}:",
                folders or (RUN,),
            )
        ),
        Verbatim("\n".join(record.changed[:DIFF_SHOWN]), "diff"),
    ]
    more = len(record.changed) - DIFF_SHOWN
    if more > 0:
        section.append(Paragraph(f"... and {plural(more, 'more line')}: see the appendix."))
    return [*section, *library_summaries(record)]


def changes_in_full(record: Record) -> list[Block]:
    """Return the difference between the arms where the report shows only the beginning of it."""
    if len(record.changed) <= DIFF_SHOWN:
        return []
    older, newer = compared(record.arms)
    title = f"What changed from {record.scenario.the(older)} to {record.scenario.the(newer)}"
    return [Heading(2, title), Verbatim("\n".join(record.changed), "diff")]


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


def impact_section(record: Record) -> list[Block]:
    """Return what was measured in the worst cell, of each measurement the rank with the largest value;
    nothing where nothing was measured.
    """
    measured = worst_first(cell for cell in record.judgement.cells if cell.measured)
    if not measured:
        return []
    cell = measured[0]
    rows = [max(group, key=_median) for group in _by_id(cell.measured)]
    text = (
        f"{cell.id}, the rank with the largest value of {record.scenario.the('candidate')}; all"
        " ranks are in the appendix:"
    )
    table = _table(rows, _first_of(cell), record.scenario)
    return [Heading(2, "Measured impact"), Paragraph(Foreign(text)), table]


def impact_in_full(record: Record) -> list[Block]:
    """Return what was measured on every rank of each cell."""
    section: list[Block] = [Heading(2, "Measured on every rank")]
    measured = worst_first(cell for cell in record.judgement.cells if cell.measured)
    if not measured:
        return []
    for cell in measured:
        table = _table(cell.measured, _first_of(cell), record.scenario)
        section += [Heading(3, Foreign(cell.id)), table]
    section.append(
        Note(
            "Medians over the trials that counted, with a 95 % interval from the order of the"
            " values; of fewer than six values their range. Trials ran one world at a time. Memory"
            " is what was private to the rank and was not there when the subject began. A rank that"
            " did not reach the end of a measurement was not measured."
        )
    )
    return section


def _first_of(cell: CellVerdict) -> str:
    """Path of the events of the first trial of the candidate."""
    if cell.candidate is None or not cell.candidate.trials:
        return SCENARIO_PATH
    return cell.candidate.trials[0].evidence


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
