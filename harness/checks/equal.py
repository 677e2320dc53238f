"""`equal`: every rank asked reported the value, each time as stated."""

from __future__ import annotations

from harness.checks.finding import Finding, RankFinding, over_ranks, same
from harness.checks.history import History
from harness.scenario import EqualCheck


def judge(check: EqualCheck, history: History) -> Finding:
    """Judge one trial."""
    parts = []
    for rank in check.ranks.of(history.size):
        found = history.values(rank, check.event, check.key)
        if not found:
            parts.append(RankFinding(rank=rank, passed=False, reason=f"{check.value} was not reported", missing=True))
            continue
        wrong = [(value, line) for value, line in found if not same(value, check.to)]
        value, line = wrong[0] if wrong else found[0]
        reason = f"{check.value} is not what it must be" if wrong else ""
        parts.append(RankFinding(rank=rank, passed=not wrong, observed=value, reason=reason, line=line))
    return over_ranks(check.id, check.kind, parts)
