"""`equal`: every rank asked reported the value, each time as stated."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from harness.checks.check import OF_A_VALUE, ValueCheck
from harness.checks.finding import RankFinding, same
from harness.history import History


class EqualCheck(ValueCheck):
    """Every rank reports the value, and it equals the given one."""

    properties: ClassVar = OF_A_VALUE
    example: ClassVar = "{id: round-trip, kind: equal, ranks: every, value: decode.text, to: Hello world}"

    kind: Literal["equal"]
    to: JsonValue = Field(description="What the value must be, compared by type and content.")

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Each report counts: the first that differs is shown."""
        reports = history.values(rank, self.event, self.key)
        if not reports:
            return RankFinding(rank=rank, passed=False, reason=f"{self.value} was not reported", missing=True)
        wrong = [(value, line) for value, line in reports if not same(value, self.to)]
        value, line = wrong[0] if wrong else reports[0]
        reason = f"{self.value} is not what it must be" if wrong else ""
        return RankFinding(rank=rank, passed=not wrong, observed=value, reason=reason, line=line)
