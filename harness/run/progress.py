"""What a run says of itself while it goes on: override what somebody is to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.reason import Skip
from harness.scenario import Cell
from harness.stats.outcome import Arm


@dataclass(frozen=True, kw_only=True)
class RunOutline:
    """What a run is going to do.

    Attributes:
        candidate: trials of the candidate in each cell that can run.
        control: trials of the control in each of them.
        skipped: cell id to the reason.
    """

    candidate: int
    control: int
    cells: Sequence[Cell]
    skipped: dict[str, Skip]

    @property
    def trials(self) -> int:
        """How many trials there will be, without the replacements of void ones."""
        return (self.candidate + self.control) * (len(self.cells) - len(self.skipped))


@dataclass(frozen=True)
class MadeTrial:
    """A trial that was made: whether it is void, and whether it ended as a right candidate or a
    stated control does.

    `lost` is the node that took it along, if one did. `watched` says that it had to stand still for
    all of `within`, `hung` that it was proved to.
    """

    cell: Cell
    arm: Arm
    void: bool
    as_expected: bool
    lost: int | None = None
    watched: bool = False
    hung: bool = False


class Progress:
    """Hears of a run, in this order, from the thread that called it. This one keeps silent."""

    def says(self, text: str) -> None:
        """Hear what takes long before the first trial, or could not be cleared away after the
        last.

        One line.
        """

    def planned(self, plan: RunOutline) -> None:
        """Hear what is going to happen; once, before the first trial."""

    def compares(self, what: str) -> None:
        """Hear that what a cell's trials are compared with is made: "the reference, run 1 of 2"."""

    def began(self, cell: Cell) -> None:
        """Hear that a trial of this cell was handed to a lane."""

    def ended(self, trial: MadeTrial) -> None:
        """Hear that one more trial is there."""

    def done(self) -> None:
        """Hear that the run is over, in whatever way."""
