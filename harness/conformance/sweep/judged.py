"""A sweep over servers judged and rendered again. Nothing is sent and no engine is started."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.conformance.rows import ROWS
from harness.conformance.sweep import report
from harness.conformance.sweep.record import (
    PATH,
    ServedFacts,
    ServedRecord,
    ServerPart,
    assemble,
)
from harness.series.series import Read, Series

FOLDER = "served"


class ServedSweep(Series[ServedFacts, ServedRecord]):
    """A series whose parts are conformances of servers."""

    name = FOLDER
    path = PATH
    facts = ServedFacts
    record = ServedRecord

    def parts(self, facts: ServedFacts) -> Sequence[ServerPart]:
        return facts.parts

    def assemble(self, read: Read, names: Collection[str]) -> ServedRecord:
        return assemble(read, names)

    def render(self, record: ServedRecord, *, manifest_digest: str) -> bytes:
        return report.render(record, manifest_digest=manifest_digest)

    def other_plan(self, facts: ServedFacts) -> str:
        unknown = sorted(set(facts.rows) - set(ROWS))
        return f"this version has no row {unknown[0]}" if unknown else ""

    def on_trust(self, _facts: ServedFacts) -> str:
        return (
            "which server and release answered, why a row or a server was not tested, and the"
            " tokenizer's counts are taken on trust"
        )
