"""A judged run, trial by trial, as another run can be held against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from harness.forms.model import Model
from harness.history import History
from harness.scenario import Scenario
from harness.stats.numbers import numbers_of
from harness.stats.signature import Signature, signature_of
from harness.stats.tally import Tally, Word
from harness.stats.verdict import CellVerdict


class TrialProfile(Model):
    """One trial: what became of it, how it failed, what its ranks reported by check."""

    index: int
    seed: str
    outcome: Literal["pass", "fail", "void"]
    signature: Signature | None
    numbers: dict[str, str]


class CellProfile(Model):
    """One cell: its verdict with the reasons, and the trials of both arms."""

    id: str
    verdict: Word
    reasons: list[str]
    candidate: list[TrialProfile]
    control: list[TrialProfile]


def profile(scenario: Scenario, cells: Sequence[CellVerdict], *, read: Callable[[str], bytes]) -> list[CellProfile]:
    """The profile of every cell.

    Args:
        scenario: what was asked.
        cells: as they were judged.
        read: gives the bytes of an evidence file by its path.
    """

    def trials(cell: CellVerdict, tally: Tally | None) -> list[TrialProfile]:
        profiles = []
        for trial in tally.trials if tally else ():
            history = History.read(read(trial.evidence), size=cell.ranks)
            profiles.append(
                TrialProfile(
                    index=trial.index,
                    seed=trial.seed,
                    outcome=trial.outcome,
                    signature=signature_of(trial, history),
                    numbers=numbers_of(scenario, history) if trial.outcome != "void" else {},
                )
            )
        return profiles

    return [
        CellProfile(
            id=cell.id,
            verdict=cell.verdict,
            reasons=[str(reason) for reason in cell.reasons],
            candidate=trials(cell, cell.candidate),
            control=trials(cell, cell.control),
        )
        for cell in cells
    ]
