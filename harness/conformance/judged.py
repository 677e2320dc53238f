"""A conformance judged and rendered again, as a series whose parts are rows. Nothing is sent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from harness.conformance.record import (
    FORMAT,
    PATH,
    ConformanceFacts,
    ConformanceRecord,
    Read,
    assemble,
)
from harness.conformance.report import render
from harness.conformance.rows import ROWS
from harness.record.model import RecordError
from harness.series.replay import demand_named
from harness.series.series import Series

FOLDER: Final = "conformance"


class Conformance(Series[ConformanceFacts, ConformanceRecord]):
    """How a conformance is judged and rendered again: as a series whose parts are rows."""

    name = FOLDER
    path = PATH
    facts = ConformanceFacts
    record = ConformanceRecord

    def assemble(self, read: Read, names: Collection[str]) -> ConformanceRecord:
        """Judge every row again. Raises RecordError."""
        facts = self.read(read(PATH))
        demand_named(facts)
        if facts.format != FORMAT:
            raise RecordError(f"{PATH}: this version does not support format {facts.format}")
        return assemble(read, names, facts)

    def render(self, record: ConformanceRecord, *, manifest_digest: str) -> bytes:
        """Return the body of `report.md`."""
        return render(record, manifest_digest=manifest_digest)

    def other_plan(self, facts: ConformanceFacts) -> str:
        """Say which rows this version has and the report does not."""
        lacking = sorted(set(ROWS) - {*facts.asked, *facts.unasked})
        return f"this version also has {', '.join(lacking)}" if lacking else ""

    def on_trust(self, facts: ConformanceFacts) -> str:
        """Say what nobody can work out again."""
        parts = ["the tokenizer's counts"] if facts.tokens is not None else []
        parts += ["the words of the older server"] if facts.against is not None else []
        return f"{' and '.join(parts)} are taken on trust" if parts else ""
