"""One trial judged: pass, fail or void, and for a control whether it failed as required; and where
the evidence of a cell's trials is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from harness.checks import Finding, RankFinding, judge_trial
from harness.checks.finding import canonical
from harness.checks.served import ServedCheck, trouble
from harness.faults import Proved, of_arm, prove
from harness.faults.proof import STRUCK, noted
from harness.forms.model import Model
from harness.forms.text import numbered
from harness.history import (
    SERVICE_READY,
    SERVICE_UNREADY,
    FaultOnRank,
    History,
    about_service,
    ended,
    machine_of,
)
from harness.reason import Deviation, DeviationCode, Skip, VerdictReason, Void, VoidCode
from harness.scenario import (
    Cell,
    MustFail,
    Scenario,
    derive_seed,
    processes_of,
    reference_of,
)
from harness.stats.ends import harness_error, how_it_ended, short, shown
from harness.stats.hang import LineOf
from harness.stats.stated import deviation

Arm = Literal["candidate", "control"]
EVENTS = "events.jsonl"
LOST = "lost"
"""What the first line of a trial says whose node did not stay: control wrote its events."""
NODE_LOST = "NodeLost"
"""How the error is called that says that the node itself is gone."""


class Moment(Model):
    """One rank failing: when (milliseconds after the trial began), and how."""

    rank: int | None
    ms: float
    what: str
    line: int | None = None


class Failure(Model):
    """Check that does not hold: on which ranks, and why."""

    check: str
    ranks: list[int]
    reasons: list[str]
    line: int | None = None


class Strike(Model):
    """One fault on one rank: whether it struck, was taken back, is proved, and the lines of the
    events that show it. Of a `service` the rank is the number of its process.
    """

    fault: str
    rank: int
    service: str | None = Field(None, exclude_if=lambda service: service is None)
    struck: bool
    undone: bool
    proved: bool
    description: str
    lines: list[int]


class Trial(Model):
    """One trial, judged.

    Attributes:
        index: number of the trial within its arm, from 0.
        seed: the trial's 64-bit seed, as text, because JSON numbers do not hold 64 bits.
        evidence: path of its `events.jsonl`.
        ms: how long it took, in milliseconds, from the request to the last word of its keeper.
        outcome: pass, fail, or void (not counted).
        void: why it is void; None where it counts.
        failures: the checks that do not hold.
        first: the failure that came first; the `consequences` followed it.
        as_stated: for a control, whether it failed as `must_fail` says.
        otherwise: for a control that did not, what it did instead; None for one that did.
        strikes: every fault of the scenario on every rank it is for.
        apart: whether its failures are on several machines: which of these was first, nobody knows.
        node: the node that it was made on, or was to be; None for a trial that was not farmed.
    """

    index: int
    seed: str
    evidence: str
    ms: float
    outcome: Literal["pass", "fail", "void"]
    void: Void | None = None
    failures: list[Failure] = Field(default_factory=list)
    first: Moment | None = None
    consequences: list[Moment] = Field(default_factory=list)
    as_stated: bool | None = None
    otherwise: Deviation | None = None
    strikes: list[Strike] = Field(default_factory=list)
    node: int | None = None
    apart: bool = False


class CellFacts(Model):
    """How many trials of a cell there are, or why there are none."""

    id: str
    skipped: Skip | None
    candidate: Annotated[int, Field(ge=0)]
    control: Annotated[int, Field(ge=0)]

    @property
    def trials(self) -> Mapping[Arm, int]:
        """How many there are, by arm."""
        return {"candidate": self.candidate, "control": self.control}


def trial_folder(slug: str, arm: str, index: int) -> str:
    """Where a trial's evidence lies, by the slug of its cell."""
    return f"evidence/{slug}/{arm}-{index:05d}"


def service_folder(slug: str, arm: str, service: str, start: int) -> str:
    """Where the evidence of a start of a service lies that an arm of a cell keeps."""
    return f"evidence/{slug}/{arm}-{service}-{start:05d}"


def service_events(folder: str, service: str) -> str:
    """Return the path of a service's events in the folder of a trial, or of its start."""
    return f"{folder}/{service}.jsonl"


REFERENCES = 2
"""So often the reference runs: one that gives two answers is not one."""


def reference_folders(scenario: Scenario, cell: Cell) -> tuple[str, ...]:
    """Where the evidence of the runs of a cell's reference lies; empty without a reference."""
    plan = reference_of(scenario, cell)
    if plan is None:
        return ()
    return tuple(trial_folder(plan.place, "reference", index) for index in range(REFERENCES))


def read_history(
    scenario: Scenario,
    cell: Cell,
    arm: Arm,
    index: int,
    *,
    read: Callable[[str], bytes],
    reference: History | None,
) -> History:
    """Read the events of a trial and of the services that it had for itself.

    Raises:
        EventError: a file of events cannot be read.
    """
    folder = trial_folder(cell.slug, arm, index)
    history = History.read(read(f"{folder}/{EVENTS}"), size=cell.ranks, reference=reference)
    services: dict[str, History] = {}
    for name, service in scenario.services_of(arm).items():
        place = folder
        if service.keep == "cell":
            start = start_of(history, name)
            if start is None:
                continue
            place = service_folder(cell.slug, arm, name, start)
        text = read(service_events(place, name))
        services[name] = History.read(text, size=processes_of(service, cell))
    return history.with_services(services)


def start_of(history: History, service: str) -> int | None:
    """Return which start of a service a trial had, by what the harness noted."""
    for name in (SERVICE_READY, SERVICE_UNREADY):
        for seen in about_service(history, name, service):
            start = seen.event.values.get("start")
            if type(start) is int and start >= 0:
                return start
    return None


def no_lines(_file: str, _line: int) -> str | None:
    """Who judges without the arm's files knows no line of them."""
    return None


# Seven arguments: a trial is named by three, and whoever makes one has neither of the last two.
def judge(
    scenario: Scenario,
    cell: Cell,
    arm: Arm,
    index: int,
    history: History,
    *,
    silence: float = 0.0,
    line_of: LineOf = no_lines,
) -> tuple[Trial, list[Finding]]:
    """Judge one trial from its events: first its faults, then its checks, then what that makes of
    it.

    The run that made the trial calls this too, to know whether it is void and has to be replaced.

    Args:
        scenario: what is asked.
        cell: one of its cells; only its names count here.
        arm: which of its arms ran.
        index: number of the trial within the arm.
        history: its events.
        silence: the longest silence of the cell's candidate trials that passed, in seconds; a hang
            is judged by it.
        line_of: the text of a line of the arm's files, without indentation.
    """
    proved = prove(of_arm(scenario.faults, arm), history)
    of_ranks = [strike for strike in proved if strike.service is None]
    enders = [strike for strike in of_ranks if strike.proof.proved and strike.proof.ends]
    ended = {rank: strike.fault for strike in enders for rank in strike.proof.beside}
    ended |= {strike.rank: strike.fault for strike in enders}
    struck = [_as_asked(strike, history) for strike in of_ranks]
    struck += [
        _as_asked(strike, history)._replace(rank=rank)
        for strike in enders
        for rank in strike.proof.beside
    ]
    history = _with_service_faults(history, proved).with_faults(struck)
    findings = judge_trial(scenario.checks, history, ended_by_fault=ended)
    failed = [finding for finding in findings if not finding.passed]
    common: dict[str, Any] = {
        "index": index,
        "seed": str(derive_seed(scenario.seed, scenario.id, cell.id, index)),
        "evidence": f"{trial_folder(cell.slug, arm, index)}/{EVENTS}",
        "ms": _duration(history),
        "node": node if type(node := history.about().get("node")) is int else None,
        "strikes": [_strike(strike) for strike in proved],
    }
    if void := void_reason(history) or unproved(arm, proved, failed=bool(failed)):
        return Trial(**common, outcome="void", void=void), findings
    moments = moments_of(history, ended_by_fault=ended)
    as_stated: bool | None = None
    otherwise: Deviation | None = None
    must_fail = scenario.subject.control.must_fail if scenario.subject.control else None
    if arm == "control" and must_fail is not None:
        must_fail = must_fail.in_cell(cell.values)
        if must_fail.applies(cell.values):
            otherwise = _service_deviation(scenario, must_fail, history) or deviation(
                must_fail, findings, history, faults=ended, silence=silence, line_of=line_of
            )
        elif failed:
            what = (
                f"check {failed[0].check} failed in a cell where must_fail.cells requires the"
                " control to pass"
            )
            otherwise = Deviation(DeviationCode.FAILED_ELSEWHERE, what)
        as_stated = otherwise is None
    trial = Trial(
        **common,
        outcome="fail" if failed else "pass",
        failures=[_failure(finding) for finding in failed],
        first=moments[0] if failed and moments else None,
        consequences=moments[1:] if failed else [],
        apart=failed != []
        and len({machine_of(history, moment.rank) for moment in moments if moment.rank is not None})
        > 1,
        as_stated=as_stated,
        otherwise=otherwise,
    )
    return trial, findings


def _service_deviation(
    scenario: Scenario, must_fail: MustFail, history: History
) -> Deviation | None:
    """Say which service a control's trial had not: whatever fails then, fails for want of it.

    None where it is stated that the control fails so.
    """
    stated = next((check for check in scenario.checks if check.id == must_fail.check), None)
    if isinstance(stated, ServedCheck):
        return None
    for name in scenario.services:
        if (found := trouble(history, name)) is not None:
            return Deviation(DeviationCode.UNSTATED_END, found[0])
    return None


def unproved(arm: Arm, proved: Sequence[Proved], *, failed: bool) -> Void | None:
    """Why a trial does not count for want of a fault's proof; None where it counts (docs/adr/0008).

    A void must never take the place of a failure. So a candidate's trial in which a check failed is
    a failure, proof or no proof. A control's trial counts without the proof only where it had
    failed before the fault struck or was over.
    """
    missing = [strike for strike in proved if not strike.proof.proved]
    if arm == "candidate" and failed:
        return None
    if arm == "control" and failed:
        missing = [strike for strike in missing if not strike.proof.overtaken]
    if not missing:
        return None
    first = missing[0]
    whom = struck_in_words(first.rank, first.service)
    reason = short(f"fault {first.fault} on {whom} has no proof: {first.proof.description}")
    return Void(VoidCode.FAULT_NOT_PROVED, reason)


def _with_service_faults(history: History, proved: Sequence[Proved]) -> History:
    """Return the history with what is proved of the faults on its services' processes."""
    services = {
        name: served.with_faults(
            [_as_asked(strike, served) for strike in proved if strike.service == name]
        )
        for name, served in history.services.items()
    }
    return history.with_services(services) if services else history


def struck_in_words(rank: int, service: str | None) -> str:
    """Name what a fault struck: a rank, or a process of a service."""
    return f"rank {rank}" if service is None else f"process {rank} of {service}"


def _as_asked(proved: Proved, history: History) -> FaultOnRank:
    return FaultOnRank(
        fault=proved.fault,
        rank=proved.rank,
        struck=noted(history, STRUCK, fault=proved.fault, rank=proved.rank),
        proved=proved.proof.proved,
        ends=proved.proof.proved and proved.proof.ends,
    )


def _strike(proved: Proved) -> Strike:
    # Lines are of the trial's events; a service has its own.
    return Strike(
        fault=proved.fault,
        rank=proved.rank,
        service=proved.service,
        struck=proved.struck,
        undone=proved.undone,
        proved=proved.proof.proved,
        description=short(proved.proof.description),
        lines=list(proved.proof.lines) if proved.service is None else [],
    )


def void_reason(history: History) -> Void | None:
    """Why a trial does not count, whatever its faults: an error of the harness itself.

    None where there was none.

    Only until a rank has begun: ranks run as the same user, and one that could void its own failure
    by killing its keeper would be tried again until it passes. After that such an error is a
    failure of the trial. Of a node that did not stay nothing is known of its ranks: it is void
    where the node itself was lost, never where only our process there ended (docs/adr/0098).
    """
    if any(
        history.said(rank, "rank.begin") or history.executed(rank) for rank in range(history.size)
    ):
        return None
    error = harness_error(history)
    if error is None or not history.about().get(LOST):
        return error
    kinds = {seen.event.values.get("type") for seen in history.noted("harness.error")}
    return Void(VoidCode.NODE_LOST, error.text) if kinds == {NODE_LOST} else None


def _duration(history: History) -> float:
    return round((history.seen[-1].event.ns - history.start_ns()) / 1e6, 3) if history.seen else 0.0


def moments_of(
    history: History, *, ended_by_fault: Mapping[int, str] | None = None
) -> list[Moment]:
    """When each rank failed, by the monotonic clock: the first is the cause, the rest may follow
    from it.

    A rank that a fault ended failed when it was struck: that it is dead is seen later, often after
    its peers noticed.
    """
    begin = history.start_ns()
    faults = ended_by_fault or {}
    moments: list[tuple[int, Moment]] = []
    stopped = {
        rank
        for seen in history.noted("world.stopped")
        for rank in seen.event.values.get("ranks", ())
    }
    for rank in range(history.size):
        seen = history.error(rank)
        end = history.exit(rank)
        if seen is None and end is not None and rank not in stopped:
            values = end.event.values
            if values.get("code") != 0 or history.returned(rank) is None:
                seen = end
        if seen is not None:
            ns = seen.event.ns
            what = how_it_ended(history, rank)
            if rank in faults:
                struck = noted(history, STRUCK, fault=faults[rank], rank=rank)
                if struck is not None and seen is end:
                    ns = struck.event.ns
                how = ended(end.event.values) if end else what
                what = short(f"ended by fault {faults[rank]}: {how}")
            moments.append(
                (ns, Moment(rank=rank, ms=round((ns - begin) / 1e6, 3), what=what, line=seen.line))
            )
    for seen in history.noted("world.deadline"):
        ms = round((seen.event.ns - begin) / 1e6, 3)
        what = (
            f"deadline: {numbered('rank', tuple(seen.event.values.get('ranks', ())))} still running"
        )
        moments.append((seen.event.ns, Moment(rank=None, ms=ms, what=what, line=seen.line)))
    return [moment for _, moment in sorted(moments, key=lambda item: item[0])]


def _failure(finding: Finding) -> Failure:
    failed = [part for part in finding.ranks if not part.passed]
    reasons = [finding.reason] if finding.reason else []
    reasons += [f"rank {part.rank}: {_reason(part)}" for part in failed]
    line = finding.line or next((part.line for part in failed if part.line), None)
    return Failure(
        check=finding.check, ranks=[part.rank for part in failed], reasons=reasons, line=line
    )


def _reason(part: RankFinding) -> str:
    observed = "" if part.observed is None else shown(part.observed)
    # A comparison of arrays is both: what was found, and the reason.
    return short(with_value(part.reason, observed))


def with_value(reason: str, value: str) -> str:
    """Return a reason with the value that was found, unless it ends with that value."""
    if states(reason, value):
        return reason
    return f"{reason} ({'value:' if ', found ' in reason else 'found'} {value})"


def states(reason: str, value: str) -> bool:
    """Return whether a reason ends with a value: bare, in quotes, or as JSON."""
    return reason.endswith((value, f'"{value}"', canonical(value)))


@dataclass(frozen=True, kw_only=True)
class JudgedTrial:
    """One trial of a cell with its judgement.

    Attributes:
        cell: whose trial it is.
        arm: that ran.
        trial: how it ended.
        findings: of each check of the scenario.
        history: its events.
        line_of: the text of a line of the arm's files.
    """

    cell: Cell
    arm: Arm
    trial: Trial
    findings: Sequence[Finding]
    history: History
    line_of: LineOf


CellFields = Mapping[str, object]
"""What is filled in of a `CellVerdict`, by the name of the field; the model checks the values."""


class TrialKeeper(Protocol):
    """Base of what keeps something over all trials of one cell; what it leaves out does nothing."""

    def take(self, judged: JudgedTrial) -> None:
        """Take one trial: those of the candidate in order, then those of the control."""
        raise NotImplementedError

    def reasons(self) -> Iterator[VerdictReason]:
        """Yield why the cell cannot be PASS, when all trials were taken."""
        yield from ()

    def fields(self) -> CellFields:
        """Return what it fills in of a `CellVerdict`."""
        return {}
