"""A sweep over servers judged and rendered again. Nothing is sent and no engine is started."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.conformance.sweep import report
from harness.conformance.sweep.record import (
    PATH,
    ServedFacts,
    ServedRecord,
    ServerPart,
    assemble,
    digest_of,
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
        for part in facts.parts:
            if part.scenario != digest_of(part.target, part.mode):
                return f"it names {part.name} differently"
        return ""

    def on_trust(self, _facts: ServedFacts) -> str:
        return "the tokenizer's counts are on trust"
