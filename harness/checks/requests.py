"""`requests`: how many requests each rank's process made to the scenario's hub, as the hub logged them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.checks.history import History, Seen
from harness.scenario import RequestsCheck

BEGIN, REQUEST, END = "hub.begin", "hub.request", "hub.end"


def judge(check: RequestsCheck, history: History) -> Finding:
    """Judge one trial. A log that is not whole counts nobody's requests."""
    if why := incomplete(history):
        return Finding(check=check.id, kind=check.kind, reason=why)
    return over_ranks(check.id, check.kind, [_rank(check, history, rank) for rank in check.ranks.of(history.size)])


def _rank(check: RequestsCheck, history: History, rank: int) -> RankFinding:
    found = [
        seen for seen in of_rank(history, rank) if "any" in check.role or seen.event.values.get("role") in check.role
    ]
    most = check.at_most
    if most is not None and len(found) > most:
        reason, line = f"{len(found)} requests, at most {most} are allowed", found[most].line
    elif len(found) < check.at_least:
        reason, line = f"{len(found)} requests, at least {check.at_least} are asked", history.noted(END)[0].line
    else:
        reason, line = "", found[0].line if found else history.noted(END)[0].line
    missing = len(found) < check.at_least
    return RankFinding(rank=rank, passed=not reason, observed=len(found), reason=reason, line=line, missing=missing)


def of_rank(history: History, rank: int) -> Sequence[Seen]:
    """The requests that a rank's own process made."""
    return history.noted(REQUEST, rank)


def of_everybody(history: History) -> list[Seen]:
    """All requests of a trial, those of ranks' children and of strangers too."""
    return [seen for seen in history.seen if (seen.event.by, seen.event.name) == ("harness", REQUEST)]


def incomplete(history: History) -> str:
    """Why the hub's log of a trial is not whole; empty where it is."""
    end = history.noted(END)
    if not history.noted(BEGIN) or not end:
        return "the hub's log has no end" if history.noted(BEGIN) else "there was no hub"
    found, counted = len(of_everybody(history)), end[0].event.values.get("requests")
    return "" if found == counted else f"the hub counted {counted} requests, and its log has {found}"
