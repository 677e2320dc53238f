"""The few sentences a report assembles, without adjectives."""

from __future__ import annotations

import math

from harness.forms.text import plural
from harness.record.model import Record


def percent(rate: float) -> str:
    """A rate as a percentage with two decimals, rounded up: a bound must not look better than it is."""
    return f"{min(math.ceil(rate * 10_000 - 1e-9), 10_000) / 100:.2f} %"


def answer(record: Record) -> str:
    """The verdict as a sentence that says what it rests on."""
    ran = [cell for cell in record.judgement.cells if cell.candidate is not None]
    skipped = len(record.judgement.cells) - len(ran)
    trials = sum(cell.candidate.counted for cell in ran if cell.candidate)
    failed = sum(cell.candidate.failed for cell in ran if cell.candidate)
    controls = sum(cell.control.counted for cell in ran if cell.control)
    stated = sum(cell.control.as_stated or 0 for cell in ran if cell.control)
    tried = f"{failed} of {plural(trials, 'trial')} of the candidate failed"
    accepted = percent(record.scenario.accept_rate)
    parts = [
        f"{record.judgement.verdict}: in {plural(len(ran), 'cell')}, {tried}",
        f"a failure rate below {accepted} at {record.scenario.accept_confidence:.0%} confidence was asked",
        f"the control failed as stated in {stated} of {controls}" if controls else "there was no control",
    ]
    voids = sum(tally.voids for cell in ran for tally in cell.arms.values())
    if voids:
        parts.append(f"{plural(voids, 'trial')} void")
    if skipped:
        parts.append(f"{plural(skipped, 'cell')} skipped")
    return "; ".join(parts) + "."
