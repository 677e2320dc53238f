"""The record of a matrix, worked out from its parts: by whoever made it, and again by whoever
verifies it.

A part is a signed run of its own. Its record is worked out again from its evidence, and every
number here is counted in that: what was injected, proved, seen, and correctly identified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from pydantic import Field

from harness.forms.model import Model
from harness.forms.text import plural
from harness.record.model import Record, RecordError, read_model
from harness.scenario import Scenario
from harness.series.matrix.case import HANG, STRUCK
from harness.series.matrix.facts import PATH as FACTS
from harness.series.matrix.facts import MatrixFacts, MatrixPart, flaw, other_code, unlike
from harness.series.replay import Listed, demand_named, part_record
from harness.series.series import Read, SeriesRecord
from harness.stats.outcome import Trial
from harness.stats.rates import lower_bound
from harness.stats.tally import Word

CONFIDENCE = 0.95
MOST_REASONS = 5
NOT_RUN = " planned but not run"


class Sight(Model):
    """A check that has to see a fault, in one cell: in how many proved trials it failed, and on
    exactly these ranks.
    """

    check: str
    kind: str
    ranks: list[int]
    detected: int = Field(ge=0)
    named: int = Field(ge=0)


class MatrixCell(Model):
    """A case on a backend, counted.

    Attributes:
        injected: trials into which the fault was put.
        proved: those in which the events show that it took effect, on every rank it was for.
        detected: proved trials in which a check failed.
        named: proved trials in which every check that has to see it failed on exactly its ranks,
            and the control as required: by its error, signal, code or place, and nothing else was the
            cause.
        tolerated: proved trials in which every check held; of a masked fault.
        bound: lower bound of the share that was named, or tolerated, of all injected, at 95%
            confidence.
        clean: trials without the fault.
        alarms: clean trials in which a check failed.
        alarmed: which checks did, by id, and how often.
        broken: trials of the broken subject under a masked fault; caught: those that failed as
            stated.
        seconds: that its parts took.
        lacking: what fell short, in words, with its number.
    """

    case: str
    kind: str
    effect: str
    backend: str
    ranks: int
    struck: list[int]
    verdict: Word
    skipped: str = ""
    masked: bool
    injected: int = 0
    proved: int = 0
    detected: int = 0
    named: int = 0
    tolerated: int = 0
    bound: float = 0.0
    clean: int = 0
    alarms: int = 0
    alarmed: dict[str, int] = Field(default_factory=dict)
    broken: int = 0
    caught: int = 0
    sights: list[Sight] = Field(default_factory=list)
    seconds: float = 0.0
    parts: list[str]
    lacking: list[str] = Field(default_factory=list)

    @property
    def right(self) -> int:
        """Trials of the fault that came out as they have to."""
        return self.tolerated if self.masked else self.named


class MatrixRecord(SeriesRecord):
    """The record of a matrix: `results.json`."""

    format: Literal[1]
    facts: MatrixFacts
    verdict: Word
    cells: list[MatrixCell]


def assemble(read: Read, names: Collection[str]) -> MatrixRecord:
    """Work out the record.

    Args:
        read: gives the bytes of a file by its path in the folder of the matrix.
        names: the paths there are.

    Raises:
        RecordError: a part that is missing, unreadable, not as planned, or whose verdicts do not
            follow from its evidence.
        harness.trust.replay.CannotJudge: a part that this version cannot judge.
        harness.trust.verification.Refused: a part whose evidence contradicts itself.
    """
    facts = read_model(MatrixFacts, read(FACTS), name=FACTS)
    demand_named(facts)
    if why := flaw(facts):
        raise RecordError(why)
    planned = {part.path for part in facts.parts}
    if more := sorted(set(names) - planned - {FACTS}):
        raise RecordError(f"{more[0]} is not a part of this matrix")
    if lost := sorted(planned - set(names)):
        raise RecordError(f"a part is missing: {lost[0]}")
    cells = [
        _cell([(part, _part_record(part, read, facts)) for part in parts])
        for parts in facts.cells().values()
    ]
    return MatrixRecord(format=facts.format, facts=facts, verdict=_merged(cells), cells=cells)


def _part_record(part: MatrixPart, read: Read, facts: MatrixFacts) -> Record:
    def other(scenario: Scenario, listed: Listed) -> str:
        if why := unlike(part, scenario):
            return f"the matrix and its scenario disagree: {why}"
        return other_code(scenario, listed, facts)

    return part_record(part, read(part.path), facts=facts, unlike=other)


def _cell(parts: Sequence[tuple[MatrixPart, Record]]) -> MatrixCell:
    """Count one case on one backend."""
    struck: list[Trial] = []
    clean: list[Trial] = []
    broken: list[Trial] = []
    skipped = ""
    for part, record in parts:
        (judged,) = record.judgement.cells
        if judged.candidate is None or judged.control is None:
            # The only fault of a case: its id says nothing.
            skipped = "; ".join(
                str(reason).removeprefix(f"fault {STRUCK}: ") for reason in judged.reasons
            )
            continue
        (struck if part.masked else clean).extend(judged.candidate.trials)
        (broken if part.masked else struck).extend(judged.control.trials)
    seconds = round(sum(record.run.seconds for _, record in parts), 1)
    cell = counted([part for part, _ in parts], struck=struck, clean=clean, broken=broken)
    verdict: Word = "SKIPPED" if skipped and not struck else cell.verdict
    return cell.model_copy(update={"verdict": verdict, "skipped": skipped, "seconds": seconds})


def counted(
    parts: Sequence[MatrixPart],
    *,
    struck: Sequence[Trial],
    clean: Sequence[Trial],
    broken: Sequence[Trial],
) -> MatrixCell:
    """Count the trials of one cell.

    Args:
        parts: of the cell; all ask the same.
        struck: the trials of the fault in which it has to be seen, or borne.
        clean: those that have to pass: without the fault, or without the defect that shows under
            it.
        broken: those of a subject that is broken on purpose, under a masked fault.
    """
    first = parts[0]
    planned = sum(part.trials for part in parts)
    proved = [
        trial
        for trial in struck
        if trial.strikes and all(strike.proved for strike in trial.strikes)
    ]
    alarms = [trial for trial in clean if trial.outcome != "pass"]
    right = [trial for trial in proved if _is_right(first, trial)]
    unmade = max(planned - len(struck), 0 if first.masked else planned - len(clean))
    cell = MatrixCell(
        case=first.case,
        kind=first.kind,
        effect=first.effect,
        backend=first.backend,
        ranks=first.ranks,
        struck=first.struck,
        verdict="INCONCLUSIVE",
        masked=first.masked,
        injected=len(struck),
        proved=len(proved),
        detected=sum(trial.outcome == "fail" for trial in proved),
        named=0 if first.masked else len(right),
        tolerated=len(right) if first.masked else 0,
        bound=(
            round(lower_bound(len(right), len(struck), confidence=CONFIDENCE), 6) if struck else 0.0
        ),
        clean=len(clean),
        alarms=len(alarms),
        alarmed=dict(sorted(Counter(name for trial in alarms for name in _failed(trial)).items())),
        broken=len(broken),
        caught=sum(trial.as_stated is True for trial in broken),
        sights=[_sight(first, name, proved) for name in first.sees],
        parts=[part.path for part in parts],
        lacking=_lacking(first, struck, alarms, broken, unmade=unmade),
    )
    verdict = _verdict(cell)
    return cell.model_copy(
        update={"verdict": "INCONCLUSIVE" if unmade and verdict == "PASS" else verdict}
    )


def _is_right(part: MatrixPart, trial: Trial) -> bool:
    """Return whether a proved trial came out as it has to."""
    if part.masked:
        return trial.outcome == "pass"
    return trial.as_stated is True and all(_names(part, name, trial) for name in part.sees)


def _names(part: MatrixPart, name: str, trial: Trial) -> bool:
    """Return whether a check failed on exactly the ranks that it must.

    A hang by the control that failed as required.
    """
    if name == HANG:
        return trial.as_stated is True
    says = part.says.get(name, "")
    return any(
        failure.check == name
        and failure.ranks == part.sees[name]
        and (not says or any(says in reason for reason in failure.reasons))
        for failure in trial.failures
    )


def _sight(part: MatrixPart, name: str, proved: Sequence[Trial]) -> Sight:
    seen = [trial for trial in proved if name == HANG or name in _failed(trial)]
    if name == HANG:
        seen = [trial for trial in seen if trial.as_stated is True]
    return Sight(
        check=name,
        kind=HANG if name == HANG else part.checks[name],
        ranks=part.sees[name],
        detected=len(seen),
        named=sum(_names(part, name, trial) for trial in seen),
    )


def _failed(trial: Trial) -> list[str]:
    return [failure.check for failure in trial.failures] or ["void"]


def _lacking(
    part: MatrixPart,
    struck: Sequence[Trial],
    alarms: Sequence[Trial],
    broken: Sequence[Trial],
    *,
    unmade: int,
) -> list[str]:
    """Return what fell short, in words, the most frequent first."""
    reasons: Counter[str] = Counter({NOT_RUN: unmade} if unmade and struck else {})
    for trial in struck:
        lost = next((strike for strike in trial.strikes if not strike.proved), None)
        if lost is not None or not trial.strikes:
            reasons[
                ", the fault was not proved:"
                f" {lost.description if lost is not None else 'it did not strike'}"
            ] += 1
        elif not _is_right(part, trial):
            reasons[f", {_short(part, trial)}"] += 1
    for trial in alarms:
        reasons[f" without {'the defect' if trial.strikes else 'a fault'}: {_what(trial)}"] += 1
    for trial in broken:
        if trial.as_stated is not True:
            what = (
                f", a deliberately broken subject was not detected: {trial.otherwise or trial.void}"
            )
            reasons[what] += 1
    by_count = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        f"{'' if what == NOT_RUN else 'in '}{plural(count, 'trial')}{what}"
        for what, count in by_count[:MOST_REASONS]
    ]


def _short(part: MatrixPart, trial: Trial) -> str:
    if part.masked:
        return f"the fault was not tolerated: {_what(trial)}"
    if trial.otherwise is not None:
        return str(trial.otherwise)
    name = next((name for name in part.sees if not _names(part, name, trial)), "")
    failed = next((failure.ranks for failure in trial.failures if failure.check == name), None)
    if failed == part.sees.get(name):
        return f"check {name} failed, but its message does not contain {part.says.get(name)!r}"
    how = "passed" if failed is None else f"failed on ranks {failed}"
    asked = part.sees.get(name)
    return f"check {name} {how}, not on ranks {asked}" if asked else f"check {name} {how}"


def _what(trial: Trial) -> str:
    if trial.void is not None:
        return str(trial.void)
    return "; ".join(
        f"{failure.check}: {failure.reasons[0]}"
        for failure in trial.failures[:1]
        if failure.reasons
    )


def _verdict(cell: MatrixCell) -> Word:
    """FAIL where a proved fault came out wrong or a clean trial failed; INCONCLUSIVE where too
    little was proved.
    """
    if cell.right < cell.proved or cell.alarms:
        return "FAIL"
    shown = cell.caught == cell.broken and (cell.broken > 0 or not cell.masked)
    return "PASS" if cell.injected and cell.proved == cell.injected and shown else "INCONCLUSIVE"


def _merged(cells: Sequence[MatrixCell]) -> Word:
    words = {cell.verdict for cell in cells}
    order: tuple[Word, ...] = ("FAIL", "INCONCLUSIVE", "PASS")
    return next((word for word in order if word in words), "INCONCLUSIVE")
