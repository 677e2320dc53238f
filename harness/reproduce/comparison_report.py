"""A comparison as blocks, for terminal and markdown, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from harness.forms.text import plural
from harness.record.model import Record
from harness.report.blocks import Block, Foreign, Heading, Note, Paragraph, Part, Strong, Table, Verbatim
from harness.reproduce.comparison import Comparison, Kind, Row

SECTIONS: tuple[tuple[str, frozenset[Kind]], ...] = (
    ("Results", frozenset({"verdict", "candidate", "control", "check"})),
    ("Times and measurements", frozenset({"time", "measured"})),
    ("Scenario", frozenset({"scenario"})),
    ("Environment", frozenset({"environment"})),
)
NOTE = (
    "Changed: p < 5 %. Same: the difference is bounded by what the scenario accepts (by half for the control). Times: "
    "changed where the 95 % intervals are apart, same where their ratio lies within 0.8 and 1.25; they do not decide "
    "the answer. More: further trials on each side that would settle it, at a power of 80 %."
)


def blocks(found: Comparison, first: Record, second: Record, *, verified: tuple[bool, bool]) -> Iterator[Block]:
    """The comparison as blocks; `verified` says of each record whether it was."""
    yield Heading(1, Foreign(f"{first.scenario.id}: {first.run.id} and {second.run.id}"))
    pairs = f"{plural(found.pairs, 'pair')} of trials share their seed" if found.pairs else "no trials share their seed"
    yield Paragraph(Strong(found.word.upper()), f": {pairs}.")
    sides = zip("AB", (first, second), verified, strict=True)
    yield Table(
        ("", "run", "made", "commit", "verdict", "verified"),
        tuple(
            (
                name,
                Verbatim(record.run.id),
                Verbatim(record.run.made),
                Verbatim((record.run.source.commit or "unknown")[:12]),
                Strong(record.judgement.verdict),
                "yes" if good else Strong("NO"),
            )
            for name, record, good in sides
        ),
    )
    for title, kinds in SECTIONS:
        rows = [row for row in found.rows if row.kind in kinds]
        yield Heading(2, title)
        # What is about the whole run has neither cell nor test.
        cut = slice(0, None) if any(row.cell for row in rows) else slice(1, 5)
        header: tuple[Part, ...] = ("cell", "what", "A", "B", "word", "how", "more")
        yield Table(header[cut], tuple(_row(row)[cut] for row in rows))
    yield Note(NOTE)


def as_json(found: Comparison, first: Record, second: Record, *, verified: tuple[bool, bool]) -> dict[str, Any]:
    """The comparison for machines."""
    return {
        "word": found.word,
        "pairs": found.pairs,
        "scenario": first.scenario.id,
        "runs": [
            {
                "run": record.run.id,
                "made": record.run.made,
                "commit": record.run.source.commit,
                "verdict": record.judgement.verdict,
                "verified": good,
            }
            for record, good in zip((first, second), verified, strict=True)
        ],
        "rows": [{**dataclasses.asdict(row), "decides": row.decides} for row in found.rows],
    }


def _row(row: Row) -> tuple[Part, ...]:
    word: Part = row.word if row.word == "same" else Strong(row.word)
    more = f"{row.more}" if row.more is not None else ""
    first, second = (Foreign(value, 200) for value in row.values)
    return Foreign(row.cell), Foreign(row.what, 200), first, second, word, row.how, more
