"""`event`: every rank asked emitted the event."""

from __future__ import annotations

from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.checks.history import History
from harness.scenario import EventCheck


def judge(check: EventCheck, history: History) -> Finding:
    """Judge one trial."""
    return over_ranks(
        check.id, check.kind, [_rank(check.event, history, rank) for rank in check.ranks.of(history.size)]
    )


def _rank(event: str, history: History, rank: int) -> RankFinding:
    if found := history.said(rank, event):
        return RankFinding(
            rank=rank, passed=True, observed=dict(found[0].event.values) or "emitted", line=found[0].line
        )
    error = history.error(rank)
    if error is not None:
        kind, source = error.event.values.get("type"), error.event.values.get("source")
        return RankFinding(
            rank=rank, passed=False, reason=f"no {event}: {kind} at {source!r}", line=error.line, missing=True
        )
    return RankFinding(rank=rank, passed=False, reason=f"no {event}", missing=True)
