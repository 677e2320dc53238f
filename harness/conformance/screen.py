"""The first screen of a conformance: what was asked, what the server showed, how the controls failed,
what was not tested, and who signed.

It fits 40 lines of 80 columns with the title, the verdict and what a command prints below it.
Nothing on it is cut: where the facts are too long, it has the kinds of difference instead.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from harness.conformance.judgement import REPETITIONS
from harness.conformance.record import ConformanceRecord, RowResult
from harness.conformance.rows.kinds import UNDECIDED, WRONG
from harness.conformance.rows.row import Word
from harness.forms.text import joined, plural, visible
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Part,
    Strong,
    Terms,
    Text,
    Verbatim,
)

WIDTH: Final = 80
LINES: Final = 32
"""Without the title, the verdict, and where the report is."""
FACT: Final = 110
"""Characters of a fact that is stated as it is: two lines with the name of its row."""
SHORT: Final = 60
"""The same where two lines are too many."""
NAMED: Final = 12
"""Rows that are named where they were not asked for one reason; of more there is the count."""
LABEL: Final = 12
"""Columns of the terms before what they say."""


def screen(record: ConformanceRecord) -> list[Block]:
    """Return what follows the verdict: as many words for each row as fit."""
    blocks: list[Block] = []
    for limit in (FACT, SHORT, 0, None):
        blocks = [_question(record), *_found(record, limit), Terms(tuple(_rest(record)))]
        if height(blocks) <= LINES:
            break
    return blocks


def _question(record: ConformanceRecord) -> Terms:
    rows: list[tuple[str, Part]] = [
        ("Question", "Does this server keep the promises of OpenAI's API?")
    ]
    against = record.facts.against
    if against is not None:
        changed = list(record.changed())
        lost = [row.name for row, before in changed if before == "CONFORMS"]
        gained = [row.name for row, _ in changed if row.word == "CONFORMS"]
        both = [
            row
            for row in record.rows
            if "NOT ASKED" not in (row.word, against.words.get(row.name, "NOT ASKED"))
        ]
        text = (
            f": {plural(len(both), 'promise')} tested on both servers. CONFORMS only on the older"
            f" server: {', '.join(lost) or 'none'}. CONFORMS only on this server:"
            f" {', '.join(gained) or 'none'}."
        )
        rows.append(("Against", Text(Verbatim(against.server), text)))
    return Terms(tuple(rows))


def said(fact: str, about: str, word: Word, limit: int) -> str:
    """Return a fact, or its kind where it is longer than `limit` or was shortened already."""
    if len(visible(fact)) <= limit and "..." not in fact:
        return fact
    return (WRONG if word == "VIOLATES" else UNDECIDED).get(about, about)


def _found(record: ConformanceRecord, limit: int | None) -> Iterator[Block]:
    """Yield the rows that violate and that cannot tell, those that say the same on one line.

    Without a limit they say nothing.
    """
    lines: dict[tuple[str, str], list[RowResult]] = {}
    words: tuple[Word, ...] = ("VIOLATES", "CANNOT TELL")
    for word in words:
        for row in record.rows:
            if row.word == word:
                text = "" if limit is None else said(row.fact, row.about, row.word, limit)
                lines.setdefault((word, text), []).append(row)
    items = [_line(word, text, rows) for (word, text), rows in lines.items()]
    if items:
        yield BulletList(tuple(items))


def _line(word: str, text: str, rows: Sequence[RowResult]) -> Part:
    names: list[Part] = []
    for row in rows:
        names += [", " if names else " ", Verbatim(row.name)]
    found: tuple[Part, ...] = (": ", Foreign(text)) if text else ()
    evidence = tuple(Evidence(row.evidence) for row in rows)
    return Claim(Text(Strong(word), *names, *found), evidence)


def _rest(record: ConformanceRecord) -> Iterator[tuple[str, Part]]:
    for word in ("REFUSES", "CONFORMS"):
        if names := [row.name for row in record.rows if row.word == word]:
            yield word, ", ".join(names)
    yield "Controls", _controls(record)
    yield "Not tested", Text(*_untested(record))
    signer = record.facts.signer
    yield "Signed by", "nobody" if signer is None else Verbatim(signer.key)


def _controls(record: ConformanceRecord) -> str:
    """Say how many rows were shown to fail, on which server."""
    controls = [(row.name, row.control) for row in record.rows if row.control is not None]
    tried = [(name, control) for name, control in controls if control.on != "no server"]
    left = [name for name, control in controls if control.on == "no server"]
    if not tried:
        return "No control was run, so this run does not show that its rows can fail."
    shown = [control for _, control in tried if control.shown]
    here = sum(control.on == "this server" for control in shown)
    detected = f"{len(shown)} of {plural(len(tried), 'row')} detected theirs"
    where = f"{here} on this server, {len(shown) - here} on a correct server of ours"
    parts = [f"Each row has a proxy that puts in a defect. {detected}: {where}."]
    if unseen := [name for name, control in tried if not control.shown]:
        parts.append(f"Not detected: {', '.join(unseen)}.")
    if left:
        parts.append(f"Not tried: {', '.join(left)}.")
    return " ".join(parts)


def _untested(record: ConformanceRecord) -> Iterator[Part]:
    reasons: dict[str, list[str]] = {}
    for row in record.of("NOT ASKED"):
        # What a server or an engine wrote follows a colon; it is in the table of all rows.
        reasons.setdefault(row.fact.partition(": ")[0], []).append(row.name)
    for why, names in reasons.items():
        yield f"{joined(names)} (" if len(names) <= NAMED else f"{len(names)} rows ("
        yield Foreign(why)
        yield "); "
    yield f"rare failures: each row was tested {REPETITIONS} times."


def height(blocks: Sequence[Block]) -> int:
    """Return lines on a terminal, or some more: the same for everybody who renders the report."""
    lines = len(blocks)
    for block in blocks:
        if isinstance(block, BulletList):
            lines += sum(_wrapped(item, WIDTH - 2) for item in block.items)
        if isinstance(block, Terms):
            lines += sum(_wrapped(part, WIDTH - LABEL) for _, part in block.rows)
    return lines


def _wrapped(part: Part, width: int) -> int:
    # Some characters are two columns wide.
    text = re.sub(r"[^\x00-\x7f]", "xx", _plain(part))
    return max(1, len(textwrap.wrap(text, width, break_on_hyphens=False)))


def _plain(part: Part) -> str:
    match part:
        case str():
            return visible(part)
        case Text(parts):
            return "".join(map(_plain, parts))
        case Claim(text, _):
            return _plain(text)
        case Foreign(text, limit) | Verbatim(text, _, limit):
            return visible(text, limit)
        case Strong(text):
            return visible(text)
