"""`equal`: every rank asked reported the value, each time as stated."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from harness.checks.check import CheckProperties, FailsAt, ValueCheck
from harness.checks.finding import Finding, RankFinding, over_ranks, same
from harness.history import History


class EqualCheck(ValueCheck):
    """Every rank reports the value, and it equals the given one."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    example: ClassVar = "{id: round-trip, kind: equal, ranks: every, value: decode.text, to: Hello world}"

    kind: Literal["equal"]
    to: JsonValue = Field(description="What the value must be, compared by type and content.")

    def judge(self, history: History) -> Finding:
        """Each report counts: the first that differs is shown."""
        parts = []
        for rank in self.ranks.of(history.size):
            reports = history.values(rank, self.event, self.key)
            if not reports:
                reason = f"{self.value} was not reported"
                parts.append(RankFinding(rank=rank, passed=False, reason=reason, missing=True))
                continue
            wrong = [(value, line) for value, line in reports if not same(value, self.to)]
            value, line = wrong[0] if wrong else reports[0]
            reason = f"{self.value} is not what it must be" if wrong else ""
            parts.append(RankFinding(rank=rank, passed=not wrong, observed=value, reason=reason, line=line))
        return over_ranks(self.id, self.kind, parts)
