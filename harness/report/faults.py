"""The faults: what was done to the ranks on purpose, and what proves that it took effect."""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import plural
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record
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
    Table,
    Verbatim,
    first_open,
)
from harness.report.words import worst_first
from harness.stats.outcome import Strike, Trial
from harness.stats.verdict import CellVerdict

VOIDS_SHOWN = 10
LINES_SHOWN = 4
SCENARIO = Evidence(SCENARIO_PATH)


def faults_section(record: Record) -> list[Block]:
    """What was planned, what struck, what is proved, and which trials are void for want of a
    proof.
    """
    section: list[Block] = [Heading(2, "Faults")]
    if not record.scenario.faults:
        return [*section, Paragraph("Nothing was done to the ranks on purpose.")]
    section += [
        Paragraph(
            "The defect, injected into b by the harness:"
            if record.scenario.called
            else "Done to the ranks on purpose, in both arms"
            + (
                ":"
                if all(fault.arm is None for fault in record.scenario.faults)
                else " unless one is named:"
            )
        ),
        BulletList(
            tuple(
                Claim(Foreign(f"{fault.id}: {fault.description}"), (SCENARIO,))
                for fault in record.scenario.faults
            )
        ),
    ]
    ran = [cell for cell in worst_first(record.judgement.cells) if cell.candidate is not None]
    section += first_open((Foreign(cell.id), tuple(_cell(record, cell))) for cell in ran)
    proof = (
        "A fault counts only where events show that it took effect. What is done inside a rank is"
        " shown by the rank's own word, what is done from outside by the process that did it."
    )
    void = (
        "A trial of the candidate without the proof is void if its checks hold, and failed if they"
        " do not; a trial of the control without it counts only if it had failed before the fault"
        " struck or was over."
    )
    section.append(Note(proof if record.scenario.called else f"{proof} {void}"))
    return section


def _cell(record: Record, cell: CellVerdict) -> Iterator[Block]:
    rows: list[tuple[Part, ...]] = []
    for arm, tally in cell.arms.items():
        for fault in record.scenario.faults:
            if fault.arm not in (None, arm):
                continue
            struck = [
                (trial, strike)
                for trial in tally.trials
                for strike in trial.strikes
                if strike.fault == fault.id
            ]
            counts = (
                len(struck),
                sum(strike.struck for _, strike in struck),
                sum(strike.proved for _, strike in struck),
                sum(strike.undone for _, strike in struck),
            )
            rows.append(
                (
                    Verbatim(fault.id),
                    Verbatim(fault.kind),
                    record.scenario.arm(arm),
                    *map(str, counts),
                    _example(struck),
                )
            )
    header = ("fault", "kind", "arm", "planned", "struck", "proved", "undone", "one of them")
    yield Table(
        header, tuple(rows), ("left", "left", "left", "right", "right", "right", "right", "left")
    )
    void = [
        (arm, trial)
        for arm, tally in cell.arms.items()
        for trial in tally.trials
        if trial.outcome == "void"
    ]
    if void:
        shown = [
            Claim(
                Foreign(f"{record.scenario.arm(arm)} {trial.index}: {trial.void}"),
                (Evidence(trial.evidence),),
            )
            for arm, trial in void[:VOIDS_SHOWN]
        ]
        yield Paragraph("Void trials:")
        yield BulletList(tuple(shown))
    if len(void) > VOIDS_SHOWN:
        yield Paragraph(f"... and {plural(len(void) - VOIDS_SHOWN, 'more void trial')}.")


def _example(struck: list[tuple[Trial, Strike]]) -> Part:
    """One strike that is proved, else one that is not, with the lines that show it."""
    ordered = [pair for pair in struck if pair[1].proved] or struck
    if not ordered:
        return "none"
    trial, strike = ordered[0]
    lines = strike.lines[-LINES_SHOWN:]
    evidence = tuple(Evidence(trial.evidence, line) for line in lines) or (
        Evidence(trial.evidence),
    )
    how = "" if strike.proved else "NOT proved: "
    return Claim(
        Foreign(f"trial {trial.index}, rank {strike.rank}: {how}{strike.description}", 200),
        evidence,
    )
