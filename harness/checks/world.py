"""Findings of every trial, whatever its scenario asks: the ranks were real, whole, and finished.

These findings need no line in a scenario, and none can switch them off. Their ids begin with
`world:`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.checks.finding import Finding, RankFinding, failed
from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import (
    MACHINE_CUT,
    MACHINE_ENDED,
    MACHINE_LOST,
    MACHINES_JOINED,
    History,
    ended,
)

KIND = "world"


def judge(
    history: History,
    *,
    ended_by_fault: Mapping[int, str] | None = None,
    in_error: Mapping[int, str] | None = None,
) -> list[Finding]:
    """Judge one trial.

    Args:
        history: the trial's events.
        ended_by_fault: rank to the id of the fault that provably ended it: how far it came is the
            fault's doing.
        in_error: rank to the check that holds there because it ended with an error: it need not
            have come further.
    """
    ended_ranks = {
        rank: f"ended with an error, as {check} demands" for rank, check in (in_error or {}).items()
    }
    ended_ranks |= {
        rank: f"ended by fault {fault}" for rank, fault in (ended_by_fault or {}).items()
    }
    group = [] if history.is_of_programs else [_over_every("group-is-whole", history, _joined)]
    code = _executed if history.is_of_programs else _entry_loaded
    return [
        _real(history),
        *(
            _excuse(found, ended_ranks)
            for found in (*group, _over_every("code-is-the-arms", history, code))
        ),
        *(
            [_over_every("ranks-are-on-their-hosts", history, _placed)]
            if "hosts" in history.about()
            else []
        ),
        *(
            [_over_every("machines-stayed", history, _stayed)]
            if "machines" in history.about()
            else []
        ),
        _over_every("channel-is-whole", history, _heard),
        _excuse(_finished(history), ended_ranks),
        _kept(history),
    ]


def _excuse(finding: Finding, ended: Mapping[int, str]) -> Finding:
    """Excuse the ranks that were meant to end from joining, loading and returning."""
    if not ended:
        return finding
    parts = tuple(
        (
            found._replace(passed=True, reason="", observed=ended[found.rank])
            if found.rank in ended and not found.passed
            else found
        )
        for found in finding.ranks
    )
    return finding._replace(ranks=parts)


def _over_every(
    check: str, history: History, part: Callable[[History, int], RankFinding]
) -> Finding:
    return Finding(
        check=f"world:{check}",
        kind=KIND,
        ranks=tuple(part(history, rank) for rank in range(history.size)),
    )


def _real(history: History) -> Finding:
    """Judge whether every rank was its own process, forked and reaped by the server.

    None may be the harness (rules 1, 13).
    """
    harness = history.about().get("harness_pid")
    # Two machines may give one number to two processes, the harness's among them.
    over = "machines" in history.about()
    pids = [
        (seen.event.pid, _machine(seen.event, over=over))
        for rank in range(history.size)
        for seen in history.served(rank, "rank.started")
    ]

    def part(history: History, rank: int) -> RankFinding:
        started = history.served(rank, "rank.started")
        exited = history.served(rank, "rank.exited")
        pid = started[0].event.pid if started else None
        if len(started) != 1 or pid is None:
            reason = "it was not started exactly once"
        elif pids.count((pid, _machine(started[0].event, over=over))) != 1 or (
            pid == harness and not over
        ):
            reason = f"pid {pid} belongs to another process"
        elif len(exited) != 1 or exited[0].event.pid != pid:
            reason = "its exit was not observed exactly once"
        else:
            reason = ""
        line = started[0].line if started else None
        return RankFinding(
            rank=rank, passed=not reason, observed=f"pid {pid}", reason=reason, line=line
        )

    return _over_every("ranks-are-processes", history, part)


def _machine(started: Event, *, over: bool) -> JSON:
    """Return the machine of a process; what is said of it in a world on one machine does not
    count.
    """
    return started.values.get("machine") if over else None


def _joined(history: History, rank: int) -> RankFinding:
    """Judge whether the backend reports this rank and this world size.

    Nor may the subject make a group of another size, as MLX makes one of one rank where it finds no
    setting.
    """
    answers = history.said(rank, "backend.ready")
    if not answers:
        return failed(rank, "it did not join the group")
    values = answers[0].event.values
    line = answers[0].line
    reason = ""
    observed = f"{values.get('rank')} of {values.get('size')}"
    if (values.get("rank"), values.get("size")) != (rank, history.size):
        reason = f"the backend calls it rank {observed}"
    for seen in history.said(rank, "group.made"):
        group = seen.event.values
        if not reason and group.get("size") != history.size:
            observed = f"{group.get('rank')} of {group.get('size')}"
            line = seen.line
            reason = (
                f"the subject made its own group with {group.get('library')}, whose size differs"
                " from the world's"
            )
    return RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line)


def _placed(history: History, rank: int) -> RankFinding:
    """Judge whether the rank ran on its own test host, as its forker and the rank itself report.

    A wire joined the hosts.
    """
    placed = history.about().get("hosts")
    host = placed[rank] if isinstance(placed, list) and rank < len(placed) else None
    started = history.served(rank, "rank.started")
    hosts = history.served(None, "hosts.made")
    listed = hosts[0].event.values.get("hosts") if len(hosts) == 1 else None
    entries = listed if isinstance(listed, list) else []
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    observed = started[0].event.values.get("host") if started else None
    line = started[0].line if started else None
    reports = history.said(rank, "rank.begin")
    if not isinstance(host, int) or host >= len(names) or len(set(map(str, names))) < len(names):
        reason = "the hosts of its world were not created"
    elif observed != names[host]:
        reason = f"it should be on {names[host]}"
    # One report of the right host is enough: a subject may write what it likes into the channel.
    elif reports and not any(seen.event.values.get("host") == observed for seen in reports):
        reason = f"it reports that it is on {reports[0].event.values.get('host')}"
        line = reports[0].line
    else:
        reason = ""
    return RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line)


def _stayed(history: History, rank: int) -> RankFinding:
    """Judge whether the rank was forked on its own machine, and that stayed to the world's end.

    What a lost machine wrote down is evidence of how its ranks ended, and never makes the trial
    good.
    """
    about: Any = history.about().get("machines")
    started = history.served(rank, "rank.started")
    joined: Any = history.noted(MACHINES_JOINED)
    try:
        machine = about["called"][about["of"][rank]]
        (joining,) = joined
        listed = [entry["machine"] for entry in joining.event.values["machines"]]
    except (LookupError, TypeError, ValueError):
        machine = None
        listed = []
    observed = started[0].event.values.get("machine") if started else None
    line = started[0].line if started else None
    reason = ""
    if machine not in listed or len(set(map(str, listed))) < len(listed):
        reason = "the machines of its world were not reached"
    elif observed != machine:
        reason = f"it should be on machine {machine}"
    for name, words in ((MACHINE_LOST, "was lost"), (MACHINE_ENDED, "ended its ranks by itself")):
        for seen in history.noted(name):
            is_its = seen.event.values.get("machine") == machine
            if is_its and not reason and not _was_cut_off(history, rank, machine):
                line = seen.line
                reason = f"its machine {words}: {seen.event.values.get('why')}"
    return RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line)


def _was_cut_off(history: History, rank: int, machine: object) -> bool:
    """Tell whether a fault provably ended the rank by cutting its machine off."""
    cuts = [seen.event.values for seen in history.noted(MACHINE_CUT)]
    faults = [values.get("fault") for values in cuts if values.get("machine") == machine]
    return any(
        fault.rank == rank and fault.ends and fault.fault in faults for fault in history.faults
    )


def _entry_loaded(history: History, rank: int) -> RankFinding:
    """Judge whether the entry was loaded from the arm's folder (rule 12)."""
    lists = history.said(rank, "subject.loaded")
    for seen in lists:
        if entry := seen.event.values.get("entry"):
            return RankFinding(rank=rank, passed=True, observed=entry, line=seen.line)
    elsewhere = any(seen.event.values.get("elsewhere") for seen in lists)
    reason = (
        "the entry was not loaded from the arm's folder"
        if elsewhere
        else "the entry was not loaded"
    )
    return failed(rank, reason, lists[0].line if lists else None)


def _executed(history: History, rank: int) -> RankFinding:
    """Judge whether a program ran with a file of the arm's folder (rule 12), by its forker's
    word.
    """
    seen = history.executed(rank)
    if seen is None:
        return failed(rank, "no program was started")
    files = ", ".join(str(name) for name, _ in history.executed_files(rank))
    reason = "" if files else "no argument of its command line is a file in the arm's folder"
    return RankFinding(
        rank=rank, passed=not reason, observed=files or None, reason=reason, line=seen.line
    )


def _heard(history: History, rank: int) -> RankFinding:
    """Judge whether what the rank reported is whole: no garbage, no flood, not closed too early.

    A program may close its channel once it was ready, and exit in silence, as if it had no more to
    say: what it does not say is missing in the checks (docs/adr/0032). A rank of Python says last
    what it has loaded: nothing can be lost after that (docs/adr/0126).
    """
    words = {
        "channel.garbage": "it wrote lines to the event channel that are not events",
        "channel.overflow": "it flooded the event channel",
        "channel.closed": "it closed the event channel before it ended",
    }
    if history.is_of_programs:
        end = history.exit(rank)
        is_heard = (
            history.began(rank) and end is not None and end.event.values.get("code") is not None
        )
    else:
        returned = history.returned(rank)
        is_heard = any(
            returned and seen.line > returned.line for seen in history.said(rank, "subject.loaded")
        )
    if is_heard:
        del words["channel.closed"]
    for name, reason in words.items():
        if bad := history.noted(name, rank):
            return failed(rank, reason, bad[0].line)
    return RankFinding(rank=rank, passed=True)


def _kept(history: History) -> Finding:
    """Judge whether the harness kept its hold on the world to the end.

    A rank may be what loosened it, so this is a failure.
    """
    line = None
    reason = "" if history.noted("world.end") else "its event log has no end"
    if errors := history.noted("harness.error"):
        values = errors[0].event.values
        line = errors[0].line
        reason = f"{values.get('type')}: {values.get('message')}"
    return Finding(check="world:kept-to-the-end", kind=KIND, reason=reason, line=line)


def _why_stopped(history: History, rank: int) -> str:
    """Say why the harness stopped a rank, as far as it noted that."""
    values = history.noted("world.stopped")[0].event.values
    failing = values.get("failed")
    if history.noted("world.deadline"):
        return "it was still running at the deadline"
    if values.get("why") == "hang" and history.noted("world.still"):
        return "it was stopped because its world made no progress"
    if values.get("why") == "hang":
        return "it was stopped because a hang could no longer be proved"
    if isinstance(failing, list) and any(other != rank for other in failing):
        return "it did not exit in time after another rank had failed"
    if history.noted(MACHINE_LOST) or history.noted(MACHINE_ENDED):
        return "it did not exit in time after a machine of its world was lost"
    return "it was stopped"


def _finished(history: History) -> Finding:
    """Judge whether the subject returned on every rank in time, and nobody had to be stopped."""
    deadline = history.noted("world.deadline")

    def part(history: History, rank: int) -> RankFinding:
        if (returned := history.returned(rank)) is not None:
            reason = "it was stopped after it had returned" if history.was_stopped(rank) else ""
            return RankFinding(rank=rank, passed=not reason, reason=reason, line=returned.line)
        error = history.error(rank)
        end = history.exit(rank)
        shown_by = error or end
        if history.was_stopped(rank):
            reason = _why_stopped(history, rank)
        elif error is not None:
            reason = f"it raised {error.event.values.get('type')}"
        else:
            how = ended(end.event.values) if end else "unknown"
            reason = (
                f"it ended with {how}"
                if history.is_of_programs
                else "it ended before the subject returned"
            )
        return failed(rank, reason, shown_by.line if shown_by else None)

    after = deadline[0].event.values.get("after") if deadline else None
    return _over_every("finished", history, part)._replace(
        reason=(
            f"the world was still running after {after:g} s"
            if isinstance(after, int | float)
            else ""
        ),
        line=deadline[0].line if deadline else None,
    )
