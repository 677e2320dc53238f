"""`increasing`: on every rank asked, each report of a value is greater than the one before."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Literal

from harness.checks.check import CheckProperties, FailsAt, ValueCheck
from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.history import History


class IncreasingCheck(ValueCheck):
    """Every rank reports the value, each time a greater number than before."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        compares=True,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        needs_the_environment=False,
        demands_an_error=False,
        may_be_stopped=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    example: ClassVar = "{id: steps-in-order, kind: increasing, ranks: every, value: step.number}"

    kind: Literal["increasing"]

    def judge(self, history: History) -> Finding:
        """Where two reports are out of order, the second is shown."""
        return over_ranks(
            self.id, self.kind, [self._rank(history, rank) for rank in self.ranks.of(history.size)]
        )

    def _rank(self, history: History, rank: int) -> RankFinding:
        reports = history.values(rank, self.event, self.key)
        if not reports:
            return RankFinding(
                rank=rank, passed=False, reason=f"{self.value} was not reported", missing=True
            )
        for (before, _), (value, line) in pairwise(reports):
            if not isinstance(before, int) or not isinstance(value, int) or value <= before:
                reason = f"{self.value} is not greater than {before!r} before it"
                return RankFinding(
                    rank=rank, passed=False, observed=value, reason=reason, line=line
                )
        value, line = reports[-1]
        return RankFinding(rank=rank, passed=True, observed=value, line=line)
