"""One trial shown rank by rank: what every check saw, in a hung one where each rank stood, call by
call, and on test hosts what passed between these and what was done to it.

All that is said of wires is as the wire and the process that forked the ranks say. What they say in
another form is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, TypeGuard

from pydantic import Field

from harness.checks import Finding
from harness.checks.finding import RankFinding
from harness.events import Event
from harness.faults.link import COUNTED, STRUCK, UNDONE
from harness.forms.model import Model
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_COMPARED, LEDGERS_COMPARED, History, Seen, ended
from harness.ledger.outside import account as ledger
from harness.stats.ends import shown
from harness.stats.hang import LineOf, text_of, threads_at
from harness.stats.outcome import Trial, with_value

EXCERPT_LINES = 12
EXCERPT_LIMIT = 2_000
VALUE_LIMIT = 300
# On the first screen of a report, where nothing is cut.
WORST_LIMIT = 1_000
FRAMES_SHOWN = 12
STEPS_SHOWN = 40
# What the harness notes where it stopped a world that had not ended by itself.
HUNG = ("world.deadline", "world.still", "world.unproved")


class ShownCell(Model):
    """View of one check on one rank, and the line of the trial's events that shows it."""

    rank: int
    passed: bool
    shown: str
    line: int | None = None


class ShownRow(Model):
    """One check over the ranks it asked."""

    check: str
    kind: str
    passed: bool
    cells: list[ShownCell]
    reason: str = ""
    line: int | None = None


class Excerpt(Model):
    """Last lines a rank printed, as it printed them."""

    rank: int
    path: str
    text: str


class Step(Model):
    """Event in the life of some ranks: its name, who says so, and when it first and last came, in
    ms.
    """

    name: str
    by: str
    first_ms: float
    last_ms: float


class Lifeline(Model):
    """Ranks with the same events in the same order; `more` of them are left out, and so `ended` all
    of these ranks.

    Without ranks it is what is told of the world as a whole.
    """

    ranks: list[int]
    steps: list[Step]
    more: int
    ended: str


class WorstFinding(Model):
    """What a check saw over all trials of the candidate: the failure that came first, or else the
    finding that used most of what the check allows, or else the first.

    Attributes:
        check: the check's id.
        index: number of the trial.
        evidence: path of its events.
        ranks: the ranks that showed the same in that trial; none where the finding is about the
            world as a whole.
        shown: what they showed.
        passed: whether the check held.
        share: of what the check allows; None where it has no such scale.
        is_value: whether the check is about a value that ranks report.
        line: line of the events that shows it.
    """

    check: str
    index: int
    evidence: str
    ranks: list[int]
    shown: str
    passed: bool
    share: float | None = None
    is_value: bool = False
    line: int | None = None


def worst_finding(trial: Trial, finding: Finding, *, is_value: bool) -> WorstFinding:
    """Make the worst finding of a check in one trial."""
    found = WorstFinding(
        check=finding.check,
        index=trial.index,
        evidence=trial.evidence,
        ranks=[],
        shown=finding.reason,
        passed=finding.passed,
        is_value=is_value,
        line=finding.line,
    )
    parts = [part for part in finding.ranks if part.passed == finding.passed]
    if not parts or finding.reason:
        return found
    worst = max(parts, key=lambda part: -1.0 if part.share is None else part.share)
    text = _observed(worst, WORST_LIMIT)
    alike = [part.rank for part in parts if _observed(part, WORST_LIMIT) == text]
    is_finite = worst.share is not None and math.isfinite(worst.share)
    share = worst.share if is_finite else None
    changes = {"ranks": alike, "shown": text, "share": share, "line": worst.line}
    return found.model_copy(update=changes)


class ShownTrial(Model):
    """One trial: which it is, what every check saw, what its ranks did, and the end of what failed
    ranks printed.

    `values` are shown without a check; `compared` names the checks of whose arrays there is a
    picture; `wires` is there where ranks were on test hosts.
    """

    index: int
    evidence: str
    outcome: Literal["pass", "fail", "void"]
    rows: list[ShownRow]
    printed: list[Excerpt]
    life: list[Lifeline] = Field(default_factory=list)
    values: list[ShownRow] = Field(default_factory=list)
    compared: list[str] = Field(default_factory=list)
    wires: Wires | None = None


def make(
    trial: Trial,
    findings: Sequence[Finding],
    history: History,
    *,
    values: Sequence[str],
    read: Callable[[str], bytes],
    names: Collection[str],
) -> ShownTrial:
    """Make the sample of a trial from its findings and its logs."""
    failed = sorted({rank for failure in trial.failures for rank in failure.ranks})
    printed = []
    for rank in failed:
        path = log_path(trial.evidence, rank)
        if path in names:
            printed.append(Excerpt(rank=rank, path=path, text=_tail(read(path))))
    return ShownTrial(
        index=trial.index,
        evidence=trial.evidence,
        outcome=trial.outcome,
        rows=[_row(finding) for finding in findings],
        printed=printed,
        life=lifelines(history),
        values=[_shown_value(name, history) for name in values],
        compared=list(distances(history)),
        wires=wires(history),
    )


def _shown_value(name: str, history: History) -> ShownRow:
    """Return what each rank reported, all of it where it did so several times."""
    event, _, key = name.rpartition(".")
    cells = []
    for rank in range(history.size):
        reports = history.values(rank, event, key)
        texts = [value for value, _ in reports]
        text = "not reported"
        line = None
        if reports:
            text = shown(texts[0] if len(texts) == 1 else texts)
            line = reports[0][1]
        cells.append(ShownCell(rank=rank, passed=True, shown=text, line=line))
    return ShownRow(check=name, kind="show", passed=True, cells=cells)


def distances(history: History) -> dict[str, dict[int, list[float | None]]]:
    """By check of arrays and by rank, how far apart they are along the first axis.

    Of those that differ somewhere.
    """
    by_check: dict[str, dict[int, list[float | None]]] = {}
    for rank in range(history.size):
        for seen in history.noted(ARTEFACT_COMPARED, rank):
            comparison = seen.event.values.get("comparison")
            excess = comparison.get("excess") if isinstance(comparison, dict) else None
            if isinstance(excess, list) and len(excess) > 1 and any(value != 0 for value in excess):
                by_check.setdefault(str(seen.event.values.get("check")), {})[rank] = excess
    return by_check


def lifelines(history: History) -> list[Lifeline]:
    """Return what became of each rank of a trial, event by event.

    Ranks that went the same way are told together.
    """
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], dict[int | None, list[Event]]] = {}
    for rank in (*range(history.size), None):
        events = [seen.event for seen in history.seen if seen.event.rank == rank]
        how = ""
        if rank is not None:
            end = history.exit(rank)
            how = "its exit was not observed" if end is None else ended(end.event.values)
        alike.setdefault((how, tuple((event.by, event.name) for event in events)), {})[rank] = (
            events
        )

    def ms(ns: int) -> float:
        return round((ns - history.start_ns()) / 1e6, 1)

    lines = []
    for (how, path), of_ranks in alike.items():
        moments = zip(
            *([event.ns for event in events] for events in of_ranks.values()), strict=True
        )
        steps = [
            Step(name=name, by=by, first_ms=ms(min(times)), last_ms=ms(max(times)))
            for (by, name), times in zip(path, moments, strict=True)
        ]
        more = max(0, len(steps) - STEPS_SHOWN)
        ranks = [rank for rank in of_ranks if rank is not None]
        lines.append(Lifeline(ranks=ranks, steps=steps[:STEPS_SHOWN], more=more, ended=how))
    return lines


def log_path(evidence: str, rank: int) -> str:
    """Where a rank's log lies, beside the trial's events."""
    return f"{evidence.rpartition('/')[0]}/rank-{rank}.log"


def _observed(part: RankFinding, limit: int = VALUE_LIMIT) -> str:
    """What a rank showed; of one that failed, why, with what was found where the reason lacks
    it.
    """
    if part.observed is None:
        return part.reason
    text = shown(part.observed, limit)
    if part.passed:
        return part.reason or text
    return with_value(part.reason, text)


def _row(finding: Finding) -> ShownRow:
    cells = [
        ShownCell(rank=part.rank, passed=part.passed, shown=_observed(part), line=part.line)
        for part in finding.ranks
    ]
    return ShownRow(
        check=finding.check,
        kind=finding.kind,
        passed=finding.passed,
        cells=cells,
        reason=finding.reason,
        line=finding.line,
    )


def _tail(log: bytes) -> str:
    lines = log.decode("utf-8", "backslashreplace").splitlines()
    return "\n".join(lines[-EXCERPT_LINES:])[-EXCERPT_LIMIT:]


class Standing(Model):
    """One rank: the line of the event that shows it, and its calls, innermost first, one text each.

    Where its collective calls are observed, the first text is the one that had not ended.
    """

    rank: int
    line: int
    calls: list[str]


class HungTrial(Model):
    """First trial of an arm whose world had to be stopped: where each of its ranks stood, and how
    that was proved.

    `proof` says for how long nothing moved, or why that is not proved; it is empty where no hang
    was to be proved.
    """

    arm: Literal["candidate", "control"]
    index: int
    evidence: str
    proof: str
    line: int | None
    ranks: list[Standing]


def hung_trial(
    arm: Literal["candidate", "control"],
    history: History,
    *,
    index: int,
    evidence: str,
    line_of: LineOf,
) -> HungTrial | None:
    """Where the ranks of a trial stood, or None where the trial ended by itself."""
    if not any(history.noted(name) for name in HUNG):
        return None
    proof = ""
    line = None
    if proved := history.noted("world.still"):
        values = proved[0].event.values
        verb = "was silent" if values.get("spins") is True else "stood still"
        if values.get("spins") is True and values.get("busy"):
            verb = "looped, busy for 90% of the time or more and within the same lines,"
        proof = f"The world {verb} for {values.get('seconds')} s."
        line = proved[0].line
    if unproved := history.noted("world.unproved"):
        proof = f"The hang is not proved: {unproved[0].event.values.get('why')}."
        line = unproved[0].line
    ranks = [
        standing
        for rank in range(history.size)
        if (standing := _standing(history, rank, line_of)) is not None
    ]
    return HungTrial(arm=arm, index=index, evidence=evidence, proof=proof, line=line, ranks=ranks)


def _standing(history: History, rank: int, line_of: LineOf) -> Standing | None:
    seen = next(
        (
            stack
            for stack in history.noted("rank.stack", rank)
            if stack.event.values.get("sample") == 1
        ),
        None,
    )
    if seen is None:
        return None
    calls: list[str] = []
    for number, thread in enumerate(threads_at(history, rank, 1)):
        calls += [f"thread {number}:"] if number else []
        for frame in thread[:FRAMES_SHOWN]:
            text = text_of(frame, line_of) if frame.get("subject") is True else None
            calls.append(
                f"{frame.get('file')}:{frame.get('line')} in {frame.get('function')}"
                + (f": {text}" if text else "")
            )
    for noted in history.noted(LEDGERS_COMPARED):
        if place := ledger.standing(noted.event.values, rank):
            calls.insert(0, f"by its ledger {place}")
    return Standing(rank=rank, line=seen.line, calls=calls) if calls else None


TEXT_LIMIT = 60


def without_payload(history: History) -> Seen | None:
    """Return the first count of a fault on a wire that does not say how many packets carried new
    payload; None without one.
    """
    for seen in history.seen:
        values = seen.event.values
        if seen.event.name in (COUNTED, UNDONE) and "struck" in values and "payload" not in values:
            return seen
    return None


class ShownHost(Model):
    """Test host: what it is called, its address, and the ranks on it."""

    name: str
    address: str
    ranks: list[int]


class ShownLink(Model):
    """Traffic from one host to another: packets, bytes, and packets that the other one's kernel did
    not take.
    """

    source: int
    target: int
    packets: int
    bytes: int
    lost: int


class ShownStrike(Model):
    """Fault in force on some links, each a source and a target, and how many of the packets there
    it was done to.

    Times are in ms since the trial began; `to_ms` is null where it lasted until the wire was asked
    for its counts.
    """

    fault: str
    rank: int
    links: list[list[int]]
    from_ms: float
    to_ms: float | None
    matched: int
    struck: int
    line: int


class Wires(Model):
    """Hosts, every link on which something was sent, and every strike; `line` is the one that tells
    the links.
    """

    hosts: list[ShownHost]
    links: list[ShownLink]
    strikes: list[ShownStrike]
    line: int | None


def wires(history: History) -> Wires | None:
    """Return what the events tell of them; None of a trial without test hosts."""
    events = history.served(None, "hosts.made")
    placed = history.about().get("hosts")
    listed = events[0].event.values.get("hosts") if events else None
    if not isinstance(listed, list) or not isinstance(placed, list):
        return None
    hosts = [
        ShownHost(
            name=_text(host, "name"),
            address=_text(host, "address"),
            ranks=[
                rank
                for rank, at in enumerate(placed[: history.size])
                if type(at) is int and at == number
            ],
        )
        for number, host in enumerate(listed)
    ]
    carried = history.served(None, "wire.carried")
    counts = carried[0].event.values.get("links") if carried else None
    links = [
        ShownLink(
            source=ends[0],
            target=ends[1],
            **{key: _count(count, key) for key in ("packets", "bytes", "lost")},
        )
        for count in (counts if isinstance(counts, list) else ())
        if isinstance(count, dict)
        and _is_link(ends := [count.get("source"), count.get("target")], len(hosts))
    ]
    strikes = [
        shown
        for rank in range(history.size)
        for seen in history.served(rank, STRUCK)
        if (shown := _strike(history, rank, seen, count=len(hosts))) is not None
    ]
    strikes.sort(key=lambda strike: strike.line)
    return Wires(
        hosts=hosts, links=links, strikes=strikes, line=carried[0].line if carried else None
    )


def _strike(history: History, rank: int, seen: Seen, *, count: int) -> ShownStrike | None:
    values = seen.event.values
    named = values.get("links")
    fault = values.get("fault")
    links = [link for link in (named if isinstance(named, list) else ()) if _is_link(link, count)]
    if not links or not isinstance(fault, str):
        return None

    def after(name: str) -> Seen | None:
        events = (
            later
            for later in history.served(rank, name)
            if later.event.values.get("fault") == fault
        )
        return next((later for later in events if later.line > seen.line), None)

    undone = after(UNDONE)
    counted = undone or after(COUNTED)
    numbers: Mapping[str, JSON] = counted.event.values if counted is not None else {}

    def ms(ns: int) -> float:
        return round((ns - history.start_ns()) / 1e6, 1)

    return ShownStrike(
        fault=fault[:TEXT_LIMIT],
        rank=rank,
        links=links,
        from_ms=ms(seen.event.ns),
        to_ms=ms(undone.event.ns) if undone is not None else None,
        matched=_count(numbers, "matched"),
        struck=_count(numbers, "struck"),
        line=seen.line,
    )


def _is_link(value: object, count: int) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) != 2:
        return False
    # A bool is an int to Python, and no number of a host.
    is_known = all(type(end) is int and 0 <= end < count for end in value)
    return is_known and value[0] != value[1]


def _text(values: object, key: str) -> str:
    return str(values.get(key))[:TEXT_LIMIT] if isinstance(values, dict) else ""


def _count(values: Mapping[str, JSON], key: str) -> int:
    value = values.get(key)
    return value if type(value) is int and value >= 0 else 0
