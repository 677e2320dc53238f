"""The few sentences a report assembles, without adjectives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from harness.forms.text import numbered, plural
from harness.record.model import Record
from harness.stats.verdict import CellVerdict

# FAIL before INCONCLUSIVE; a cell that did not run says less than one that passed.
WORST = ("FAIL", "INCONCLUSIVE", "SKIPPED", "PASS")
UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def percent(rate: float) -> str:
    """Rate as a percentage with two decimals, rounded up: a bound must not look better than it
    is.
    """
    return f"{min(math.ceil(rate * 10_000 - 1e-9), 10_000) / 100:.2f}%"


def quantity(value: float, unit: str) -> str:
    """Number with its unit, `s` or `bytes`.

    Any other is a number of things, which something beside it names.
    """
    if unit == "s":
        return f"{value:.3f} s"
    if unit != "bytes":
        return f"{value:.6g}"
    size = abs(value)
    return next(
        (f"{value / many:.1f} {name}" for many, name in UNITS if size >= many), f"{value:.0f} B"
    )


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 2`, `ranks 1-63`; `no rank`. The ranks are ascending."""
    return numbered("rank", ranks)


def worst_first(cells: Iterable[CellVerdict]) -> list[CellVerdict]:
    """Cells as a reader needs them: by verdict, then by the share of trials that failed, then
    as planned.
    """

    def place(cell: CellVerdict) -> tuple[int, float]:
        counts = cell.candidate
        share = counts.failed / counts.counted if counts is not None and counts.counted else 0.0
        return WORST.index(cell.verdict), -share

    return sorted(cells, key=place)


def answer(record: Record) -> str:
    """Verdict as a sentence that says what it rests on."""
    ran = [cell for cell in record.judgement.cells if cell.candidate is not None]
    skipped = len(record.judgement.cells) - len(ran)
    trials = sum(cell.candidate.counted for cell in ran if cell.candidate)
    failed = sum(cell.candidate.failed for cell in ran if cell.candidate)
    tried = f"{failed} of {plural(trials, 'trial')} of {record.scenario.the('candidate')} failed"
    accepted = percent(record.scenario.accept_rate)
    parts = [
        f"{record.word}: in {plural(len(ran), 'cell')}, {tried}",
        (
            f"required: a failure rate below {accepted} at {record.scenario.accept_confidence:.0%}"
            " confidence"
        ),
        control_in_words(ran, record.scenario.the("control")) or "there was no control",
    ]
    voids = sum(tally.voids for cell in ran for tally in cell.arms.values())
    if voids:
        parts.append(f"{plural(voids, 'trial')} void")
    if skipped:
        parts.append(f"{plural(skipped, 'cell')} skipped")
    return "; ".join(parts) + "."


def control_in_words(cells: Iterable[CellVerdict], who: str) -> str:
    """In how many trials the control did as required: failed, or where it is stated to hold, held.

    Empty without one.
    """
    parts = []
    counted = [
        (cell.control_holds, cell.control)
        for cell in cells
        if cell.control is not None and cell.control.counted
    ]
    for holds, word in ((False, "failed"), (True, "held")):
        tallies = [tally for held, tally in counted if held is holds]
        if total := sum(tally.counted for tally in tallies):
            parts.append(
                f"{word} as required in {sum(tally.as_stated or 0 for tally in tallies)} of"
                f" {plural(total, 'trial')}"
            )
    return f"{who} {' and '.join(parts)}" if parts else ""
