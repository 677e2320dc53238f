"""`rankproof run --try`: what one trial of each arm says, rank by rank."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from harness.checks import Finding
from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE
from harness.cli.arguments import tell
from harness.cli.progress import Spoken
from harness.events import Event
from harness.forms.text import plural, visible
from harness.history import (
    ARTEFACT_COMPARED,
    ARTEFACT_FOUND,
    ARTEFACT_KEPT,
    ENVIRONMENT_TOLD,
    FAULT_IN_CALL,
    Seen,
    ended,
)
from harness.report.words import ranks_in_words
from harness.run.run import Interrupted, RunError, Slip
from harness.run.tried import NoSuchCell, TriedArm, TriedArtefact, TriedCell, attempt
from harness.scenario import LoadedScenario, Scenario, ScenarioError
from harness.stats.ends import shown
from harness.stats.outcome import with_value

VALUES_LIMIT = 160
LINE_LIMIT = 300
LINES_MOST = 60
WIDE = 22
DIGEST = 12
# A page: of both arms at most 40 lines of 80 columns or a little more.
FAILED_SHOWN = 4
RANKS_SHOWN = 4
PRINTED_SHOWN = 3
# What the runtime says of every rank; the rest are events of the subject.
RUNTIME = frozenset(
    {
        "rank.begin", "rank.error", "backend.ready", "subject.loaded", "subject.begin",
        "subject.end", ENVIRONMENT_TOLD, FAULT_IN_CALL, ARTEFACT_KEPT,
    }
)  # fmt: skip
# What the lines of checks and of artefacts tell.
LISTED = (ARTEFACT_FOUND, ARTEFACT_COMPARED)


def main(
    scenarios: Sequence[LoadedScenario], *, cell: str | None, jobs: int, whole: bool = False
) -> int:
    """Try each scenario; 0 where every candidate passed and every control failed as required.

    Args:
        scenarios: to be tried.
        cell: id of the cell; None takes the first in which the control must fail.
        jobs: worlds at the same time, of the run whose time is estimated.
        whole: print every event, check, log and array, and not a page of it.
    """
    codes = set()
    for loaded in scenarios:
        print(f"{loaded.scenario.id}: {loaded.scenario.title}", flush=True)
        try:
            tried = attempt(loaded, cell=cell, jobs=jobs, progress=Spoken(sys.stderr))
        except Slip as error:
            tell(ScenarioError(error.problems))
            codes.add(USAGE)
            continue
        except RunError as error:
            print(f"rankproof run --try: {loaded.scenario.id}: {error}", file=sys.stderr)
            if isinstance(error, Interrupted):
                return INCONCLUSIVE
            codes.add(USAGE if isinstance(error, NoSuchCell) else INCONCLUSIVE)
            continue
        for line in lines(loaded.scenario, tried, whole=whole):
            print(f"  {line}")
        sys.stdout.flush()
        codes.add(exit_code(tried))
    return next((code for code in (USAGE, FAIL, INCONCLUSIVE) if code in codes), PASS)


def exit_code(tried: TriedCell) -> int:
    """PASS, FAIL or INCONCLUSIVE of these two trials.

    It is not a verdict: one trial says nothing about the next.
    """
    by_arm = {arm.arm: arm.trial for arm in tried.arms}
    candidate = by_arm.get("candidate")
    control = by_arm.get("control")
    if candidate is not None and candidate.outcome == "fail":
        return FAIL
    if (
        candidate is None
        or candidate.outcome == "void"
        or (control is not None and not control.as_stated)
    ):
        return INCONCLUSIVE
    return PASS


def lines(scenario: Scenario, tried: TriedCell, *, whole: bool) -> Iterator[str]:
    """Yield what is printed: a page, or all of it."""
    for cell, why in tried.skipped.items():
        yield f"{cell}: SKIPPED: {visible(why, LINE_LIMIT)}"
    if tried.cell is None:
        yield "nothing was tried"
        return
    yield f"tried once in {tried.cell.id}; nothing is kept or signed"
    if tried.reference is not None:
        size = "one" if scenario.subject.compare is None else str(tried.cell.ranks)
        yield f"{scenario.subject.called('reference')}: ran twice, in a world of {size}"
        if whole:
            yield from _kept(
                "it" if scenario.subject.compare is None else "its rank 0", tried.reference
            )
    for arm in tried.arms:
        yield from _arm(scenario, arm) if whole else _arm_in_short(scenario, arm)
    counts = [str(scenario.trials.candidate)]
    counts += [str(scenario.trials.control)] if scenario.subject.control is not None else []
    trials = (
        f"{' + '.join(counts)} trials in {plural(tried.cells, 'cell')},"
        f" {plural(tried.jobs, 'world')} at a time"
    )
    yield f"a run would take about {_duration(tried.seconds)} at this speed: {trials}"
    if not whole:
        yield "--all prints every event, check, log and array of these trials"


def _arm(scenario: Scenario, arm: TriedArm) -> Iterator[str]:
    yield f"{scenario.subject.called(arm.arm)}: {_outcome(scenario, arm)}, in {arm.seconds:.2f} s"
    for finding in arm.findings:
        yield from _finding(finding)
    begin = arm.history.start_ns()
    of_world = [seen for seen in arm.history.seen if seen.event.rank is None]
    yield from _events("world", of_world, begin)
    for rank in range(arm.history.size):
        of_rank = [
            seen
            for seen in arm.history.seen
            if seen.event.rank == rank and seen.event.name not in LISTED
        ]
        yield from _events(f"rank {rank}", of_rank, begin)
        yield from _kept(f"rank {rank}", arm.kept.get(rank, ()))
        for what, texts in (("printed", arm.logs), ("was here when it was stopped", arm.stacks)):
            if rank in texts:
                yield f"  rank {rank} {what}:"
                yield from (f"    | {line}" for line in _cut(texts[rank]))


def _arm_in_short(scenario: Scenario, arm: TriedArm) -> Iterator[str]:
    """Yield at most 15 lines: the checks that fail, and how ranks ended that show most."""
    yield f"{scenario.subject.called(arm.arm)}: {_outcome(scenario, arm)}, in {arm.seconds:.2f} s"
    failed = [finding for finding in arm.findings if not finding.passed]
    for finding in failed[:FAILED_SHOWN]:
        yield next(_finding(finding))
    if len(failed) > FAILED_SHOWN:
        yield f"  and {plural(len(failed) - FAILED_SHOWN, 'more check')} failed"
    held = [finding.check for finding in arm.findings if finding.passed]
    named = [check for check in held if not check.startswith("world:")]
    own = f"{', '.join(named)}; and " if named else ""
    yield f"  passed: {visible(own, LINE_LIMIT)}{len(held) - len(named)} of the harness's own checks"
    yield from _ranks_in_short(arm)


def _ranks_in_short(arm: TriedArm) -> Iterator[str]:
    """Yield how ranks ended, those that said the same together, and what the first printed last."""
    errors = {rank: arm.history.error(rank) for rank in range(arm.history.size)}
    alike: dict[str, list[int]] = {}
    for rank, error in errors.items():
        events = (seen.event for seen in arm.history.seen if seen.event.rank == rank)
        names = [event.name for event in events if event.by == "rank" and event.name not in RUNTIME]
        end = f"; raised {_values(error.event)}" if error is not None else ""
        alike.setdefault(f"{', '.join(names) or 'no event from the subject'}{end}", []).append(rank)
    for told, ranks in list(alike.items())[:RANKS_SHOWN]:
        yield f"  {ranks_in_words(ranks)}: {visible(told, LINE_LIMIT)}"
    if more := sum(map(len, list(alike.values())[RANKS_SHOWN:])):
        yield f"  and {plural(more, 'more rank')}"
    # Who failed first tells most; where nobody failed, the first rank that printed anything.
    first = arm.trial.first.rank if arm.trial.first is not None else None
    raised = {rank: error.event.ns for rank, error in errors.items() if error is not None}
    order = sorted(
        errors, key=lambda rank: (rank != first, rank not in raised, raised.get(rank, 0), rank)
    )
    printed = next((rank for rank in order if arm.logs.get(rank)), None)
    if printed is not None:
        last = arm.logs[printed].decode("utf-8", "backslashreplace").splitlines()[-PRINTED_SHOWN:]
        yield f"  last output of rank {printed}:"
        yield from (f"    | {visible(line, LINE_LIMIT)}" for line in last)


def _kept(who: str, kept: Sequence[TriedArtefact]) -> Iterator[str]:
    """Yield a line for each artefact; ranks that kept the same show the same digest."""
    if kept:
        yield f"  {who} kept:"
    for artefact in kept:
        values = artefact.values
        if "artefact" not in values:
            what = f"{values['file'] or 'this entry'} is not an artefact: {values['why']}"
            yield f"    {visible(what, LINE_LIMIT)}"
            continue
        what = (
            f"{values['dtype']} {shown(values['shape'])}"
            if "dtype" in values
            else plural(values["bytes"], "byte")
        )
        digest = str(values["sha256"])[:DIGEST]
        yield (
            f"    {values['artefact']:<{WIDE}}  {what}, sha256 {digest}...:"
            f" {visible(artefact.summary, VALUES_LIMIT)}"
        )


def _outcome(scenario: Scenario, arm: TriedArm) -> str:
    trial = arm.trial
    if trial.outcome == "void":
        return f"void (would not count): {visible(str(trial.void), LINE_LIMIT)}"
    if arm.arm == "candidate":
        return "passed" if trial.outcome == "pass" else "FAILED"
    if trial.as_stated and arm.history.noted("world.still"):
        return (
            "hung as required, judged by a window without progress (a run also watches one trial"
            " for the whole of `within`)"
        )
    if trial.as_stated:
        return (
            "failed as required" if trial.outcome == "fail" else "passed, as required for this cell"
        )
    control = scenario.subject.control
    often = (
        ""
        if control is None or control.must_fail.share.every
        else f" (required: in {control.must_fail.share})"
    )
    return f"did NOT fail as required{often}: {visible(str(trial.otherwise), LINE_LIMIT)}"


def _events(who: str, seen: Iterable[Seen], begin: int) -> Iterator[str]:
    yield f"  {who}:"
    for item in seen:
        values = visible(_values(item.event), VALUES_LIMIT)
        yield (
            f"    {(item.event.ns - begin) / 1e9:8.3f} s  {item.event.name:<{WIDE}} "
            f" {values}".rstrip()
        )


def _values(event: Event) -> str:
    """Return what an event says; of what the runtime says of every rank, the part that tells
    something.
    """
    values = event.values
    if event.name == "rank.error":
        message = f": {values['message']}" if values.get("message") else ""
        return f"{values.get('type')}{message}" + (
            f" at {values['source']!r}" if values.get("source") else ""
        )
    if event.name == "rank.exited":
        return ended(dict(values))
    if event.name == ARTEFACT_KEPT:
        return str(values.get("artefact"))
    if event.name == "subject.loaded":
        modules = values.get("modules")
        return (
            f"{values.get('entry')},"
            f" {plural(len(modules) if isinstance(modules, list) else 0, 'module')} of the arm"
        )
    return "" if event.name == "world.begin" or not values else shown(dict(values))


def _finding(finding: Finding) -> Iterator[str]:
    failed = [part for part in finding.ranks if not part.passed]
    if finding.passed:
        values = [
            f"rank {part.rank}: {shown(part.observed)}"
            for part in finding.ranks
            if part.observed is not None
        ]
        observed = visible("; ".join(values), VALUES_LIMIT)
        yield f"  holds  {finding.check:<{WIDE}}  {observed}".rstrip()
        return
    reasons = [finding.reason] if finding.reason else []
    reasons += [
        f"rank {part.rank}:"
        f" {part.reason if part.observed is None else with_value(part.reason, shown(part.observed))}"
        for part in failed
    ]
    yield f"  FAILS  {finding.check:<{WIDE}}  {visible(reasons[0], LINE_LIMIT)}".rstrip()
    yield from (f"         {'':<{WIDE}}  {visible(reason, LINE_LIMIT)}" for reason in reasons[1:])


def _cut(text: bytes) -> list[str]:
    """Lines of a text, of a long one both ends."""
    shown_lines = [
        visible(line, LINE_LIMIT) for line in text.decode("utf-8", "backslashreplace").splitlines()
    ]
    half = LINES_MOST // 2
    more = len(shown_lines) - LINES_MOST
    return (
        shown_lines
        if more <= 0
        else [*shown_lines[:half], f"... ({more} more lines)", *shown_lines[-half:]]
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
