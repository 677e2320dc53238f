"""The trials of one cell whose control must hang: how long its candidate was silent, and for how
long they stood still.

What the kernel shows for a window of seconds does not tell a hang from every slow wait. So at least
one trial has to stand still for all of `within`, and one that neither came to its end nor was
proved to hang spoils the others.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from decimal import ROUND_FLOOR, Decimal

from harness.history import History, longest_silence, window
from harness.reason import Deviation, DeviationCode
from harness.scenario import Cell, Scenario
from harness.stats.outcome import Arm, Trial
from harness.stats.shown_trial import HungTrial
from harness.stats.stated import StatedEnd

SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Watches:
    """Takes the judged trials of a cell.

    Attributes:
        silence: the longest silence of the candidate's trials that passed, in seconds; 0 where no
            hang is stated.
    """

    def __init__(self, scenario: Scenario, cell: Cell) -> None:
        control = scenario.subject.control
        stated = control.must_fail if control is not None else None
        self._hang = stated.hang if stated is not None else None
        self._is_asked = (
            stated is not None and self._hang is not None and stated.applies(cell.values)
        )
        self._within = stated.within if stated is not None else 0.0
        # Seconds for which each trial stood still that hung as stated, by its number.
        self._stood: dict[int, float] = {}
        self._spoiled = ""
        self.silence = 0.0

    def take(self, arm: Arm, trial: Trial, history: History) -> None:
        """Take a trial, the candidate's before those of the control; a void one tells nothing."""
        if self._hang is None or trial.outcome == "void":
            return
        if arm == "candidate":
            self.silence = (
                max(self.silence, longest_silence(history))
                if trial.outcome == "pass"
                else self.silence
            )
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
            self._spoiled or f"trial {trial.index} did not end and was not proved to hang: {why}"
        )

    def judge(
        self,
        trials: list[Trial],
        ends: MutableMapping[StatedEnd, list[int]],
        hung: MutableMapping[Arm, HungTrial],
    ) -> list[Trial]:
        """Return the trials of the control, of which those did not fail as stated that do not
        count.

        Called once.

        Args:
            trials: as they were judged one by one.
            ends: by how ranks failed as stated, the numbers of those trials; what does not count is
                taken out.
            hung: where ranks stood; what is said of the control's gets for how long its trials
                stood still.
        """
        if not self._is_asked:
            return trials
        if "control" in hung and (words := self._words()):
            proof = f"{hung['control'].proof} In this cell {words}.{self._short()}"
            hung["control"] = hung["control"].model_copy(update={"proof": proof})
        why, lacking = self._lacks()
        for end, of in list(ends.items()):
            ends[end] = [index for index in of if index not in lacking]
            if not ends[end]:
                del ends[end]
        update = {"as_stated": False, "otherwise": Deviation(DeviationCode.HANG_NOT_WATCHED, why)}
        return [one.model_copy(update=update) if one.index in lacking else one for one in trials]

    def _lacks(self) -> tuple[str, Collection[int]]:
        """Why trials that hung as stated do not count, and which."""
        if self._spoiled:
            return f"it hung, but {self._spoiled}", self._stood.keys()
        short = [index for index, seconds in self._stood.items() if seconds < self._within]
        spins = self._hang is not None and self._hang.spins
        if len(short) < len(self._stood) and not spins:
            return "", ()
        which = "this trial was not" if spins else "no trial of this cell was"
        return f"it hung, but {which} watched for the whole of within ({self._within:g} s)", short

    def _short(self) -> str:
        """That `within` is short for the silences of the candidate, which only a run shows.

        Empty where it is not.
        """
        needed = window(self.silence)
        if self._within >= 2 * needed:
            return ""
        return f" A window is {needed:.1f} s here: let within be {2 * needed:.0f} s or more."

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
