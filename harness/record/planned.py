"""Questions and plan of a scenario: in words for its record, and its cells and faults held against
what a run says it ran, skipped or struck.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness import faults
from harness.checks.accounted import accounted
from harness.checks.arrays import compares_arrays
from harness.faults import Fault, of_arm
from harness.faults.proof import PLANNED, STRUCK, UNDONE
from harness.forms.digest import sha256
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import RefusalWord, Skip, SkipCode
from harness.record.arms import missing
from harness.record.facts import RunFacts
from harness.record.farmed import most_at_once
from harness.record.model import Contradiction, FaultSummary, RecordError, ScenarioSummary
from harness.record.skips import contradiction, lacks_machines, unmet
from harness.scenario import CALLED, Cell, End, MustFail, Scenario, SeesDefects, cells
from harness.stats.outcome import EVENTS, Arm, CellFacts, reference_folders, trial_folder


def planned_cells(
    scenario: Scenario, run: RunFacts, names: Collection[str]
) -> list[tuple[Cell, CellFacts]]:
    """Return the cells of a scenario, each with what the run says became of it.

    Raises:
        Contradiction: a cell that was skipped and could run, ran and could not, or ran other trials
            than planned.
        RecordError: other cells than the scenario's, or evidence of a trial that is missing.
    """
    planned = cells(scenario)
    if [cell.id for cell in planned] != [fact.id for fact in run.cells]:
        raise RecordError("the run's cells do not match the scenario's matrix")
    pairs = list(zip(planned, run.cells, strict=True))
    ran = [cell for cell, fact in pairs if fact.skipped is None]
    if not ran and run.server_pids:
        raise Contradiction(
            RefusalWord.SKIP_CONTRADICTED,
            "every cell is skipped, but the run started the fork server",
        )
    for cell, fact in pairs:
        _demand_possible(scenario, run, cell, fact, ran, names)
    return pairs


def demand_strikes(scenario: Scenario, evidence: str, history: History) -> None:
    """Refuse a trial in which the harness names other faults than its scenario states for the arm.

    Raises:
        Contradiction: it says that it planned, struck or took back one that the scenario does not
            state so.
    """
    arm = str(history.about().get("arm"))
    stated = {fault.id: fault for fault in of_arm(scenario.faults, arm)}
    struck = [
        seen
        for rank in range(history.size)
        for name in (STRUCK, UNDONE)
        for seen in history.noted(name, rank)
    ]
    for seen in (*history.noted(PLANNED), *struck):
        named = seen.event.values
        fault = stated.get(str(named.get("fault")))
        wanted: dict[str, JSON] = {"fault": None}
        if fault is not None:
            wanted = {
                "kind": fault.kind,
                "at": fault.event,
                "ranks": list(fault.ranks.of(history.size)),
            }
        odd = [key for key in wanted if key in named and named[key] != wanted[key]]
        if odd:
            what = (
                f"the harness recorded {odd[0]} {named[odd[0]]!r} for a fault, but the scenario"
                " states a different value"
            )
            raise Contradiction(
                RefusalWord.EVENTS_OF_ANOTHER_TRIAL, f"{evidence}, line {seen.line}: {what}"
            )


def _demand_possible(
    scenario: Scenario,
    run: RunFacts,
    cell: Cell,
    fact: CellFacts,
    ran: Sequence[Cell],
    names: Collection[str],
) -> None:
    if fact.skipped is not None:
        if fact.candidate or fact.control:
            raise RecordError(f"cell {cell.id} is skipped, but has trials")
        if not _bears_out(fact.skipped, scenario, run, cell):
            message = (
                f"cell {cell.id} is skipped for a reason that its run does not support:"
                f" {fact.skipped}"
            )
            raise Contradiction(RefusalWord.SKIP_CONTRADICTED, message)
        if why := contradiction(scenario, run, cell, fact.skipped, ran=ran):
            raise Contradiction(
                RefusalWord.SKIP_CONTRADICTED,
                f"cell {cell.id} is skipped ({fact.skipped}), but {why}",
            )
        return
    away = (
        "needs its ranks on several machines, which the run did not have"
        if lacks_machines(cell, run.machines)
        else None
    )
    if reason := unmet(scenario.needs, run.environment) or away:
        raise Contradiction(
            RefusalWord.SKIP_CONTRADICTED, f"cell {cell.id} ran, although its scenario {reason}"
        )
    for arm in missing(scenario, run):
        raise Contradiction(
            RefusalWord.SKIP_CONTRADICTED,
            f"cell {cell.id} ran, but the {arm}'s environment was never created",
        )
    counts: dict[Arm, tuple[int, int]] = {
        "candidate": (fact.candidate, scenario.trials.candidate),
        "control": (fact.control, scenario.trials.control if scenario.subject.control else 0),
    }
    for arm, (count, planned) in counts.items():
        if not planned <= count <= planned + scenario.trials.max_voids * most_at_once(run):
            raise Contradiction(
                RefusalWord.TRIALS_NOT_PLANNED,
                f"cell {cell.id} has {count} {arm} trials, but its scenario plans {planned}",
            )
        for index in range(count):
            if (events := f"{trial_folder(cell.slug, arm, index)}/{EVENTS}") not in names:
                raise RecordError(f"the events of a planned trial are missing: {events}")
    for place in reference_folders(scenario, cell):
        if f"{place}/{EVENTS}" not in names:
            raise RecordError(f"the events of the reference are missing: {place}/{EVENTS}")


def _bears_out(skipped: Skip, scenario: Scenario, run: RunFacts, cell: Cell) -> bool:
    """Return whether a cell of this scenario can have been skipped so: what its machine lacked
    beside is its signer's word.
    """
    program = scenario.subject.program is not None
    match skipped.code:
        case SkipCode.MACHINE_PROGRAM:
            return program or bool(scenario.services)
        case SkipCode.MACHINE_NUMERIC:
            return bool(compares_arrays(scenario.checks) or accounted(scenario.checks))
        case SkipCode.MACHINE_FAULT:
            return bool(scenario.faults)
        case SkipCode.MACHINE_HOSTS:
            of_services = (service.hosts for service in scenario.services.values())
            return max([scenario.world.hosts, *of_services]) > 1
        case SkipCode.CELL_HOSTS:
            return lacks_machines(cell, run.machines)
        case SkipCode.BACKEND_HOSTS:
            return (scenario.world.hosts > 1 or run.machines is not None) and not program
        case SkipCode.MACHINE_INTERPRETER | SkipCode.NETWORK_PACKAGES:
            return bool(missing(scenario, run))
        case SkipCode.CELL_LIMIT:
            return True
        case code if code.depends_on in ("cell", "backend"):
            return not program
        case _:
            return skipped == unmet(scenario.needs, run.environment)


def summary(scenario: Scenario, text: bytes) -> ScenarioSummary:
    """Return what is asked, by the scenario and the bytes of its file."""
    control = scenario.subject.control
    return ScenarioSummary(
        id=scenario.id,
        title=scenario.title,
        question=scenario.question,
        role=scenario.role,
        expects=scenario.expects,
        tags=list(scenario.tags),
        sha256=sha256(text),
        seed=scenario.seed,
        entry=scenario.subject.function,
        use=scenario.subject.use,
        of=scenario.subject.of,
        program=list(scenario.subject.program or ()),
        hosts=scenario.world.hosts,
        placement=_placement(scenario),
        accept_rate=scenario.trials.accept.failure_rate_below,
        accept_confidence=scenario.trials.accept.confidence,
        candidate_trials=scenario.trials.candidate,
        control_trials=scenario.trials.control if control else 0,
        must_fail=_must_fail(scenario) if control else None,
        faults=[
            FaultSummary(
                id=fault.id,
                kind=fault.kind,
                arm=fault.arm,
                description=_description(scenario, fault),
            )
            for fault in scenario.faults
        ],
        called=dict(CALLED) if scenario.subject.compare is not None else {},
    )


def _description(scenario: Scenario, fault: Fault) -> str:
    return faults.description(fault, whose="b" if scenario.subject.compare is not None else "")


def _placement(scenario: Scenario) -> str:
    placed = scenario.world.placement
    if scenario.world.hosts == 1:
        return ""
    return placed if isinstance(placed, str) else f"rank by rank: {', '.join(map(str, placed))}"


def _must_fail(scenario: Scenario) -> str:
    control = scenario.subject.control
    assert control is not None
    stated = control.must_fail
    if isinstance(stated, SeesDefects):
        parts = [
            f"the check {check.id!r} (it allows {check.allows}) fails on {defect.ranks.words}, where"
            f" an element of {defect.what} is {defect.size}"
            for check, defect in stated.pairs
        ]
        return f"in every trial, {'; '.join(parts)}"
    if stated.hang is not None:
        where = "at"
        if stated.hang.function:
            where = "in function"
        elif stated.hang.after:
            where = "after event"
        place = stated.hang.source or stated.hang.function or stated.hang.after
        parts = [
            f"it hangs {where} {place!r} on {stated.ranks.words}",
            *_by_axis(stated),
            f"which is proved within {stated.within:g} s",
        ]
    else:
        parts = [
            " ".join([f"the check {stated.check!r} fails on {stated.ranks.words}", *_end(stated)]),
            *_by_axis(stated),
            *_want(stated),
        ]
    parts += [f"while {also.ranks.words} may end {' '.join(_end(also))}" for also in stated.also]
    return (
        f"{'in every trial' if stated.share.every else f'in {stated.share} of the trials'},"
        f" {', '.join(parts)}"
    )


def _by_axis(stated: MustFail) -> list[str]:
    """On which ranks in cells of other values of an axis, in words."""
    return [
        f"on {ranks.words} where {axis} is {value}"
        for axis, by_value in (stated.ranks_by or {}).items()
        for value, ranks in by_value.items()
    ]


def _want(stated: MustFail) -> list[str]:
    """For want of what it fails, in words; nothing where something is compared."""
    words = {
        "missing": "because they do not report or keep the data that it compares",
        "shape": "because their values have a different shape",
        "nonfinite": "because every differing value is NaN or infinite",
    }
    return [words[stated.want]] if stated.want else []


def _end(stated: End) -> list[str]:
    """How a rank ends, in words."""
    parts = (
        ("with {}", stated.error),
        ("at {!r}", stated.source),
        ("in {}", stated.file),
        ("with a message that contains {!r}", stated.message),
        ("by {}", stated.signal),
        ("with exit code {}", stated.code),
    )
    return [words.format(value) for words, value in parts if value is not None]
