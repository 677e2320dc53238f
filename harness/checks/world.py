"""What must hold in every trial, whatever its scenario asks: the ranks were real, whole, and finished.

These findings need no line in a scenario, and none can switch them off. Their ids begin with `world:`.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks.finding import Finding, RankFinding
from harness.history import History, ended

KIND = "world"


def judge(history: History, *, ended_by_fault: Mapping[int, str] | None = None) -> list[Finding]:
    """Judge one trial.

    Args:
        history: the trial's events.
        ended_by_fault: rank to the id of the fault that provably ended it: how far it came is the fault's doing.
    """
    ended_ranks = ended_by_fault or {}
    group = [] if history.is_of_programs else [_excuse(_group(history), ended_ranks)]
    code = _executed(history) if history.is_of_programs else _entry_loaded(history)
    return [
        _real(history),
        *group,
        _excuse(code, ended_ranks),
        _channel(history),
        _excuse(_finished(history), ended_ranks),
        _kept(history),
    ]


def _excuse(finding: Finding, ended: Mapping[int, str]) -> Finding:
    """A rank that a fault ended did not fail to join, load or return."""
    if not ended:
        return finding
    parts = tuple(
        found._replace(passed=True, reason="", observed=f"ended by fault {ended[found.rank]}")
        if found.rank in ended and not found.passed
        else found
        for found in finding.ranks
    )
    return finding._replace(ranks=parts)


def _real(history: History) -> Finding:
    """Every rank was a process of its own, forked and reaped by the server; none was the harness (rules 1, 13)."""
    harness = history.about().get("harness_pid")
    pids = [seen.event.pid for rank in range(history.size) for seen in history.served(rank, "rank.started")]
    parts = []
    for rank in range(history.size):
        started, exited = history.served(rank, "rank.started"), history.served(rank, "rank.exited")
        pid = started[0].event.pid if started else None
        if len(started) != 1 or pid is None:
            reason = "it was not started exactly once"
        elif pids.count(pid) != 1 or pid == harness:
            reason = f"pid {pid} is not its own"
        elif len(exited) != 1 or exited[0].event.pid != pid:
            reason = "its end was not seen exactly once"
        else:
            reason = ""
        line = started[0].line if started else None
        parts.append(RankFinding(rank=rank, passed=not reason, observed=f"pid {pid}", reason=reason, line=line))
    return Finding(check="world:ranks-are-processes", kind=KIND, ranks=tuple(parts))


def _group(history: History) -> Finding:
    """The backend itself reports this rank and this world size, so a mis-set rank cannot pass as a group of one.

    Nor did the subject make a group of another size itself, as MLX does of one rank where it finds no setting.
    """
    parts = []
    for rank in range(history.size):
        answers = history.said(rank, "backend.ready")
        values = answers[0].event.values if answers else {}
        if not answers:
            reason = "it did not join the group"
        elif (values.get("rank"), values.get("size")) != (rank, history.size):
            reason = f"the backend calls it rank {values.get('rank')} of {values.get('size')}"
        else:
            reason = ""
        observed = f"{values.get('rank')} of {values.get('size')}" if answers else None
        line = answers[0].line if answers else None
        for seen in history.said(rank, "group.made"):
            own = seen.event.values
            if not reason and own.get("size") != history.size:
                observed, line = f"{own.get('rank')} of {own.get('size')}", seen.line
                reason = f"the subject made its own group with {own.get('library')}, of another size than the world"
        parts.append(RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line))
    return Finding(check="world:group-is-whole", kind=KIND, ranks=tuple(parts))


def _entry_loaded(history: History) -> Finding:
    """The entry was loaded from the arm's folder (rule 12)."""
    parts = []
    for rank in range(history.size):
        lists = history.said(rank, "subject.loaded")
        entries = [seen for seen in lists if seen.event.values.get("entry")]
        if entries:
            seen = entries[0]
            parts.append(RankFinding(rank=rank, passed=True, observed=seen.event.values["entry"], line=seen.line))
            continue
        elsewhere = any(seen.event.values.get("elsewhere") for seen in lists)
        reason = "the entry came from elsewhere, not from the arm's folder" if elsewhere else "the entry was not loaded"
        parts.append(RankFinding(rank=rank, passed=False, reason=reason, line=lists[0].line if lists else None))
    return Finding(check="world:code-is-the-arms", kind=KIND, ranks=tuple(parts))


def _executed(history: History) -> Finding:
    """A program was executed with a file of the arm's folder (rule 12), as the process that executed it says."""
    parts = []
    for rank in range(history.size):
        seen = history.executed(rank)
        files = [name for name, _ in history.executed_files(rank)]
        if seen is None:
            reason = "no program was started"
        elif not files:
            reason = "no word of its command line is a file of the arm's folder"
        else:
            reason = ""
        observed = ", ".join(map(str, files)) or None
        line = seen.line if seen else None
        parts.append(RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line))
    return Finding(check="world:code-is-the-arms", kind=KIND, ranks=tuple(parts))


def _channel(history: History) -> Finding:
    """What the rank reported is whole: no garbage, no flood, not closed before its end.

    A program may close its channel once it was ready, and come to its end in silence, as if it had no more to say: what
    it does not say is missing in the checks (docs/adr/0032). A rank of Python says until its end what it has loaded.
    """
    words = {
        "channel.garbage": "it wrote lines to the event channel that are no events",
        "channel.overflow": "it flooded the event channel",
        "channel.closed": "it closed the event channel before it ended",
    }
    parts = []
    for rank in range(history.size):
        may_close = history.is_of_programs and history.began(rank) and history.returned(rank) is not None
        asked = [name for name in words if not (may_close and name == "channel.closed")]
        bad = [(seen.line, words[name]) for name in asked for seen in history.noted(name, rank)]
        line, reason = bad[0] if bad else (None, "")
        parts.append(RankFinding(rank=rank, passed=not bad, reason=reason, line=line))
    return Finding(check="world:channel-is-whole", kind=KIND, ranks=tuple(parts))


def _kept(history: History) -> Finding:
    """The harness kept its hold on the world to the end. A rank may be what loosened it, so this is a failure."""
    broken = history.noted("harness.error")
    if broken:
        values = broken[0].event.values
        reason, line = f"{values.get('type')}: {values.get('message')}", broken[0].line
    else:
        reason, line = "" if history.noted("world.end") else "its events have no end", None
    return Finding(check="world:kept-to-the-end", kind=KIND, reason=reason, line=line)


def _finished(history: History) -> Finding:
    """The subject returned on every rank before the deadline, and nobody had to be stopped."""
    stopped = [rank for seen in history.noted("world.stopped") for rank in seen.event.values.get("ranks", ())]
    deadline = history.noted("world.deadline")
    parts = []
    for rank in range(history.size):
        if (returned := history.returned(rank)) is not None:
            reason = "it was stopped after it had returned" if rank in stopped else ""
            parts.append(RankFinding(rank=rank, passed=not reason, reason=reason, line=returned.line))
            continue
        error, end = history.error(rank), history.exit(rank)
        if rank in stopped:
            reason = "it hung until the deadline" if deadline else "it did not end after another rank had failed"
        elif error is not None:
            reason = f"it raised {error.event.values.get('type')}"
        else:
            how = ended(end.event.values) if end else "unknown"
            reason = f"it ended with {how}" if history.is_of_programs else "it ended before the subject returned"
        line = error.line if error else end.line if end else None
        parts.append(RankFinding(rank=rank, passed=False, reason=reason, line=line))
    after = deadline[0].event.values.get("after") if deadline else None
    return Finding(
        check="world:finished",
        kind=KIND,
        ranks=tuple(parts),
        reason=f"the world was not done after {after:g} s" if isinstance(after, int | float) else "",
        line=deadline[0].line if deadline else None,
    )
