"""Whether the trials of a run are its own, and as many as its scenario plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from harness.events import Event, EventError, parse_lines
from harness.record.contradiction import Contradiction, Word
from harness.record.facts import RunFacts
from harness.record.model import RecordError
from harness.record.recipe import KEY as RECIPE
from harness.record.unknown import Unknown
from harness.scenario import Scenario
from harness.stats.outcome import Arm
from harness.stats.verdict import CellFiles, Judgement


def demand_own(
    scenario: Scenario,
    run: RunFacts,
    planned: Sequence[CellFiles],
    recipes: Mapping[str, str],
    read: Callable[[str], bytes],
) -> None:
    """The first line of every trial says of which run, cell, arm and place it is, and what it is made of.

    Raises:
        Contradiction: it says another.
        Unknown: it does not say what it is made of.
        RecordError: it is not a first line.
    """
    begun: dict[int, str] = {}
    for cell in planned:
        for arm in get_args(Arm):
            for file in cell.candidate if arm == "candidate" else cell.control:
                begin = _first_event(read(file.evidence), file.evidence)
                if RECIPE not in begin.values:
                    raise Unknown(f"{file.evidence} does not say what its trial is made of: another version made it")
                spellings = {
                    "scenario": scenario.id,
                    "cell": cell.cell.id,
                    "arm": arm,
                    "trial": file.index,
                    "seed": file.seed,
                    "start": run.start,
                    "host": run.environment.host,
                    RECIPE: recipes[arm],
                    "size": cell.cell.ranks,
                    "backend": cell.cell.backend,
                    "harness_pid": run.harness_pid,
                    "program": True if scenario.subject.program is not None else None,
                }
                for key, value in spellings.items():
                    if (found := begin.values.get(key)) != value:
                        message = f"{file.evidence} is of another trial: its {key} is {found!r}, not {value!r}"
                        raise Contradiction(Word.TRIAL, message)
                if begin.ns in begun:
                    raise Contradiction(Word.SHARED, f"{file.evidence} is a copy of {begun[begin.ns]}")
                begun[begin.ns] = file.evidence


def demand_planned(scenario: Scenario, judgement: Judgement) -> None:
    """A void trial is replaced, as often as the scenario allows, and no other trial is made twice.

    Raises:
        Contradiction: there are more trials, or fewer.
    """
    for cell in judgement.cells:
        for arm, planned, tally in (
            ("candidate", scenario.trials.candidate, cell.candidate),
            ("control", scenario.trials.control, cell.control),
        ):
            if tally and len(tally.trials) != planned + min(tally.voids, scenario.trials.max_voids):
                made = f"{len(tally.trials)} {arm} trials, {tally.voids} of them void"
                raise Contradiction(Word.PLAN, f"cell {cell.id} has {made}, and its scenario plans {planned}")


def _first_event(text: bytes, name: str) -> Event:
    try:
        event = parse_lines(text.partition(b"\n")[0] + b"\n")[0]
    except EventError as error:
        raise RecordError(f"{name}: {error}") from None
    if (event.by, event.name) != ("harness", "world.begin"):
        raise RecordError(f"{name} does not begin with its world")
    return event
