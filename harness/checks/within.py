"""`within`: on every rank asked, one event followed another in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import OF_A_VALUE, RankCheck
from harness.checks.finding import RankFinding
from harness.forms.model import Event
from harness.forms.problem import Draft, Problem
from harness.forms.units import Duration
from harness.history import History


class WithinCheck(RankCheck):
    """On every rank the event follows another one within a time limit."""

    properties: ClassVar = replace(OF_A_VALUE, compares=False)
    example: ClassVar = (
        "{id: loads-in-time, kind: within, ranks: every, event: tokenizer.ready, limit: 5s}"
    )

    kind: Literal["within"]
    from_: Event = Field("rank.begin", alias="from", description="The event that starts the clock.")
    event: Event = Field(description="The event that stops the clock.")
    limit: Duration = Field(
        description="The longest time allowed between the two, with a unit: 200ms, 60s."
    )

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """From the first `from` to the first `event` after it, in seconds."""
        starts = history.said(rank, self.from_)
        if not starts:
            return RankFinding(rank=rank, passed=False, reason=f"no {self.from_}", missing=True)
        begin = starts[0].event.ns
        after = [seen for seen in history.said(rank, self.event) if seen.event.ns >= begin]
        if not after:
            reason = f"no {self.event} after {self.from_}"
            return RankFinding(
                rank=rank, passed=False, reason=reason, line=starts[0].line, missing=True
            )
        seconds = (after[0].event.ns - begin) / 1e9
        reason = "" if seconds <= self.limit else f"it took longer than {self.limit:g} s"
        observed = f"{seconds:.3f} s"
        return RankFinding(
            rank=rank, passed=not reason, observed=observed, reason=reason, line=after[0].line
        )

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """The limit can be exceeded, and the clock of a program is started by an event that it
        emits.
        """
        deadline = draft.deadline
        for index, check in checks.items():
            if draft.has("subject", "program") and not draft.has("checks", index, "from"):
                message = (
                    "is missing; a program has no rank.begin: name the event that starts the clock,"
                    " such as ready"
                )
                yield draft.problem(("checks", index, "from"), message)
            if deadline is not None and not 0 < check.limit <= deadline:
                message = (
                    f"must be more than 0s and at most world.deadline ({deadline:g}s), or it can"
                    " never be exceeded"
                )
                yield draft.problem(("checks", index, "limit"), message)
