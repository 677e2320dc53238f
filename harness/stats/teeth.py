"""Teeth of a run's tolerances, which may not have been able to refuse anything: what needles and
controls showed of each check.

A check that accepts every wrong array of the right shape, and that no control ever failed by a
departure of the size of what is compared, is toothless: that it holds says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.checks import Finding
from harness.checks.arrays import AgainstCheck, needles_of
from harness.checks.close import CloseCheck
from harness.checks.equivalent import EquivalentCheck, parity_of
from harness.forms.strict_json import JSON
from harness.forms.text import numbered, plural
from harness.history import History
from harness.numeric.needles import LEAST, Needles, try_values
from harness.reason import VerdictCode, VerdictReason
from harness.scenario import Cell, Scenario
from harness.stats.outcome import JudgedTrial, TrialKeeper

Tolerant = AgainstCheck | EquivalentCheck


@dataclass
class TriedNeedles:
    """Wrong arrays that were tried on one check in one cell.

    Attributes:
        needles: the wrong arrays that were compared, by where they are from.
        refused: whether one of them was refused.
        most: the most floats that one of the arrays held.
        scale: the largest magnitude of all arrays.
        constant: whether each of them is one number throughout.
        hollow: whether more than half of each of them is no number.
        telling: of the array in which wrong ones differ most, in how many elements one does.
    """

    needles: dict[str, None] = field(default_factory=dict)
    refused: bool = False
    most: int = 0
    scale: float = 0.0
    constant: bool = True
    hollow: bool = True
    telling: tuple[int, int] = (0, 1)

    @property
    def words(self) -> str:
        """Return the wrong arrays, as a part of a sentence."""
        return f"{plural(len(self.needles), 'array')}, such as {next(iter(self.needles))}"

    def take(self, needles: Needles) -> None:
        """Take what was tried with one array."""
        self.needles |= dict.fromkeys(needle.what for needle in needles.tried)
        self.refused = self.refused or needles.is_refused
        self.most = max(self.most, needles.elements)
        self.scale = max(self.scale, needles.scale or 0.0)
        if needles.elements >= LEAST:
            telling = max((needle.telling for needle in needles.tried), default=0)
            self.telling = max(
                self.telling, (telling, needles.elements), key=lambda of: of[0] / of[1]
            )
            self.constant = self.constant and needles.constant
            self.hollow = self.hollow and 2 * needles.hollow > needles.elements


@dataclass
class Teeth(TrialKeeper):
    """Takes the judged trials of a scenario, and tells which of its checks could not have failed.

    Attributes:
        scenario: whose checks are tried.
    """

    scenario: Scenario
    _tried: defaultdict[tuple[str, str], TriedNeedles] = field(
        default_factory=lambda: defaultdict(TriedNeedles)
    )
    _departures: defaultdict[str, set[float]] = field(default_factory=lambda: defaultdict(set))
    _cells: dict[str, None] = field(default_factory=dict)
    # Ranks that passed with more than half of an array NaN or infinite on both sides.
    _unbounded: defaultdict[tuple[str, str], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )

    @property
    def _checks(self) -> list[Tolerant]:
        """Those that allow a difference."""
        return [
            check
            for check in self.scenario.checks
            if isinstance(check, EquivalentCheck)
            or (isinstance(check, AgainstCheck) and check.tolerates)
        ]

    def take_reference(self, cell: Cell, history: History) -> None:
        """Take the last run of a cell's reference, which tells what `equivalent` makes of
        needles.
        """
        for check in self._checks:
            parity = parity_of(check, history) if isinstance(check, EquivalentCheck) else None
            if parity is not None and parity.needles is not None:
                self._tried[cell.id, check.id].take(parity.needles)

    def take(self, judged: JudgedTrial) -> None:
        if judged.trial.outcome == "void":
            return
        cell = judged.cell
        history = judged.history
        self._cells[cell.id] = None
        for close in self.scenario.checks if judged.arm == "candidate" else ():
            if isinstance(close, CloseCheck) and close.nonfinite is not None:
                ranks = {
                    rank
                    for rank in close.ranks.of(history.size)
                    if close.is_mostly_unbounded(history, rank)
                }
                self._unbounded[cell.id, close.id] |= ranks
        for check in self._checks:
            if judged.arm == "control":
                self._take_departures(check, judged.findings, history)
            elif isinstance(check, AgainstCheck):
                for needles in self._needles(check, cell, history):
                    self._tried[cell.id, check.id].take(needles)

    def _take_departures(
        self, check: Tolerant, findings: Sequence[Finding], history: History
    ) -> None:
        """By how much the ranks were off that failed a check, where that can be told."""
        finding = next(finding for finding in findings if finding.check == check.id)
        for part in finding.ranks:
            if part.passed or part.want(compares=True):
                continue
            apart = check.departure(history, part.rank)
            if apart is not None:
                self._departures[check.id].add(apart)

    def _needles(self, check: AgainstCheck, cell: Cell, history: History) -> Iterator[Needles]:
        """Yield what a trial of the candidate tells of a check: of arrays its events, of values
        what they give.
        """
        if not isinstance(check, CloseCheck) or check.artefact is not None:
            yield from needles_of(history, check.id)
            return
        known: list[JSON] = []
        for rank in check.ranks.of(history.size):
            expected = [other for _, other in check.value_pairs(history, rank)]
            for number, one in enumerate(expected):
                if self._tried[cell.id, check.id].refused:
                    return
                if one in known:
                    continue
                known.append(one)
                try:
                    yield try_values(
                        one, [*expected[:number], *expected[number + 1 :]], check.tolerance
                    )
                except TypeError:
                    continue

    def doubts(self, cell: str) -> Iterator[VerdictReason]:
        """Why checks of a cell could not have failed, whatever the numbers were."""
        for check in self._checks:
            tried = self._tried.get((cell, check.id))
            if tried is None or tried.most < LEAST:
                continue
            if tried.hollow:
                why = (
                    f"more than half of every array that check {check.id} compares is NaN,"
                    " infinite or in a row with such values"
                )
                yield VerdictReason(
                    VerdictCode.TOOTHLESS, f"{why}, which does not count as agreement"
                )
            elif tried.refused:
                continue
            elif tried.constant:
                why = (
                    f"every array that check {check.id} compares contains a single number"
                    f" ({tried.scale:.4g} in size)"
                )
                what = (
                    f"{why}, and it allows {allowed(check)}, so no element could be in the wrong"
                    " place"
                )
                yield VerdictReason(VerdictCode.TOOTHLESS, what)
            elif tried.needles and not any(
                departure <= tried.scale for departure in self._departures[check.id]
            ):
                why = (
                    f"check {check.id} accepts every wrong array that the harness tried in place of"
                    f" the right one ({tried.words}): it allows {allowed(check)}, the largest"
                    f" number compared is {tried.scale:.4g} in size, and no control failed it by"
                    " that or less"
                )
                yield VerdictReason(VerdictCode.TOOTHLESS, why)

    def left_open(self, cell: str) -> list[str]:
        """Return what wrong arrays do not show of the tolerances of a cell, one sentence each."""
        if cell not in self._cells:
            return []
        left = [
            sentence
            for check in self._checks
            for sentence in self._left_open(check, self._tried.get((cell, check.id)))
        ]
        left += [
            f"more than half of the values that check {check} compared on"
            f" {numbered('rank', sorted(ranks))} are NaN or infinite on both sides"
            for (where, check), ranks in self._unbounded.items()
            if where == cell and ranks
        ]
        return left

    def _left_open(self, check: Tolerant, tried: TriedNeedles | None) -> Iterator[str]:
        if tried is None or tried.most < LEAST or not (tried.needles or tried.constant):
            why = f"no array of {LEAST} floats or more was compared"
            if tried is not None and tried.most >= LEAST:
                why = "there was no other array of the same shape"
            yield (
                f"no wrong array was tried on check {check.id} because {why}, so this run does not"
                f" show that {allowed(check)} rejects one"
            )
        elif tried.needles and not tried.refused:
            apart = min(
                (departure for departure in self._departures[check.id] if departure <= tried.scale),
                default=None,
            )
            if apart is not None:  # else the cell is told to be toothless
                yield (
                    f"check {check.id} accepts every wrong array that the harness tried instead of"
                    f" the right one ({tried.words}). It allows {allowed(check)}, and the largest"
                    f" number compared is {tried.scale:.4g} in size. Only the control shows that"
                    f" the check can fail, with a difference of {apart:.4g}"
                )
        elif (
            tried.refused
            and isinstance(check, CloseCheck)
            and 2 * tried.telling[0] < tried.telling[1]
        ):
            yield (
                f"of {tried.telling[1]} elements that check {check.id} compares, no tried wrong"
                f" array differs in more than {tried.telling[0]}. The others are equal or masked,"
                " so this run does not show that they were computed"
            )


def allowed(check: Tolerant) -> str:
    """Return what a check allows, in words."""
    if isinstance(check, EquivalentCheck):
        return f"{check.margin:g} times the reference's noise"
    return check.allows
