"""`agree`: every rank asked reported the value, and all reported the same.

Agreement among those who answered is not agreement: a silent rank fails the check.
"""

from __future__ import annotations

from collections import Counter

from harness.checks.finding import Finding, RankFinding, canonical, over_ranks
from harness.checks.history import History
from harness.scenario import AgreeCheck


def judge(check: AgreeCheck, history: History) -> Finding:
    """Judge one trial. A rank that reported several times is compared by the whole sequence."""
    ranks = check.ranks.of(history.size)
    reported = {rank: history.values(rank, check.event, check.key) for rank in ranks}
    texts = {rank: canonical([value for value, _ in found]) for rank, found in reported.items() if found}
    # The most frequent value is what the others are compared with; a tie goes to the lowest rank.
    usual = Counter(texts.values()).most_common(1)[0][0] if texts else None
    parts = []
    for rank in ranks:
        found = reported[rank]
        if not found:
            parts.append(RankFinding(rank=rank, passed=False, reason=f"{check.value} was not reported", missing=True))
            continue
        agrees = texts[rank] == usual
        parts.append(
            RankFinding(
                rank=rank,
                passed=agrees,
                observed=found[0][0],
                reason="" if agrees else f"{check.value} differs from the other ranks'",
                line=found[0][1],
            )
        )
    return over_ranks(check.id, check.kind, parts)
