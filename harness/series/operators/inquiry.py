"""How a part is asked: the sweep, then smaller cases of what failed, then the smallest of each
cause three times more.

It is a generator that asks for cells and is sent what came of them. So the live sweep and whoever
verifies it run the same code, and nothing can be asked that the outcomes before do not call for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from harness.forms.model import Model
from harness.series.operators.cells import Operator, OperatorCell, elements
from harness.series.operators.judge import Outcome, Word

Purpose = Literal["sweep", "shrink", "confirm"]
REPETITIONS: Final = 3
SLICES: Final = 6
"""Worlds that an ask is spread over: a cell that hangs keeps its own slice waiting, and no other."""
LEAST_SLICE: Final = 4
"""Cells of a slice, because a world costs more than a few cells."""
MOST_CAUSES: Final = 4
"""Causes of one operator in a part that are followed; what is left over is counted."""
MOST_STEPS: Final = 6
ENDS_A_WORLD: Final = frozenset({"crash", "hang", "next call"})
FEW: Final = 3
"""Values of an axis that are tried beside a failure that ends its world."""
FOLLOWED: Final = frozenset({"DEFECT", "CRASH", "HANG", "DIFFERS"})


@dataclass(frozen=True)
class Ask:
    """Cells for fresh worlds."""

    purpose: Purpose
    cells: Sequence[OperatorCell]

    def slices(self) -> list[Ask]:
        """Cut it into asks that can be made at the same time, in order."""
        length = max(LEAST_SLICE, -(-len(self.cells) // SLICES))
        return [
            Ask(self.purpose, self.cells[begin : begin + length])
            for begin in range(0, len(self.cells), length)
        ]


class FailureCause(Model):
    """Failures of one operator that have one cause.

    Attributes:
        operator: whose.
        cell: the smallest that fails.
        outcome: what came of it.
        needs: axes on which the failure depends, each with the values that fail, beside the failing
            cell that is nearest to the usual one.
        spares: the values of these axes with which it is right.
        failing: cells of the sweep that fail like this.
        control: the cell beside it that is right; None where there is none.
        times: repetitions in fresh worlds in which it failed so, of `REPETITIONS`.
        control_times: repetitions in which the control was right.
        needle_times: repetitions in which one wrong element in the control's result was seen.
    """

    operator: str
    cell: OperatorCell
    outcome: Outcome
    needs: dict[str, list[str]]
    spares: dict[str, list[str]]
    failing: int
    control: OperatorCell | None
    times: int = Field(default=0, ge=0)
    control_times: int = Field(default=0, ge=0)
    needle_times: int = Field(default=0, ge=0)

    @property
    def is_shown(self) -> bool:
        """Return whether it counts: it failed again, and the eye was shown to work each time."""
        return self.times > 0 and self.control_times == self.needle_times == REPETITIONS


class Findings(Model):
    """What came of a part.

    Attributes:
        words: cells of the sweep by word.
        needles: wrong elements that were put into results of the sweep; `seen` of them were seen.
            An operator that refuses its plainest cell has none.
        causes: of what failed.
        left: failing cells that no cause explains.
        refusals: first lines of what was raised, with how often.
        asked: calls of all worlds.
    """

    words: dict[Word, int]
    needles: int
    seen: int
    causes: list[FailureCause]
    left: int
    refusals: dict[str, int]
    asked: int


Known = dict[str, Outcome]
Asking = Generator[list[OperatorCell], Sequence[Outcome], list[FailureCause]]
Inquiry = Generator[Ask, Sequence[Outcome], Findings]


def inquire(operators: Sequence[Operator], cells: Sequence[OperatorCell]) -> Inquiry:
    """Ask about a part."""
    needles = [needle(operator.usual_cell()) for operator in operators]
    found = yield Ask("sweep", [*cells, *needles])
    swept = dict(zip([cell.key for cell in cells], found, strict=False))
    pricked = found[len(cells) :]
    followers: list[Asking] = []
    for operator in operators:
        ours = [cell for cell in cells if cell.operator == operator.name]
        failing = [cell for cell in ours if swept[cell.key].word in FOLLOWED]
        if failing:
            followers.append(follow(operator, failing, _learned(ours, swept)))
    asked = len(found)
    causes: list[FailureCause] = []
    waiting = [
        (follower, wanted) for follower in followers if (wanted := _next(follower, None, causes))
    ]
    while waiting:
        answers = yield Ask("shrink", [cell for _, wanted in waiting for cell in wanted])
        asked += len(answers)
        rest = iter(answers)
        waiting = [
            (follower, more)
            for follower, wanted in waiting
            if (more := _next(follower, [next(rest) for _ in wanted], causes))
        ]
    if causes:
        causes = yield from _confirm(causes)
        asked += REPETITIONS * sum(1 if cause.control is None else 3 for cause in causes)
    counts: dict[Word, int] = {}
    refusals: dict[str, int] = {}
    for outcome in swept.values():
        counts[outcome.word] = counts.get(outcome.word, 0) + 1
        if outcome.word == "REFUSES":
            refusals[outcome.fact] = refusals.get(outcome.fact, 0) + 1
    failed = sum(outcome.word in FOLLOWED for outcome in swept.values())
    tried = [outcome for outcome in pricked if outcome.word not in ("REFUSES", "NO ORACLE")]
    return Findings(
        words=counts,
        needles=len(tried),
        seen=sum(outcome.word == "DEFECT" for outcome in tried),
        causes=causes,
        left=failed - sum(cause.failing for cause in causes),
        refusals=refusals,
        asked=asked,
    )


def needle(cell: OperatorCell) -> OperatorCell:
    """Return the cell with one wrong element in its result."""
    return cell.model_copy(update={"needle": True})


def _next(
    follower: Asking, answers: Sequence[Outcome] | None, causes: list[FailureCause]
) -> list[OperatorCell]:
    """Return what a follower asks next; empty where it is done, and its causes are taken."""
    try:
        return next(follower) if answers is None else follower.send(answers)
    except StopIteration as done:
        causes.extend(done.value)
        return []


def follow(operator: Operator, failing: Sequence[OperatorCell], known: Known) -> Asking:
    """Make failures of one operator small, and part them by cause.

    Args:
        operator: whose.
        failing: its cells that failed.
        known: what came of all of its cells.
    """
    # The axes are read off beside a cell that is nearly the usual one, whose arrays are large
    # enough to show a difference.
    left = sorted(failing, key=lambda cell: (operator.distance(cell), operator.simplicity(cell)))
    causes: list[FailureCause] = []
    while left and len(causes) < MOST_CAUSES:
        first = left[0]
        wanted = known[first.key]
        most = FEW if wanted.kind in ENDS_A_WORLD else None
        yield from _learn(operator.variants(first, most=most), known)
        cell = first
        for _ in range(MOST_STEPS):
            simpler = [
                variant
                for variant in operator.variants(cell, most=most)
                if operator.simplicity(variant) < operator.simplicity(cell)
            ]
            yield from _learn(simpler, known)
            same = [variant for variant in simpler if _is_alike(known[variant.key], wanted)]
            if not same:
                break
            cell = min(same, key=operator.simplicity)
        cause = _cause(operator, first, cell, known)
        explained = [
            other
            for other in left
            if other is first or (_is_alike(known[other.key], wanted) and explains(cause, other))
        ]
        causes.append(cause.model_copy(update={"failing": len(explained)}))
        left = [other for other in left if other not in explained]
    return causes


def _learn(
    cells: Iterable[OperatorCell], known: Known
) -> Generator[list[OperatorCell], Sequence[Outcome], None]:
    unknown = [cell for cell in cells if cell.key not in known]
    if unknown:
        answers = yield unknown
        known.update(zip([cell.key for cell in unknown], answers, strict=True))


def _learned(cells: Iterable[OperatorCell], swept: Known) -> Known:
    """Return what came of these cells, but for those that were not asked."""
    known = {cell.key: swept[cell.key] for cell in cells}
    return {key: came for key, came in known.items() if came.word != "NOT ASKED"}


def _is_alike(one: Outcome, other: Outcome) -> bool:
    return (one.word, one.kind) == (other.word, other.kind)


def _cause(
    operator: Operator, first: OperatorCell, smallest: OperatorCell, known: Mapping[str, Outcome]
) -> FailureCause:
    """Read off what is beside a failing cell on which axes the failure depends."""
    outcome = known[first.key]
    fails: dict[str, list[str]] = {axis: [first.axes[axis]] for axis in operator.axes}
    spares: dict[str, list[str]] = {axis: [] for axis in operator.axes}
    for variant in operator.variants(first):
        if variant.key not in known:
            continue
        (axis,) = [axis for axis in operator.axes if variant.axes[axis] != first.axes[axis]]
        if _is_alike(known[variant.key], outcome):
            fails[axis].append(variant.axes[axis])
        elif known[variant.key].word == "RIGHT":
            spares[axis].append(variant.axes[axis])
    needed = [axis for axis in operator.axes if spares[axis]]
    return FailureCause(
        operator=operator.name,
        cell=smallest,
        outcome=known[smallest.key],
        needs={axis: fails[axis] for axis in needed},
        spares={axis: spares[axis] for axis in needed},
        failing=0,
        control=_control(operator, smallest, known) or _control(operator, first, known),
    )


def _control(
    operator: Operator, cell: OperatorCell, known: Mapping[str, Outcome]
) -> OperatorCell | None:
    """Return the plainest cell beside a failing one that is right, and has elements to change.

    One of the same shape, where there is one.
    """
    right = [
        one
        for one in operator.variants(cell)
        if one.key in known and known[one.key].word == "RIGHT" and elements(one)
    ]
    same = [one for one in right if one.axes["shape"] == cell.axes["shape"]]
    return min(same or right, key=operator.simplicity, default=None)


def explains(cause: FailureCause, cell: OperatorCell) -> bool:
    """Return whether no axis of a cell has a value that would have spared it."""
    return all(cell.axes[axis] not in spared for axis, spared in cause.spares.items())


def _confirm(
    causes: Sequence[FailureCause],
) -> Generator[Ask, Sequence[Outcome], list[FailureCause]]:
    """Ask for every cause again in fresh worlds, each with its control and the control's needle."""
    asked: list[OperatorCell] = []
    for cause in causes:
        asked.append(cause.cell)
        if cause.control is not None:
            asked += [cause.control, needle(cause.control)]
    times = [[0, 0, 0] for _ in causes]
    for _ in range(REPETITIONS):
        found = iter((yield Ask("confirm", asked)))
        for cause, counts in zip(causes, times, strict=True):
            counts[0] += _is_alike(next(found), cause.outcome)
            if cause.control is not None:
                counts[1] += next(found).word == "RIGHT"
                counts[2] += next(found).word == "DEFECT"
    return [
        cause.model_copy(
            update={"times": counts[0], "control_times": counts[1], "needle_times": counts[2]}
        )
        for cause, counts in zip(causes, times, strict=True)
    ]
