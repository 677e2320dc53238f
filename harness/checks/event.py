"""`event`: every rank asked emitted the event."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from harness.checks.check import OF_A_VALUE, RankCheck
from harness.checks.finding import RankFinding
from harness.forms.model import Event
from harness.history import History


class EventCheck(RankCheck):
    """Every rank emits the event."""

    properties: ClassVar = replace(
        OF_A_VALUE, compares=False, reports_a_value=False, of_an_end=True, wrong=None
    )
    example: ClassVar = "{id: ready-everywhere, kind: event, ranks: every, event: tokenizer.ready}"

    kind: Literal["event"]
    event: Event = Field(description="The event that every rank must emit.")

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Where it is missing, the error that ended the rank is named."""
        if said := history.said(rank, self.event):
            observed = dict(said[0].event.values) or "emitted"
            return RankFinding(rank=rank, passed=True, observed=observed, line=said[0].line)
        reason = f"no {self.event}"
        line = None
        if (error := history.error(rank)) is not None:
            values = error.event.values
            reason = f"{reason}: {values.get('type')} at {values.get('source')!r}"
            line = error.line
        return RankFinding(rank=rank, passed=False, reason=reason, line=line, missing=True)
