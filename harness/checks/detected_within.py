"""`detected-within`: after a fault, every rank that lives reported an error within a time limit."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from harness.checks.check import NO_VALUE, FailsAt
from harness.checks.survivors import Failing, SurvivorsCheck
from harness.history import History, Seen


class DetectedWithinCheck(SurvivorsCheck):
    """Every rank that the fault leaves alive raises an error, or ends with one, within a time
    limit.
    """

    properties: ClassVar = replace(
        NO_VALUE, demands_an_error=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = (
        "{id: death-is-noticed, kind: detected-within, ranks: every, fault: rank-1-dies, limit: 2s}"
    )
    awaited: ClassVar = "raised"

    kind: Literal["detected-within"]

    def moment(self, history: History, rank: int, failing: Failing) -> Seen:
        """When it failed, however long its process needed to end afterwards."""
        del history, rank
        return failing.seen
