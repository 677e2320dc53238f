"""`within`: on every rank asked, one event followed another in time."""

from __future__ import annotations

from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.checks.history import History
from harness.scenario import WithinCheck


def judge(check: WithinCheck, history: History) -> Finding:
    """Judge one trial: from the first `from` to the first `event` after it, in seconds."""
    return over_ranks(check.id, check.kind, [_rank(check, history, rank) for rank in check.ranks.of(history.size)])


def _rank(check: WithinCheck, history: History, rank: int) -> RankFinding:
    starts = history.said(rank, check.from_)
    if not starts:
        return RankFinding(rank=rank, passed=False, reason=f"no {check.from_}", missing=True)
    begin = starts[0].event.ns
    after = [seen for seen in history.said(rank, check.event) if seen.event.ns >= begin]
    if not after:
        return RankFinding(
            rank=rank, passed=False, reason=f"no {check.event} after {check.from_}", line=starts[0].line, missing=True
        )
    seconds = (after[0].event.ns - begin) / 1e9
    passed = seconds <= check.limit
    return RankFinding(
        rank=rank,
        passed=passed,
        observed=f"{seconds:.3f} s",
        reason="" if passed else f"it took longer than {check.limit:g} s",
        line=after[0].line,
    )
