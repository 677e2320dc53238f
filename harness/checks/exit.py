"""`exit`: every rank asked ended by itself with the code, as the process that forked it says."""

from __future__ import annotations

from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.checks.history import History
from harness.scenario import ExitCheck


def judge(check: ExitCheck, history: History) -> Finding:
    """Judge one trial."""
    return over_ranks(check.id, check.kind, [_rank(check.code, history, rank) for rank in check.ranks.of(history.size)])


def _rank(code: int, history: History, rank: int) -> RankFinding:
    found = history.exit(rank)
    if found is None:
        return RankFinding(rank=rank, passed=False, reason="its end was not seen", missing=True)
    observed = ended(found.event.values)
    passed = found.event.values.get("code") == code
    return RankFinding(
        rank=rank,
        passed=passed,
        observed=observed,
        reason="" if passed else f"it must end with code {code}",
        line=found.line,
    )


def ended(values: object) -> str:
    """How a process ended, in words: `code 1` or `SIGKILL`."""
    if not isinstance(values, dict):
        return "unknown"
    return (
        f"code {values.get('code')}"
        if values.get("code") is not None
        else str(values.get("signal") or "unknown signal")
    )
