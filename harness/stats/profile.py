"""Judged run, trial by trial, as another run can be held against it: how each failed, what its
ranks reported.

A signature is a failure without what changes from run to run: pids, addresses, times, folders, who
was dragged along. The cause is the failure that came first. Ranks that ended in another way are its
consequences, and how a rank notices that its peer is gone is a race: they are left out. Values are
kept at the level that their check declares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from pydantic import Field

from harness.checks import Check
from harness.checks.check import ValueCheck
from harness.checks.finding import canonical
from harness.forms.digest import sha256
from harness.forms.model import Model
from harness.forms.strict_json import JSON
from harness.forms.text import numbered
from harness.history import History, ended
from harness.scenario import Scenario
from harness.stats.outcome import Arm, Trial, struck_in_words
from harness.stats.tally import StartCounts, Tally, Word
from harness.stats.verdict import CellVerdict

CAUSE_LIMIT = 600
SHORT = 200
# A numeric value has to be kept as it is; one that is longer can only be compared exactly.
LONGEST = 16 * 1024
DIGEST = "sha256:"


class Signature(Model):
    """Failure as two runs can have it in common.

    Attributes:
        cause: type of the error, function and source line of the last frame inside the subject; or
            how the process ended; or that the deadline came. Empty where no rank failed and only a
            check did not hold.
        ranks: the ranks that failed for this cause.
        checks: the checks that do not hold there, with their ranks.
        faults: the state of every fault on every rank.
    """

    cause: str
    ranks: list[int]
    checks: list[str]
    faults: list[str]

    def description(self) -> str:
        """In one line."""
        parts = [
            self.cause
            + (f" on {numbered('rank', self.ranks)}" if self.ranks and self.cause else "")
        ]
        parts += [f"checks: {', '.join(self.checks)}" if self.checks else "", *self.faults]
        return "; ".join(part for part in parts if part)


class TrialProfile(Model):
    """One trial: what became of it, how it failed, what its ranks reported by check."""

    index: int
    seed: str
    outcome: Literal["pass", "fail", "void"]
    signature: Signature | None
    numbers: dict[str, str]


class CellProfile(Model):
    """One cell: its verdict with the reasons, and the trials of both arms.

    Attributes:
        starts: by arm, where the cell keeps its services: its starts, over which rates are
            compared because trials of one start are not independent.
    """

    id: str
    verdict: Word
    reasons: list[str]
    candidate: list[TrialProfile]
    control: list[TrialProfile]
    starts: dict[Arm, StartCounts] = Field(
        default_factory=dict[Arm, StartCounts], exclude_if=lambda starts: not starts
    )


def profile(
    scenario: Scenario, cells: Sequence[CellVerdict], *, read: Callable[[str], bytes]
) -> list[CellProfile]:
    """Return the profile of every cell.

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
            starts=_starts(cell),
        )
        for cell in cells
    ]


def _starts(cell: CellVerdict) -> dict[Arm, StartCounts]:
    arms: dict[Arm, Tally | None] = {"candidate": cell.candidate, "control": cell.control}
    return {
        arm: tally.starts
        for arm, tally in arms.items()
        if tally is not None and tally.starts is not None
    }


def signature_of(trial: Trial, history: History) -> Signature | None:
    """Return the signature of a trial that failed; None for one that passed or is void."""
    if trial.outcome != "fail":
        return None
    cause = ""
    ranks = None
    if trial.first is not None:
        if trial.first.rank is None:
            cause = "the deadline"
            hung = [seen.event.values.get("ranks") for seen in history.noted("world.deadline")]
            ranks = (
                sorted({rank for rank in hung[0] if type(rank) is int})
                if hung and isinstance(hung[0], list)
                else []
            )
        else:
            cause = _cause(history, trial.first.rank)
            failed = [
                moment.rank
                for moment in (trial.first, *trial.consequences)
                if moment.rank is not None
            ]
            ranks = sorted(rank for rank in failed if _cause(history, rank) == cause)
            if trial.apart:
                # Which machine was first is nobody's to say: all that failed is told, whatever
                # their clocks.
                cause = "; ".join(sorted({_cause(history, rank) for rank in failed}))
                ranks = sorted(failed)
    checks = []
    for failure in trial.failures:
        where = (
            failure.ranks if ranks is None else [rank for rank in failure.ranks if rank in ranks]
        )
        if where or not failure.ranks:
            checks.append(failure.check + (f" on {numbered('rank', where)}" if where else ""))
    of_ranks = [check for check in checks if not check.startswith("world:")]
    return Signature(
        cause=cause,
        ranks=ranks or [],
        checks=sorted(of_ranks or checks),
        faults=[
            f"fault {strike.fault} on {struck_in_words(strike.rank, strike.service)}: {_state(strike.struck, strike.proved)}"
            for strike in trial.strikes
        ],
    )


def _state(struck: bool, proved: bool) -> str:
    if proved:
        return "proved"
    return "struck, not proved" if struck else "did not strike"


def _cause(history: History, rank: int) -> str:
    if (error := history.error(rank)) is not None:
        values = error.event.values
        frames = values.get("frames")
        # A program tells its errors itself, in whatever form it likes.
        frames = frames if isinstance(frames, list) else []
        inside = [frame for frame in frames if isinstance(frame, dict) and frame.get("subject")]
        place = f" in {inside[-1].get('function')} of {inside[-1].get('file')}" if inside else ""
        source = f" at {values['source']!r}" if values.get("source") else ""
        text = f"{values.get('type')}{place}{source}"[:CAUSE_LIMIT]
        # Half a character is not a text that a record could be keyed by.
        return text.encode("utf-8", "backslashreplace").decode()
    if (end := history.exit(rank)) is not None:
        return ended(end.event.values)
    return "its exit was not observed"


def numbers_of(scenario: Scenario, history: History) -> dict[str, str]:
    """Return what a trial's ranks reported, by check: canonical JSON of rank to values, or its
    digest where that is long.
    """
    numbers = {}
    for check in scenario.checks:
        if isinstance(check, ValueCheck) and check.is_compared_again:
            values = {
                str(rank): [value for value, _ in history.values(rank, check.event, check.key)]
                for rank in check.ranks.of(history.size)
            }
            text = canonical(list(_tokens(values)) if check.level == "token-exact" else values)
            limit = LONGEST if check.level == "numeric" else SHORT
            numbers[check.id] = text if len(text) <= limit else DIGEST + sha256(text.encode())
    return numbers


def same_numbers(check: Check, one: str, other: str) -> bool:
    """Return whether two trials reported the same, at the level that the check declares."""
    if one == other:
        return True
    if not isinstance(check, ValueCheck) or check.level != "numeric":
        return False
    if one.startswith(DIGEST) or other.startswith(DIGEST):
        return False
    return _close(json.loads(one), json.loads(other), rtol=check.rtol, atol=check.atol)


def _tokens(value: JSON) -> Iterator[int | str]:
    """Yield the whole numbers of a value, in order, with the structure they stand in."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield f"{key}:"
            yield from _tokens(value[key])
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _tokens(item)
        yield "]"
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _close(one: JSON, other: JSON, *, rtol: float, atol: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _close(one[key], other[key], rtol=rtol, atol=atol) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(
            _close(left, right, rtol=rtol, atol=atol) for left, right in pairs
        )
    if _is_number(one) and _is_number(other):
        # As numpy.allclose: relative to the second value.
        return one == other or (
            math.isfinite(one - other) and abs(one - other) <= atol + rtol * abs(other)
        )
    return canonical(one) == canonical(other)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
