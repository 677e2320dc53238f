"""`exit`: every rank asked ended by itself with the code, as the process that forked it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.checks.check import NO_VALUE, FailsAt, RankCheck
from harness.checks.finding import RankFinding
from harness.history import History, ended


class ExitCheck(RankCheck):
    """Every rank ends with the exit code."""

    properties: ClassVar = replace(
        NO_VALUE, of_an_end=True, wrong=FailsAt.RANK_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = "{id: all-finished, kind: exit, ranks: every, code: 0}"

    kind: Literal["exit"]
    code: Annotated[int, Field(ge=0, le=255)] = Field(0, description="The exit code, 0 to 255.")

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """A rank that a signal ended has no exit code."""
        end = history.exit(rank)
        if end is None:
            return RankFinding(rank=rank, passed=False, reason="its end was not seen", missing=True)
        values = end.event.values
        reason = "" if values.get("code") == self.code else f"it must end with code {self.code}"
        return RankFinding(
            rank=rank, passed=not reason, observed=ended(values), reason=reason, line=end.line
        )
