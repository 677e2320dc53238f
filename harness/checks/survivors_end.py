"""`survivors-end`: after a fault, every rank that lives ended by itself, with an error, within a
time limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

from harness.checks.check import NO_VALUE, FailsAt
from harness.checks.finding import RankFinding
from harness.checks.survivors import Failing, SurvivorsCheck, at_line, is_error
from harness.forms.problem import Draft, Problem
from harness.history import History, Seen, ended


class SurvivorsEndCheck(SurvivorsCheck):
    """Every rank that the fault leaves alive ends by itself with an error within a time limit,
    stopped by nobody.
    """

    properties: ClassVar = replace(
        NO_VALUE, demands_an_error=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = (
        "{id: nobody-hangs, kind: survivors-end, ranks: every, fault: rank-1-dies, limit: 2s}"
    )
    awaited: ClassVar = "ended"

    kind: Literal["survivors-end"]

    def moment(self, history: History, rank: int, failing: Failing) -> Seen:
        """When its process ended, as the process that forked it saw it."""
        return history.exit(rank) or failing.seen

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """An error is not enough: the process has to end, and by the error."""
        found = super().judge_rank(history, rank)
        end = history.exit(rank)
        if history.ended_by(rank) is not None or history.error(rank) is None:
            return found
        if end is None:
            return found._replace(passed=False, reason="its end was not seen", missing=True)
        if history.was_stopped(rank):
            reason = (
                "it raised an error and went on until the harness stopped"
                f" it{at_line(history, rank)}"
            )
        elif not is_error(end.event.values):
            reason = f"it raised an error and ended with {ended(end.event.values)}"
        else:
            return found
        return found._replace(passed=False, reason=reason)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """And nobody is stopped before the limit is over."""
        yield from super().lint(checks, draft)
        after = draft.after_failure
        for index, check in checks.items():
            if after is not None and check.limit > after:
                message = (
                    f"is longer than world.after_failure ({after:g}s), after which the harness"
                    " stops whoever is left; make that as long"
                )
                yield draft.problem(("checks", index, "limit"), message)
