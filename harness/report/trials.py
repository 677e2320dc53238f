"""The trials of both arms, cell by cell: results by check and rank, and the negative control as it failed."""

from __future__ import annotations

import re
from collections import Counter

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
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.report.figures import lanes_path
from harness.stats.outcome import Arm, Moment
from harness.stats.shown_trial import ShownRow, ShownTrial
from harness.stats.tally import Tally
from harness.stats.verdict import CellVerdict

VALUE_LIMIT = 80
DIGEST = re.compile("[0-9a-f]{40,128}")
DIGEST_SHOWN = 12
FAILURES_SHOWN = 10


def ranks_section(record: Record) -> list[Block]:
    """Per cell: how often each check failed, and one trial rank by rank."""
    section: list[Block] = [Heading(2, "Results by check and rank")]
    for position, cell in enumerate(record.judgement.cells):
        inner = _candidate(cell)
        summary = f"{cell.id}: {cell.verdict}"
        # The first cell is open: one screen should do for a reader in a hurry.
        section += (
            [Heading(3, Foreign(cell.id)), *inner] if position == 0 else [Details(Foreign(summary), tuple(inner))]
        )
    return section


def _candidate(cell: CellVerdict) -> list[Block]:
    if cell.candidate is None:
        return [Paragraph(Strong("SKIPPED"), ": ", Foreign("; ".join(map(str, cell.reasons))))]
    section: list[Block] = []
    if trial := cell.samples.get("candidate"):
        section += [
            Paragraph(
                "One trial, ",
                Claim(Verbatim(f"candidate {trial.index}"), (Evidence(trial.evidence),)),
                f", outcome {trial.outcome}:",
            ),
            trial_table(trial, cell),
            Figure(lanes_path(cell, "candidate"), "The life of each rank in this trial; a tick is an event."),
        ]
    section += standing(cell, "candidate")
    section += _failures(cell.candidate)
    section += _durations(cell)
    return section


def standing(cell: CellVerdict, arm: Arm) -> list[Block]:
    """Where the ranks stood in the first trial of an arm whose world had to be stopped, rank by rank."""
    hung = cell.hung.get(arm)
    if hung is None:
        return []
    trial = Claim(Verbatim(f"{arm} {hung.index}"), (Evidence(hung.evidence, hung.line),))
    section: list[Block] = [Paragraph("Where the ranks stood when ", trial, " was stopped. ", Foreign(hung.proof))]
    for one in hung.ranks:
        section += [
            Paragraph(Claim(f"Rank {one.rank}", (Evidence(hung.evidence, one.line),)), ", innermost call first:"),
            Verbatim("\n".join(one.calls), "text"),
        ]
    return section


def trial_table(trial: ShownTrial, cell: CellVerdict) -> Table:
    """A trial as a table: a row per check, a column per rank; a value links to the line that shows it."""
    failures = _failures_per_check(cell.candidate) if trial is cell.samples.get("candidate") else None
    header: tuple[Part, ...] = ("check", *(f"rank {rank}" for rank in range(cell.ranks)))
    if failures is not None:
        header += ("failed trials",)
    rows = []
    for row in trial.rows:
        cells: tuple[Part, ...] = (Verbatim(row.check), *(_value(trial, row, rank) for rank in range(cell.ranks)))
        if failures is not None and cell.candidate is not None:
            cells += (f"{failures[row.check]} of {cell.candidate.counted}",)
        rows.append(cells)
    return Table(header, tuple(rows))


def _value(trial: ShownTrial, row: ShownRow, rank: int) -> Part:
    if not row.cells:
        text = "holds" if row.passed else row.reason
        return _shown(trial, text, row.line) if rank == 0 else ""
    answer = next((cell for cell in row.cells if cell.rank == rank), None)
    if answer is None:
        return "not asked"
    text = answer.shown or ("holds" if answer.passed else "fails")
    return _shown(trial, text, answer.line, failed=not answer.passed)


def _shown(trial: ShownTrial, text: str, line: int | None, *, failed: bool = False) -> Part:
    # A digest is compared, not read: its beginning is enough here, the evidence holds all of it.
    value: Part = Foreign(f"{text[:DIGEST_SHOWN]}..." if DIGEST.fullmatch(text) else text, VALUE_LIMIT)
    if failed:
        value = Text(Strong("FAILS"), " ", value)
    return Claim(value, (Evidence(trial.evidence, line),))


def _failures_per_check(tally: Tally | None) -> Counter[str]:
    return Counter(failure.check for trial in (tally.trials if tally else ()) for failure in trial.failures)


def _failures(tally: Tally) -> list[Block]:
    failed = [trial for trial in tally.trials if trial.outcome == "fail"]
    if not failed:
        return []
    rows: list[tuple[Part, ...]] = []
    for trial in failed[:FAILURES_SHOWN]:
        first = trial.first
        checks = ", ".join(failure.check for failure in trial.failures)
        reason = trial.failures[0].reasons[0] if trial.failures and trial.failures[0].reasons else ""
        rows.append(
            (
                Claim(f"candidate {trial.index}", (Evidence(trial.evidence, None if first is None else first.line),)),
                Foreign(checks, 200),
                Foreign(_happened(first) if first is not None else reason, 200),
                plural(len(trial.consequences), "consequence"),
            )
        )
    more = len(failed) - len(rows)
    section: list[Block] = [
        Paragraph("Failed trials; what failed first, and how many failures followed it:"),
        Table(("trial", "checks that do not hold", "first failure", "then"), tuple(rows)),
    ]
    if more:
        section.append(Paragraph(f"... and {plural(more, 'more failed trial')}."))
    return section


def _happened(moment: Moment) -> str:
    return f"{'world' if moment.rank is None else f'rank {moment.rank}'}: {moment.what}"


def _durations(cell: CellVerdict) -> list[Block]:
    if cell.candidate is None or not cell.candidate.trials:
        return []
    times = sorted(trial.ms for trial in cell.candidate.trials)
    last = cell.candidate.trials[-1].evidence
    median, longest = times[len(times) // 2] / 1000, times[-1] / 1000
    text = f"A trial of the candidate took {median:.2f} s (median), {longest:.2f} s at most."
    return [Paragraph(Claim(text, (Evidence(last),)))]


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
        inner = tuple(_control(cell))
        stated = f"{cell.id}: failed as stated in {cell.control.as_stated} of {cell.control.counted}"
        section += [Heading(3, Foreign(stated)), *inner] if position == 0 else [Details(Foreign(stated), inner)]
    return section


def _control(cell: CellVerdict) -> list[Block]:
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
