"""Finding about a released library, in the words that a report and an issue text share."""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import joined, plural
from harness.record.defect import FindingRecord, ScriptRun
from harness.record.model import Record
from harness.report.blocks import Claim, Evidence, Foreign, Part, Text, Verbatim

SENTENCE_LIMIT = 600


def finding_terms(record: Record) -> Iterator[tuple[str, Part]]:
    """Yield what happens, what should, in which versions, and how the script ended."""
    finding = record.finding
    if finding is None:
        return
    stated = finding.stated
    yield "What happens", Foreign(stated.happens)
    yield "Expected", Foreign(stated.should)
    if stated.cause:
        yield "Cause", Foreign(stated.cause)
    yield "Versions", _versions(finding)
    yield "Script", _script(finding)
    yield "Reports", _reports(finding)


def _versions(finding: FindingRecord) -> Part:
    stated = finding.stated
    text = f"This run used {finding.at_fault}. According to the author, {joined(stated.at_fault)}"
    verb = "is" if len(stated.at_fault) == 1 else "are"
    right = (
        f"{stated.right} is the first fixed release"
        if stated.right
        else "the first fixed release is not known"
    )
    return Foreign(f"{text} {verb} affected, and {right}.", SENTENCE_LIMIT)


def _script(finding: FindingRecord) -> Part:
    parts: list[Part] = []
    for arm, run in finding.runs.items():
        parts += ["; " if parts else "", *_ended(finding, arm, run)]
    parts.append(".")
    for doubt in finding.doubts:
        parts += [" ", Foreign(doubt, SENTENCE_LIMIT), "."]
    return Text(*parts)


def _ended(finding: FindingRecord, arm: str, run: ScriptRun) -> Iterator[Part]:
    library = f"{finding.stated.library} {run.version or 'not installed'}"
    how = "exited with " if run.code is not None else ""
    what = Text(
        Verbatim(finding.stated.script),
        Foreign(f" {how}{run.how} in the environment of the {arm} ({library})", SENTENCE_LIMIT),
    )
    yield Claim(what, (Evidence(run.log or finding.script),))
    if run.says:
        yield ": "
        yield Verbatim(run.says)


def _reports(finding: FindingRecord) -> Part:
    stated = finding.stated
    if stated.reports:
        return Text(*_codes(stated.reports))
    return Foreign(f"None found. Searched for {stated.searched}", SENTENCE_LIMIT)


def _codes(words: tuple[str, ...]) -> Iterator[Part]:
    for position, word in enumerate(words):
        if position:
            yield ", "
        yield Verbatim(word)


def shown_in_words(record: Record) -> str:
    """Say in how many trials the defect was seen, and the right behaviour beside it."""
    cells = record.judgement.cells
    controls = [cell.control for cell in cells if cell.control is not None and cell.control.counted]
    candidates = [cell.candidate for cell in cells if cell.candidate is not None]
    seen = sum(tally.as_stated or 0 for tally in controls)
    tried = sum(tally.counted for tally in controls)
    right = sum(tally.counted - tally.failed for tally in candidates)
    of = sum(tally.counted for tally in candidates)
    return (
        f"The defect occurred in {seen} of {plural(tried, 'trial')}. Code that avoids the defect"
        f" passed the same check in {right} of {plural(of, 'trial')}."
    )
