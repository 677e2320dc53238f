"""`within`: on every rank asked, one event followed another in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import CHECK_RANKS, Check, CheckProperties, FailsAt
from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.forms.draft import Draft
from harness.forms.fields import Event
from harness.forms.problem import Problem
from harness.forms.ranks import Ranks
from harness.forms.units import Duration
from harness.history import History


class WithinCheck(Check):
    """On every rank the event follows another one within a time limit."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    example: ClassVar = "{id: loads-in-time, kind: within, ranks: every, event: tokenizer.ready, limit: 5s}"

    kind: Literal["within"]
    ranks: Ranks = Field(description=CHECK_RANKS)
    from_: Event = Field("rank.begin", alias="from", description="The event that starts the clock.")
    event: Event = Field(description="The event that stops the clock.")
    limit: Duration = Field(description="The longest time allowed between the two, with a unit: 200ms, 60s.")

    def judge(self, history: History) -> Finding:
        """From the first `from` to the first `event` after it, in seconds."""
        return over_ranks(self.id, self.kind, [self._rank(history, rank) for rank in self.ranks.of(history.size)])

    def _rank(self, history: History, rank: int) -> RankFinding:
        starts = history.said(rank, self.from_)
        if not starts:
            return RankFinding(rank=rank, passed=False, reason=f"no {self.from_}", missing=True)
        begin = starts[0].event.ns
        after = [seen for seen in history.said(rank, self.event) if seen.event.ns >= begin]
        if not after:
            reason = f"no {self.event} after {self.from_}"
            return RankFinding(rank=rank, passed=False, reason=reason, line=starts[0].line, missing=True)
        seconds = (after[0].event.ns - begin) / 1e9
        reason = "" if seconds <= self.limit else f"it took longer than {self.limit:g} s"
        observed = f"{seconds:.3f} s"
        return RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=after[0].line)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """The limit can be exceeded, and the clock of a program is started by an event that it emits."""
        deadline = draft.deadline
        for index, check in checks.items():
            if draft.has("subject", "program") and not draft.has("checks", index, "from"):
                message = "is missing; a program has no rank.begin: name the event that starts the clock, such as ready"
                yield draft.problem(("checks", index, "from"), message)
            if deadline is not None and not 0 < check.limit <= deadline:
                message = (
                    f"must be more than 0s and at most world.deadline ({deadline:g}s), or it can never be exceeded"
                )
                yield draft.problem(("checks", index, "limit"), message)
