"""How a run compares with the one that it reproduces."""

from __future__ import annotations

from harness.forms.text import plural
from harness.record import facts
from harness.record.model import Record
from harness.record.reproduced import GROUPS, REPRODUCED_PATH, RunComparison, is_shown
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.stats.reproduction import CellAnswer

RUN = Evidence(facts.PATH)
REPRODUCED = Evidence(REPRODUCED_PATH)
ROWS = 60
RARE = "rarely matters"


def reproduction_section(record: Record) -> list[Block]:
    """Compare a run with the one that it reproduces; nothing for a run that reproduces no other."""
    comparison = record.comparison
    reproduces = record.run.reproduces
    if comparison is None or reproduces is None:
        return []
    blocks: list[Block] = [
        Heading(2, "Reproduction"),
        Table(
            ("what", ""),
            (
                ("answer", Strong(comparison.result.answer)),
                (
                    "report",
                    Claim(
                        Text(Verbatim(comparison.id), ", made ", Foreign(comparison.made)),
                        (REPRODUCED,),
                    ),
                ),
                ("its signature", Claim(Foreign(comparison.signed), (REPRODUCED,))),
                ("its verdict", Claim(comparison.verdict, (REPRODUCED,))),
                ("source", Claim(Foreign(reproduces.source), (RUN,))),
                (
                    "candidate",
                    Claim(
                        Foreign(reproduces.candidate or "the report's candidate, file by file"),
                        (RUN,),
                    ),
                ),
                *_varied_rows(record),
            ),
        ),
        Table(
            ("cell", "answer", "same verdict?", "same failure?", "same numbers?"),
            tuple(_cell_row(cell) for cell in comparison.result.cells),
        ),
    ]
    reasons = [
        Foreign(f"{cell.id}: {reason}", 640)
        for cell in comparison.result.cells
        for reason in cell.reasons
    ]
    reasons += [
        Foreign(
            f"{cell.id}: {plural(cell.more_trials, 'more trial')} would settle it, if they fail as"
            " often as here"
        )
        for cell in comparison.result.cells
        if cell.more_trials
    ]
    if reasons:
        blocks += [Paragraph("Reasons:"), BulletList(tuple(reasons))]
    blocks += _differences(comparison)
    return blocks


def reproduction_in_full(record: Record) -> list[Block]:
    """Failures and numbers of both runs cell by cell, and the differences that rarely matter."""
    comparison = record.comparison
    if comparison is None:
        return []
    blocks: list[Block] = [Heading(2, "Reproduction: failures and numbers")]
    for cell in comparison.result.cells:
        if cell.arms:
            blocks += [Heading(3, Foreign(cell.id)), *_details(cell)]
    rare = _rows_of(comparison, RARE)
    if rare:
        blocks += [
            Heading(3, f"{plural(len(rare), 'difference')} that rarely matter"),
            Table(("what", "then", "here"), tuple(rare[:ROWS])),
        ]
    blocks.append(
        Note(
            "The same failure is the same cause (error, function, source line, ranks), the same"
            " checks and the same state of every fault. Consequences, pids, times and folders are"
            " ignored. Counts are compared by Fisher's exact test, two-sided, at 5% over all cells"
            " together. Numbers are compared between trials with the same seed and outcome, at the"
            " level that the check declares. They do not affect the answer."
        )
    )
    return blocks


def _varied_rows(record: Record) -> list[tuple[Part, ...]]:
    """Return what a second pass changes on purpose, and whether its facts show it."""
    varied = record.run.reproduces.varied if record.run.reproduces is not None else None
    if varied is None:
        return []
    before, after = ("unset" if value is None else value for value in (varied.before, varied.after))
    change = Foreign(f"{varied.what}: {after} instead of {before}", 300)
    return [
        ("changed on purpose", Claim(change, (RUN,))),
        ("the change took effect", Claim("yes" if is_shown(varied, record.run) else "NO", (RUN,))),
        ("the pass without this change", Claim(Verbatim(varied.beside), (RUN,))),
    ]


def _cell_row(cell: CellAnswer) -> tuple[Part, ...]:
    verdict = f"{'yes' if cell.same_verdict else 'no'}: {cell.then} then, {cell.now} here"
    return (
        Foreign(cell.id),
        Strong(cell.answer),
        Claim(verdict, (REPRODUCED, RUN)),
        Claim(cell.same_failure, (REPRODUCED,)),
        Claim(cell.same_numbers, (REPRODUCED,)),
    )


def _details(cell: CellAnswer) -> list[Block]:
    rows: list[tuple[Part, ...]] = []
    for arm in cell.arms:
        counts = (
            f"{arm.failed_then} of {arm.counted_then}",
            f"{arm.failed_now} of {arm.counted_now}",
        )
        failed = "failed" if arm.unit == "trials" else "starts of its services that failed"
        rows.append((arm.arm, failed, counts[0], counts[1], f"{arm.p_value:.2g}"))
        for failure in sorted(arm.failures_then.keys() | arm.failures_now.keys())[:ROWS]:
            then = arm.failures_then.get(failure, 0)
            now = arm.failures_now.get(failure, 0)
            rows.append((arm.arm, Foreign(failure, 300), str(then), str(now), ""))
    blocks: list[Block] = [
        Table(("arm", "failure", "trials then", "trials here", "p"), tuple(rows))
    ]
    if cell.numbers:
        numbers = tuple(
            (
                row.arm,
                Verbatim(row.check),
                row.level,
                f"{row.same} of {row.compared}" if row.compared else "not compared",
            )
            for row in cell.numbers
        )
        blocks.append(
            Table(("arm", "check", "level", "same, of trials with the same seed"), numbers)
        )
    return blocks


def _differences(comparison: RunComparison) -> list[Block]:
    same = (
        f"{comparison.packages_same} of {plural(comparison.packages_all, 'package')} are identical"
        " file by file"
    )
    known = (
        f"Same environment by construction: {comparison.environment}"
        if comparison.environment
        else "The environments are not the same by construction"
    )
    blocks: list[Block] = [Paragraph(Claim(Foreign(f"{known}; {same}."), (REPRODUCED, RUN)))]
    for group in GROUPS:
        rows = _rows_of(comparison, group)
        if not rows:
            verb = "is " if group == "known to matter" else "that "
            blocks.append(Paragraph(Claim(f"No difference {verb}{group}.", (REPRODUCED, RUN))))
        elif group == RARE:
            count = plural(len(rows), "difference")
            blocks.append(Paragraph(f"{count} that rarely matter: see the appendix."))
        else:
            blocks += [
                Paragraph(f"Differences ({group}):"),
                Table(("what", "then", "here"), tuple(rows[:ROWS])),
            ]
    return blocks


def _rows_of(comparison: RunComparison, group: str) -> list[tuple[Part, ...]]:
    return [
        (Foreign(difference.what), Foreign(difference.then, 200), Foreign(difference.now, 200))
        for difference in comparison.differences
        if difference.group == group
    ]
