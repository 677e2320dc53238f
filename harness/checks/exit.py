"""Checks of how processes end, by the word of the process that forked them: `exit` and
`no-survivors`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.checks.check import NO_VALUE, Check, FailsAt, RankCheck
from harness.checks.finding import Finding, RankFinding, failed
from harness.history import MACHINE_LOST, History, ended


class ExitCheck(RankCheck):
    """Every rank ends with the exit code."""

    properties: ClassVar = replace(
        NO_VALUE, of_an_end=True, wrong=FailsAt.RANK_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = "{id: all-finished, kind: exit, ranks: every, code: 0}"

    kind: Literal["exit"]
    code: Annotated[int, Field(ge=0, le=255)] = Field(0, description="The exit code, 0 to 255.")

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Judge the end of a rank; one that a signal ended has no exit code."""
        end = history.exit(rank)
        if end is None:
            return failed(rank, "its exit was not observed", missing=True)
        values = end.event.values
        reason = "" if values.get("code") == self.code else f"the exit code must be {self.code}"
        return RankFinding(
            rank=rank, passed=not reason, observed=ended(values), reason=reason, line=end.line
        )


class NoSurvivorsCheck(Check):
    """No process of the world is left after it ended."""

    properties: ClassVar = replace(NO_VALUE, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END)
    example: ClassVar = "{id: nobody-left, kind: no-survivors}"

    kind: Literal["no-survivors"]

    def judge(self, history: History) -> Finding:
        """Nobody having looked is not the same as nobody being there."""
        looked = history.served(None, "world.survivors")
        if not looked:
            lost = history.noted(MACHINE_LOST)
            if not lost:
                return Finding(check=self.id, kind=self.kind, reason="survivors were not checked")
            values = lost[0].event.values
            reason = (
                f"machine {values.get('machine')} was lost ({values.get('why')}), so survivors"
                " could not be counted"
            )
            return Finding(check=self.id, kind=self.kind, reason=reason, line=lost[0].line)
        count = looked[0].event.values.get("count")
        left = "process" if count == 1 else "processes"
        reason = "" if count == 0 else f"{count} {left} remained after the ranks had ended"
        return Finding(check=self.id, kind=self.kind, reason=reason, line=looked[0].line)
