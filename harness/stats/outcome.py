"""One trial judged: pass, fail or void, and for a control whether it failed as stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.checks import Finding, History, RankFinding, judge_trial
from harness.checks.exit import ended
from harness.checks.finding import canonical
from harness.events import JSON
from harness.faults import Proved, prove
from harness.faults.proof import STRUCK, noted
from harness.scenario import MustFail, Scenario, faults_of

Arm = Literal["candidate", "control"]
TEXT_LIMIT = 300
# What a control's evidence must hold whatever it failed at.
UNTRUSTED = ("world:ranks-are-processes", "world:channel-is-whole")
# Checks of something that ranks report.
VALUED = frozenset({"equal", "agree", "within"})


class Frozen(BaseModel):
    """A value of the record: closed, and not changed once made."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Moment(Frozen):
    """One rank failing: when (milliseconds after the trial began), and how."""

    rank: int | None
    ms: float
    what: str
    line: int | None = None


class Failure(Frozen):
    """A check that does not hold: on which ranks, and why."""

    check: str
    ranks: list[int]
    reasons: list[str]
    line: int | None = None


class Strike(Frozen):
    """One fault on one rank: whether it struck, was taken back, is proved, and the lines of the events that show it."""

    fault: str
    rank: int
    struck: bool
    undone: bool
    proved: bool
    told: str
    lines: list[int]


class Trial(Frozen):
    """What became of one trial.

    Attributes:
        index: number of the trial within its arm, from 0.
        seed: the trial's 64-bit seed, as text, because JSON numbers do not hold 64 bits.
        evidence: path of its `events.jsonl`.
        ms: how long it took, in milliseconds, from the request to the last word of its keeper.
        outcome: pass, fail, or void (not counted).
        void: why it is void.
        failures: the checks that do not hold.
        first: the failure that came first; the `consequences` followed it.
        as_stated: for a control, whether it failed as `must_fail` says.
        otherwise: for a control that did not, what it did instead.
        strikes: every fault of the scenario on every rank it is for.
    """

    index: int
    seed: str
    evidence: str
    ms: float
    outcome: Literal["pass", "fail", "void"]
    void: str = ""
    failures: list[Failure] = Field(default_factory=list)
    first: Moment | None = None
    consequences: list[Moment] = Field(default_factory=list)
    as_stated: bool | None = None
    otherwise: str = ""
    strikes: list[Strike] = Field(default_factory=list)


def judge(
    scenario: Scenario,
    arm: Arm,
    *,
    index: int,
    seed: str,
    evidence: str,
    history: History,
) -> tuple[Trial, list[Finding]]:
    """Judge one trial from its events: first its faults, then its checks, then what that makes of it.

    The run that made the trial calls this too, to know whether it is void and has to be replaced.
    """
    proved = prove(faults_of(scenario.faults, arm), history)
    ended = {found.rank: found.fault for found in proved if found.proof.proved and found.proof.ends}
    findings = judge_trial(scenario, history, ended_by_fault=ended)
    failed = [finding for finding in findings if not finding.passed]
    common: dict[str, Any] = {
        "index": index,
        "seed": seed,
        "evidence": evidence,
        "ms": _duration(history),
        "strikes": [_strike(found) for found in proved],
    }
    if void := void_reason(history) or unproved(arm, proved, failed=bool(failed)):
        return Trial(**common, outcome="void", void=void), findings
    moments = moments_of(history, ended_by_fault=ended)
    as_stated, otherwise = None, ""
    must_fail = scenario.subject.control.must_fail if scenario.subject.control else None
    if arm == "control" and must_fail is not None:
        otherwise = deviation(must_fail, findings, history)
        as_stated = not otherwise
    trial = Trial(
        **common,
        outcome="fail" if failed else "pass",
        failures=[_failure(finding) for finding in failed],
        first=moments[0] if failed and moments else None,
        consequences=moments[1:] if failed else [],
        as_stated=as_stated,
        otherwise=otherwise,
    )
    return trial, findings


def unproved(arm: Arm, proved: Sequence[Proved], *, failed: bool) -> str:
    """Why a trial does not count for want of a fault's proof; empty where it counts (docs/adr/0008).

    A void must never take the place of a failure. So a candidate's trial in which a check failed is a failure, proof or
    no proof. A control's trial counts without the proof only where it had failed before the fault struck or was over.
    """
    missing = [found for found in proved if not found.proof.proved]
    if arm == "candidate" and failed:
        return ""
    if arm == "control" and failed:
        missing = [found for found in missing if not found.proof.overtaken]
    if not missing:
        return ""
    first = missing[0]
    return _short(f"fault {first.fault} on rank {first.rank} has no proof: {first.proof.told}")


def _strike(found: Proved) -> Strike:
    return Strike(
        fault=found.fault,
        rank=found.rank,
        struck=found.struck,
        undone=found.undone,
        proved=found.proof.proved,
        told=_short(found.proof.told),
        lines=list(found.proof.lines),
    )


def void_reason(history: History) -> str:
    """Why a trial does not count, whatever its faults: an error of the harness itself. Empty where there was none.

    Only until a rank has begun: ranks run as the same user, and one that could void its own failure by killing its
    keeper would be tried again until it passes. After that such an error is a failure of the trial.
    """
    if any(history.said(rank, "rank.begin") or history.executed(rank) for rank in range(history.size)):
        return ""
    return harness_error(history)


def harness_error(history: History) -> str:
    """What went wrong in the harness, or empty."""
    if not (broken := history.noted("harness.error")):
        return "" if history.noted("world.end") else "its events have no end"
    values = broken[0].event.values
    return _short(f"{values.get('type')}: {values.get('message')}")


def _duration(history: History) -> float:
    return round((history.seen[-1].event.ns - history.start_ns()) / 1e6, 3) if history.seen else 0.0


def deviation(must_fail: MustFail, findings: Sequence[Finding], history: History) -> str:
    """How a control trial differs from what it must do; empty where it failed exactly as stated.

    The check must fail on exactly the ranks stated, each with the error type and source line stated. What other checks
    and other ranks did is a consequence, except a world that had to be stopped at its deadline: a hang is another
    failure.
    """
    finding = next(found for found in findings if found.check == must_fail.check)
    wanted = must_fail.ranks.of(history.size)
    if finding.passed:
        others = [found.check for found in findings if not found.passed]
        return f"check {must_fail.check} held on every rank" + (
            f"; {', '.join(others)} failed instead" if others else ""
        )
    if history.noted("world.deadline"):
        return "it ran into the deadline"
    if lost := harness_error(history):
        return f"the harness failed while its ranks ran: {lost}"
    for found in findings:
        if found.check in UNTRUSTED and not found.passed:
            return f"its evidence is not whole: {found.check} does not hold"
    if finding.failed_ranks != wanted:
        return f"check {must_fail.check} failed on {_ranks(finding.failed_ranks)} instead of {_ranks(wanted)}"
    if silent := _raised_instead(must_fail, finding, history):
        return silent
    for rank in wanted:
        error = history.error(rank)
        values = error.event.values if error else {}
        # A control that cannot even be loaded fails every check. Only the stated error at the stated line of the arm's
        # own code shows that this is the bug and not a typing mistake.
        told = must_fail.error is not None and must_fail.source is not None
        if not told and not history.began(rank):
            return f"rank {rank} never began its subject: {_what(history, rank)}"
        if not told and _called_in_vain(history, rank):
            return f"rank {rank} never came to a line of its subject: {_what(history, rank)}"
        if must_fail.error is not None and values.get("type") != must_fail.error:
            return f"rank {rank} did not raise {must_fail.error}: {_what(history, rank)}"
        if must_fail.source is not None and values.get("source") != must_fail.source:
            return f"rank {rank} did not fail at {must_fail.source!r}: {_what(history, rank)}"
    return ""


def _raised_instead(must_fail: MustFail, finding: Finding, history: History) -> str:
    """Why a wrong value was stated and none was seen: a rank ended before it, by an error that is not stated.

    Any slip in the control does that. One rank that reported a wrong value is enough: others may have fallen with it.
    """
    if must_fail.error is not None or must_fail.source is not None or finding.kind not in VALUED:
        return ""
    failed = [found for found in finding.ranks if not found.passed]
    if any(found.observed is not None or (found.line is not None and finding.kind != "within") for found in failed):
        return ""
    for found in failed:
        end = history.exit(found.rank)
        if history.error(found.rank) is not None or (end is not None and end.event.values.get("code") != 0):
            how = _what(history, found.rank)
            return f"rank {found.rank} ended before it reported a value, and must_fail names no error: {how}"
    return ""


def _called_in_vain(history: History, rank: int) -> bool:
    """Whether calling the entry failed: an argument it does not take, say. No frame of the error is the arm's own then.

    A rank that returned, and failed while it left its group, had run its subject; of programs we see no frames.
    """
    error = history.error(rank)
    if error is None or history.is_of_programs or history.returned(rank) is not None:
        return False
    values = error.event.values
    return "frames" in values and bool(values["frames"]) and values.get("file") is None


def moments_of(history: History, *, ended_by_fault: Mapping[int, str] | None = None) -> list[Moment]:
    """When each rank failed, by the monotonic clock: the first is the cause, the rest may follow from it.

    A rank that a fault ended failed when it was struck: that it is dead is seen later, often after its peers noticed.
    """
    begin = history.start_ns()
    faults = ended_by_fault or {}
    found: list[tuple[int, Moment]] = []
    stopped = {rank for seen in history.noted("world.stopped") for rank in seen.event.values.get("ranks", ())}
    for rank in range(history.size):
        seen = history.error(rank)
        end = history.exit(rank)
        if seen is None and end is not None and rank not in stopped:
            values = end.event.values
            if values.get("code") != 0 or history.returned(rank) is None:
                seen = end
        if seen is not None:
            ns, what = seen.event.ns, _what(history, rank)
            if rank in faults:
                struck = noted(history, STRUCK, fault=faults[rank], rank=rank)
                if struck is not None and seen is end:
                    ns = struck.event.ns
                how = ended(end.event.values) if end else what
                what = _short(f"ended by fault {faults[rank]}: {how}")
            found.append((ns, Moment(rank=rank, ms=round((ns - begin) / 1e6, 3), what=what, line=seen.line)))
    for seen in history.noted("world.deadline"):
        ms = round((seen.event.ns - begin) / 1e6, 3)
        what = f"deadline: {_ranks(tuple(seen.event.values.get('ranks', ())))} still ran"
        found.append((seen.event.ns, Moment(rank=None, ms=ms, what=what, line=seen.line)))
    return [moment for _, moment in sorted(found, key=lambda item: item[0])]


def _what(history: History, rank: int) -> str:
    if (error := history.error(rank)) is not None:
        values = error.event.values
        message = f": {values['message']}" if values.get("message") else ""
        place = f" at {values['source']!r}" if values.get("source") else ""
        return _short(f"{values.get('type')}{_missed(history, rank)}{message}{place}")
    if (end := history.exit(rank)) is not None:
        how = ended(end.event.values)
        if end.event.values.get("signal") == "SIGKILL" and not history.noted("world.stopped"):
            how += ", sent by nobody here (the kernel, out of memory, or another process)"
        return how if history.is_of_programs or history.returned(rank) else f"{how} before the subject returned"
    return "its end was not seen"


def _missed(history: History, rank: int) -> str:
    """That the user's own cache has the model that a rank did not find, and what to do."""
    if not (found := history.noted("cache.missed", rank)):
        return ""
    values = found[0].event.values
    models = values.get("models")
    named = ", ".join(map(str, models)) if isinstance(models, list) else ""
    home = ", or set world.home: shared" if values.get("in_home") else ""
    return f" ({named}: only in the user's own cache, name it under inputs{home})"


def _failure(finding: Finding) -> Failure:
    parts = [found for found in finding.ranks if not found.passed]
    reasons = [finding.reason] if finding.reason else []
    reasons += [f"rank {found.rank}: {_told(found)}" for found in parts]
    line = finding.line or next((found.line for found in parts if found.line), None)
    return Failure(check=finding.check, ranks=[found.rank for found in parts], reasons=reasons, line=line)


def _told(found: RankFinding) -> str:
    return _short(found.reason + (f" (found {shown(found.observed)})" if found.observed is not None else ""))


def shown(value: JSON) -> str:
    """A value of an event as a reader wants it: text as it is, names and values in words, the rest as JSON."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, dict) and all(isinstance(inner, str | int | float) for inner in value.values()):
        return _short(", ".join(f"{key} {inner}" for key, inner in value.items()))
    return _short(canonical(value))


def _ranks(ranks: Sequence[int]) -> str:
    if not ranks:
        return "no rank"
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _short(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + f"... ({len(text) - TEXT_LIMIT} more characters)"
