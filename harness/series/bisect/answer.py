"""The answer of a bisect in words, from what is kept of it. Pure."""

from __future__ import annotations

from harness.forms.text import plural
from harness.run.environments.releases import order
from harness.series.bisect.record import BisectRecord
from harness.series.bisect.walk import DECIDED, Border, borders

NAMES = {"AT FAULT": ("first faulty version", "last good version")}
NAMES["RIGHT"] = ("first good version", "last faulty version")


def answer(record: BisectRecord) -> tuple[str, bool]:
    """Return the answer, and whether it names two neighbouring versions that differ in nothing else
    that is known.
    """
    known = record.known
    found = borders(record.versions, known)
    untried = len(record.versions) - len([one for one in record.versions if one in known])
    lines = [_border(record, border) for border in found] or [_no_border(record)]
    if len(found) > 1:
        lines.append("The answer changes more than once, so no single version explains it")
    if untried:
        lines.append(
            f"{untried} of {plural(len(record.versions), 'version')} were not tried, so a change"
            " that was reverted between two tried versions would not show up"
        )
    exact = not any(border.between or _moved(record, border) for border in found)
    return ". ".join(lines), bool(found) and exact


def _border(record: BisectRecord, border: Border) -> str:
    known = record.known
    new, old = NAMES[known[border.after]]
    parts = [f"{new}: {border.after}; {old}: {border.before}"]
    if border.between:
        ends = [f"{one} ({known[one]})" for one in (border.before, border.after)]
        parts = [f"The answer changes between {' and '.join(ends)}"]
    if untold := [one for one in border.between if one in known]:
        parts.append(f"cannot tell for {', '.join(untold)}")
    if moved := _moved(record, border):
        parts.append(f"{', '.join(moved)} also changed between them, and may be the cause")
    low = order(border.before)
    high = order(border.after)
    out = [f"{one} ({why})" for one, why in record.left_out.items() if low < order(one) < high]
    return "; ".join([*parts, *([f"left out between them: {', '.join(out)}"] if out else [])])


def _moved(record: BisectRecord, border: Border) -> list[str]:
    """Return the other packages that differ between the runs on both sides of a border."""
    moved = {step.version: step.moved for step in record.steps}
    before = moved[border.before]
    after = moved[border.after]
    return sorted(one for one in before.keys() | after.keys() if before.get(one) != after.get(one))


def _no_border(record: BisectRecord) -> str:
    steps = {step.version: step for step in record.steps}
    last, first = (steps.get(end) for end in (record.versions[-1], record.versions[0]))
    for end in (last, first):
        if end is not None and end.word not in DECIDED:
            return f"Cannot tell for {end.version}, an end of the range: {end.why}"
    word = "" if first is None else first.word
    return (
        f"{record.versions[0]} and {record.versions[-1]} do not differ: both are {word}, so there"
        " is nothing to find between them (--every tries all versions)"
    )
