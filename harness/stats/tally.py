"""One arm of a cell counted, which trials of a control that must hang count, and what the counts of
both arms decide.

What the kernel shows for a window of seconds does not tell a hang from every slow wait. So at least
one trial has to stand still for all of `within`, and one that neither came to its end nor was
proved to hang spoils the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

from pydantic import Field

from harness.forms.model import Model
from harness.history import History, longest_silence, window
from harness.reason import Deviation, DeviationCode
from harness.scenario import Cell, Scenario
from harness.stats.outcome import Arm, CellFields, JudgedTrial, Trial, TrialKeeper
from harness.stats.rates import fisher, upper_bound
from harness.stats.shown_trial import HungTrial, hung_trial
from harness.stats.stated import StatedEnd, stated_ends

Word = Literal["PASS", "FAIL", "INCONCLUSIVE", "SKIPPED"]


class Instead(Model):
    """Another way that a control went instead of failing as required, and in how many trials."""

    code: DeviationCode = Field(strict=False)
    text: str
    count: int


class Way(Model):
    """One way in which ranks of a control failed as required, and in how many trials those ranks did.

    Attributes:
        what: type of the error, signal, exit code, `hang`, or the check that does not hold where no
            end was stated.
        where: what joins `place` to it: `at`, `in`, `after`, `saying`; empty without a place.
        place: source line, function, event or message.
        ranks: the ranks, ascending.
        first: index of the first of these trials.
    """

    what: str
    where: str
    place: str
    ranks: list[int]
    first: int
    count: int


class StartCounts(Model):
    """Starts of the services that an arm of a cell keeps.

    Attributes:
        made: all of them.
        counted: starts with a counted trial, or that failed.
        failed: of those, starts that ended by themselves, or in which a trial failed.
        as_stated: of those, starts in which every counted trial failed as required.
        voids: starts that have not failed, and have a void trial.
    """

    made: int
    counted: int
    failed: int
    as_stated: int
    voids: int


@dataclass(frozen=True)
class Starts:
    """Starts of the service that an arm of a cell keeps; of several, of the one started least.

    Attributes:
        of: by trial, the number of the start that it had. Empty where no service is kept.
        ended: starts that ended by themselves, in a trial or between two.
    """

    of: Mapping[int, int]
    ended: Collection[int] = ()


NO_STARTS = Starts({})


class Tally(Model):
    """One arm of a cell, counted.

    Attributes:
        trials: every trial that ran, in order.
        counted: those that are not void.
        failed: counted trials in which a check failed.
        voids: trials that are void.
        upper: upper bound of the failure rate at the scenario's confidence.
        upper_with_voids: the same if every void trial had been a failure.
        as_stated: for a control, counted trials that failed as required.
        how: for a control, how those did, the most frequent way first.
        otherwise: for a control, what the others did instead, by text.
        p_value: for a control, Fisher's one-sided p against the candidate.
        starts: where a cell keeps its services: among how many starts of them the counted trials
            were divided, and in how many of those a trial failed. The bounds and p are then over
            starts, because trials of one start are not independent.
    """

    trials: list[Trial]
    counted: int
    failed: int
    voids: int
    upper: float
    upper_with_voids: float
    as_stated: int | None = None
    how: list[Way] = Field(default_factory=list)
    otherwise: list[Instead] = Field(default_factory=list)
    p_value: float | None = None
    starts: StartCounts | None = Field(None, exclude_if=lambda counts: counts is None)


def tally(scenario: Scenario, trials: list[Trial], starts: Starts = NO_STARTS) -> Tally:
    """Count the trials of an arm."""
    counted = [trial for trial in trials if trial.outcome != "void"]
    failed = sum(trial.outcome == "fail" for trial in counted)
    voids = len(trials) - len(counted)
    by_start = _count_starts(trials, starts) if starts.of else None
    units = len(counted) if by_start is None else by_start.counted
    made = len(trials) if by_start is None else by_start.made
    bad = failed if by_start is None else by_start.failed
    lost = voids if by_start is None else by_start.voids
    confidence = scenario.trials.accept.confidence
    return Tally(
        trials=trials,
        counted=len(counted),
        failed=failed,
        voids=voids,
        upper=upper_bound(bad, units, confidence=confidence),
        upper_with_voids=upper_bound(bad + lost, made, confidence=confidence),
        starts=by_start,
    )


def _count_starts(trials: Sequence[Trial], starts: Starts) -> StartCounts:
    """Count starts by what became of them and of their trials."""
    groups: defaultdict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[starts.of.get(trial.index, -1)].append(trial)
    counted = 0
    failed = 0
    as_stated = 0
    voids = 0
    for start, group in groups.items():
        full = [trial for trial in group if trial.outcome != "void"]
        has_failed = start in starts.ended or any(trial.outcome == "fail" for trial in full)
        counted += bool(full) or has_failed
        failed += has_failed
        as_stated += bool(full) and all(trial.as_stated for trial in full)
        # The bound that counts voids as failures counts each start with one.
        voids += len(full) < len(group) and not has_failed
    return StartCounts(
        made=len(groups), counted=counted, failed=failed, as_stated=as_stated, voids=voids
    )


def tally_control(
    scenario: Scenario,
    trials: list[Trial],
    candidate: Tally,
    ends: Mapping[StatedEnd, Sequence[int]],
    *,
    starts: Starts = NO_STARTS,
    holds: bool = False,
) -> Tally:
    """Count those of the control, as required or not, and hold them against the candidate's.

    Args:
        scenario: what is asked.
        trials: of the control.
        candidate: its counts.
        ends: how ranks of the control failed as required, with the trials in which they did, in
            order.
        starts: of the control's trials.
        holds: whether the control is stated to hold in this cell: then nothing has to set it apart.
    """
    counts = tally(scenario, trials, starts)
    as_stated = sum(bool(trial.as_stated) for trial in trials)
    counted = Counter(trial.otherwise for trial in trials if trial.otherwise is not None)
    otherwise = [
        Instead(code=what.code, text=what.text, count=count)
        for what, count in sorted(counted.items(), key=lambda item: item[0].text)
    ]
    how = [
        Way(
            what=end.what,
            where=end.where,
            place=end.place,
            ranks=list(end.ranks),
            first=of[0],
            count=len(of),
        )
        for end, of in sorted(ends.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    p_value = None if holds else _apart(as_stated, counts, candidate)
    return counts.model_copy(
        update={"as_stated": as_stated, "how": how, "otherwise": otherwise, "p_value": p_value}
    )


def _apart(as_stated: int, control: Tally, candidate: Tally) -> float:
    """Fisher's one-sided p of the control against the candidate, over what is independent."""
    if control.starts is None or candidate.starts is None:
        return fisher(as_stated, control.counted, candidate.failed, candidate.counted)
    ours = candidate.starts
    theirs = control.starts
    return fisher(theirs.as_stated, theirs.counted, ours.failed, ours.counted)


SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Watches(TrialKeeper):
    """How the control's trials of a cell failed as required, and how worlds hung that had to be
    stopped.

    Attributes:
        silence: the longest silence of the candidate's trials that passed, in seconds; 0 where no
            hang is stated.
        ends: by how ranks failed as required, the numbers of those trials.
    """

    def __init__(self, scenario: Scenario, cell: Cell) -> None:
        control = scenario.subject.control
        self._stated = control.must_fail.in_cell(cell.values) if control is not None else None
        self._hang = self._stated.hang if self._stated is not None else None
        self._applies = self._stated is not None and self._stated.applies(cell.values)
        self._within = self._stated.within if self._stated is not None else 0.0
        # Seconds for which each trial stood still that hung as required, by its number.
        self._stood: dict[int, float] = {}
        self._spoiled = ""
        self._hung: dict[Arm, HungTrial] = {}
        self.silence = 0.0
        self.ends: defaultdict[StatedEnd, list[int]] = defaultdict(list)

    def take(self, judged: JudgedTrial) -> None:
        trial = judged.trial
        if self._hang is not None and trial.outcome != "void":
            self._watch(judged.arm, trial, judged.history)
        if judged.arm not in self._hung:
            hung = hung_trial(
                judged.arm,
                judged.history,
                index=trial.index,
                evidence=trial.evidence,
                line_of=judged.line_of,
            )
            if hung is not None:
                self._hung[judged.arm] = hung
        if trial.as_stated and self._stated is not None:
            for end in stated_ends(self._stated, judged.findings, judged.history):
                self.ends[end].append(trial.index)

    def fields(self) -> CellFields:
        return {"hung": self._hung}

    def _watch(self, arm: Arm, trial: Trial, history: History) -> None:
        """Note for how long a world was silent, stood still, or why that is not known."""
        if arm == "candidate":
            if trial.outcome == "pass":
                self.silence = max(self.silence, longest_silence(history))
        elif unproved := history.noted("world.unproved"):
            why = unproved[0].event.values.get("why")
            self._spoil(trial, str(why))
        elif (late := history.noted("world.deadline")) and not history.noted("world.still"):
            self._spoil(
                trial,
                f"it was stopped at its deadline, after {late[0].event.values.get('after')} s",
            )
        elif trial.as_stated and (proved := history.noted("world.still")):
            seconds = proved[0].event.values.get("seconds")
            self._stood[trial.index] = float(seconds) if isinstance(seconds, int | float) else 0.0

    def _spoil(self, trial: Trial, why: str) -> None:
        self._spoiled = (
            self._spoiled or f"trial {trial.index} did not end, but no hang was proved: {why}"
        )

    def judge(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials of the control, in which those no longer failed as required that do not
        count.

        Called once, when all were taken: takes the same trials out of `ends`, and adds to where the
        control stood for how long its trials stood still.

        Args:
            trials: as they were judged one by one.
        """
        if self._hang is None or not self._applies:
            return trials
        if "control" in self._hung and (words := self._words()):
            hung = self._hung["control"]
            proof = f"{hung.proof} In this cell {words}.{self._short()}"
            self._hung["control"] = hung.model_copy(update={"proof": proof})
        why, lacking = self._lacks()
        for end, indices in list(self.ends.items()):
            self.ends[end] = [index for index in indices if index not in lacking]
            if not self.ends[end]:
                del self.ends[end]
        update = {"as_stated": False, "otherwise": Deviation(DeviationCode.HANG_NOT_WATCHED, why)}
        return [
            trial.model_copy(update=update) if trial.index in lacking else trial for trial in trials
        ]

    def _lacks(self) -> tuple[str, Collection[int]]:
        """Why trials that hung as required do not count, and which."""
        if self._spoiled:
            return f"it hung, but {self._spoiled}", self._stood.keys()
        short = [index for index, seconds in self._stood.items() if seconds < self._within]
        spins = self._hang is not None and self._hang.spins
        if len(short) < len(self._stood) and not spins:
            return "", ()
        which = "this trial was not" if spins else "no trial of this cell was"
        return (
            f"it hung, but {which} watched for the whole time limit (within: {self._within:g} s)"
        ), short

    def _short(self) -> str:
        """That `within` is short for the silences of the candidate, which only a run shows.

        Empty where it is not.
        """
        needed = window(self.silence)
        if self._within >= 2 * needed:
            return ""
        return f" A window takes {needed:.1f} s here, so set within to {2 * needed:.0f} s or more."

    def _words(self) -> str:
        """For how long the trials stood still; empty where none did."""
        if not self._stood:
            return ""
        long = [seconds for seconds in self._stood.values() if seconds >= self._within]
        rest = [seconds for seconds in self._stood.values() if seconds < self._within]
        groups = [group for group in (long, rest) if group]
        first, *others = [f"{_seconds(group)}{' each' * (len(group) > 1)}" for group in groups]
        many = len(groups[0])
        verb = "looped" if self._hang is not None and self._hang.spins else "stood still"
        text = f"{_many(many)} trial{'s' * (many > 1)} {verb} for {first}"
        return ", ".join([text, *(f"{_many(len(rest))} for {other}" for other in others)])


def _many(number: int) -> str:
    """Return a small number as a word."""
    return SMALL[number] if number < len(SMALL) else str(number)


def _seconds(stood: Collection[float]) -> str:
    """Return the shortest of some times, to a tenth of a second that none was shorter than."""
    least = Decimal(str(min(stood))).quantize(Decimal("0.1"), rounding=ROUND_FLOOR)
    return f"{least.normalize():f} s"
